"""Facts about tasks become metrics: one short function a fact; see `metrics`."""

from typing import Final

from taskgate.domain.record import TaskStatus
from taskgate.protocol.vocabulary import TASKS_GET
from taskgate.telemetry import audit
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

    def created(fact: audit.TaskCreated) -> None:
        mount = fact.task.owner.mount
        started[mount, tenants.label()].inc()
        granted[mount,].observe(fact.task.ttl.total_seconds())
        if fact.adjustment is not None:
            adjustments[mount, fact.adjustment].inc()

    def dispatched(fact: audit.TaskDispatched) -> None:
        queue_wait[fact.task.owner.mount,].observe(fact.waited.total_seconds())

    def moved(fact: audit.TaskMoved) -> None:
        transitions[fact.task.owner.mount, fact.before, fact.task.status].inc()

    def cancel_asked(fact: audit.TaskCancelAsked) -> None:
        cancels[fact.task.owner.mount, fact.outcome].inc()

    def recovered(fact: audit.TaskRecovered) -> None:
        recoveries[fact.task.owner.mount, fact.outcome].inc()

    def counted(fact: audit.CallsRunning) -> None:
        running[fact.mount,].set(fact.count)

    return {
        audit.TaskCreated: created,
        audit.TaskDispatched: dispatched,
        audit.TaskMoved: moved,
        audit.TaskCancelAsked: cancel_asked,
        audit.TaskRecovered: recovered,
        audit.CallsRunning: counted,
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

    def finished(fact: audit.TaskFinished) -> None:
        mount = fact.task.owner.mount
        completions[mount, fact.status, fact.reason].inc()
        durations[mount, fact.status].observe(fact.age.total_seconds())
        if fact.result_bytes is not None:
            result_bytes[mount,].observe(fact.result_bytes)

    def expired(fact: audit.TaskExpired) -> None:
        expirations[fact.task.owner.mount, fact.phase].inc()

    def purged(fact: audit.TaskPurged) -> None:
        task = fact.task
        purges[task.status,].inc()
        if task.status in _WITH_OUTCOME and not task.retrieved:
            undelivered[task.owner.mount, task.status].inc()

    def late_answer_dropped(fact: audit.LateAnswerDropped) -> None:
        late_answers[fact.mount,].inc()

    def lease_lost(fact: audit.LeaseLost) -> None:
        leases_lost[fact.kind,].inc()

    return {
        audit.TaskFinished: finished,
        audit.TaskExpired: expired,
        audit.TaskPurged: purged,
        audit.LateAnswerDropped: late_answer_dropped,
        audit.LeaseLost: lease_lost,
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

    def polled(fact: audit.TaskPolled) -> None:
        # The fact is the key: it is what its family is labelled by.
        polls[fact].inc()

    def polls_counted(fact: audit.PollsCounted) -> None:
        polls_per_task[fact.mount,].observe(fact.polls)

    def advised(fact: audit.PollAdvised) -> None:
        intervals[fact.mount,].set(fact.interval.total_seconds())

    def denied(fact: audit.TaskDenied) -> None:
        denials[fact.mount, fact.method, fact.reason].inc()
        if fact.method == TASKS_GET:
            polls[fact.mount, "denied"].inc()

    def retrieved(fact: audit.TaskRetrieved) -> None:
        if fact.delay is not None:
            delays[fact.task.owner.mount,].observe(fact.delay.total_seconds())

    def settled(fact: audit.InputSettled) -> None:
        inputs[fact.task.owner.mount, fact.kind, fact.outcome].inc()

    def waited(fact: audit.InputWaited) -> None:
        input_wait[fact.task.owner.mount,].observe(fact.waited.total_seconds())

    return {
        audit.TaskPolled: polled,
        audit.PollsCounted: polls_counted,
        audit.PollAdvised: advised,
        audit.TaskDenied: denied,
        audit.TaskRetrieved: retrieved,
        audit.InputSettled: settled,
        audit.InputWaited: waited,
    }
