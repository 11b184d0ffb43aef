"""Events about tasks become metrics: one short function an event; see `metrics`."""

from typing import Final

from taskgate.domain.record import TaskStatus
from taskgate.protocol.vocabulary import TASKS_GET
from taskgate.telemetry import events
from taskgate.telemetry.metrics import task_families
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.series import Takers

_WITH_OUTCOME: Final = (TaskStatus.COMPLETED, TaskStatus.FAILED)


def task_takers(registry: Registry) -> Takers:
    """For what happens to tasks before their end."""
    started = registry.counter(task_families.STARTED)
    granted = registry.histogram(task_families.TTL)
    adjustments = registry.counter(task_families.ADJUSTMENTS)
    queue_wait = registry.histogram(task_families.QUEUE_WAIT)
    transitions = registry.counter(task_families.TRANSITIONS)
    cancels = registry.counter(task_families.CANCELS)
    recoveries = registry.counter(task_families.RECOVERIES)
    running = registry.gauge(task_families.RUNNING)
    tenants = registry.tenants

    def created(event: events.TaskCreated) -> None:
        mount = event.task.owner.mount
        started[mount, tenants.label()].inc()
        granted[mount,].observe(event.task.ttl.total_seconds())
        if event.adjustment is not None:
            adjustments[mount, event.adjustment].inc()

    def dispatched(event: events.TaskDispatched) -> None:
        queue_wait[event.task.owner.mount,].observe(event.waited.total_seconds())

    def moved(event: events.TaskTransitioned) -> None:
        transitions[event.task.owner.mount, event.before, event.task.status].inc()

    def cancel_asked(event: events.TaskCancelRequested) -> None:
        cancels[event.task.owner.mount, event.outcome].inc()

    def recovered(event: events.TaskRecovered) -> None:
        recoveries[event.task.owner.mount, event.outcome].inc()

    def counted(event: events.CallsRunning) -> None:
        running[event.mount,].set(event.count)

    return {
        events.TaskCreated: created,
        events.TaskDispatched: dispatched,
        events.TaskTransitioned: moved,
        events.TaskCancelRequested: cancel_asked,
        events.TaskRecovered: recovered,
        events.CallsRunning: counted,
    }


def ending_takers(registry: Registry) -> Takers:
    """For the ends of tasks, and what comes after."""
    completions = registry.counter(task_families.FINISHED)
    durations = registry.histogram(task_families.DURATION)
    result_bytes = registry.histogram(task_families.RESULT_BYTES)
    expirations = registry.counter(task_families.EXPIRATIONS)
    purges = registry.counter(task_families.PURGED)
    undelivered = registry.counter(task_families.UNDELIVERED)
    leases_lost = registry.counter(task_families.LEASES_LOST)
    late_answers = registry.counter(task_families.LATE_ANSWERS)

    def finished(event: events.TaskFinished) -> None:
        mount = event.task.owner.mount
        completions[mount, event.status, event.reason].inc()
        durations[mount, event.status].observe(event.age.total_seconds())
        if event.result_bytes is not None:
            result_bytes[mount,].observe(event.result_bytes)

    def expired(event: events.TaskExpired) -> None:
        expirations[event.task.owner.mount, event.phase].inc()

    def purged(event: events.TaskPurged) -> None:
        task = event.task
        purges[task.status,].inc()
        if task.status in _WITH_OUTCOME and not task.retrieved:
            undelivered[task.owner.mount, task.status].inc()

    def late_answer_dropped(event: events.LateAnswerDropped) -> None:
        late_answers[event.mount,].inc()

    def lease_lost(event: events.LeaseLost) -> None:
        leases_lost[event.kind,].inc()

    return {
        events.TaskFinished: finished,
        events.TaskExpired: expired,
        events.TaskPurged: purged,
        events.LateAnswerDropped: late_answer_dropped,
        events.LeaseLost: lease_lost,
    }


def look_takers(registry: Registry) -> Takers:
    """For what hosts do with tasks: look at them, answer what they ask, and take their outcomes."""
    polls = registry.counter(task_families.POLLS)
    polls_per_task = registry.histogram(task_families.POLLS_PER_TASK)
    intervals = registry.gauge(task_families.POLL_INTERVAL)
    denials = registry.counter(task_families.DENIALS)
    delays = registry.histogram(task_families.DELIVERY)
    inputs = registry.counter(task_families.INPUTS)
    input_wait = registry.histogram(task_families.INPUT_WAIT)

    def polled(event: events.TaskPolled) -> None:
        # The event is the key: it is what its family is labelled by.
        polls[event].inc()

    def polls_counted(event: events.PollsCounted) -> None:
        polls_per_task[event.mount,].observe(event.polls)

    def advised(event: events.PollAdvised) -> None:
        intervals[event.mount,].set(event.interval.total_seconds())

    def denied(event: events.TaskDenied) -> None:
        denials[event.mount, event.method, event.reason].inc()
        if event.method == TASKS_GET:
            polls[event.mount, "denied"].inc()

    def retrieved(event: events.TaskRetrieved) -> None:
        if event.delay is not None:
            delays[event.task.owner.mount,].observe(event.delay.total_seconds())

    def settled(event: events.InputSettled) -> None:
        inputs[event.task.owner.mount, event.kind, event.outcome].inc()

    def waited(event: events.InputWaited) -> None:
        input_wait[event.task.owner.mount,].observe(event.waited.total_seconds())

    return {
        events.TaskPolled: polled,
        events.PollsCounted: polls_counted,
        events.PollAdvised: advised,
        events.TaskDenied: denied,
        events.TaskRetrieved: retrieved,
        events.InputSettled: settled,
        events.InputWaited: waited,
    }
