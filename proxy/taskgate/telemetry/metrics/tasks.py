"""Metrics of tasks and of what hosts do with them: families and recorders.

A family is one metric with its labels; each combination of label values is a series. A recorder is
a function that changes the metrics for one type of event. `prometheus` calls each of the three
functions below once, and subscribes with their recorders. `EventRing` then calls the recorder of
each event.

`limits` bounds the series (`SeriesLimits`): `own` for each value of the first label, mostly the
upstream, then `shared` for all together. `FROM_START` and `from_start` name the series that exist
from the start, with 0. Without `limits`, the fixed values of the labels are the only bound.
"""

from typing import Final

from taskgate.domain.record import TaskStatus
from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_RESULT, TASKS_UPDATE
from taskgate.telemetry import events
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import FROM_START, SeriesLimits, counter, from_start, gauge, histogram
from taskgate.telemetry.metrics.registry import Recorders, Registry

# --- families --------------------------------------------------------------------------------------------------------

_TASK_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0)
_TTL_SECONDS = (60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 604800.0)
_WAIT_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0)
# People answer input requests, and hosts come back for results, after seconds or hours.
_INPUT_SECONDS = (0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0)
_DELIVERY_SECONDS = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
_OUTCOME_BYTES = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0)
_POLLS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

_DENIALS = frozenset(
    (method, reason)
    for method in (TASKS_GET, TASKS_RESULT, TASKS_CANCEL, TASKS_UPDATE)
    for reason in labels.DENIAL.values or ()
)

STARTED = counter(
    "taskgate_tasks_started_total", "Tasks durably created.", labels.UPSTREAM, labels.TENANT, limits=from_start(("",))
)
TRANSITIONS = counter(
    "taskgate_task_transitions_total",
    "Changes of a task's status.",
    labels.UPSTREAM,
    labels.FROM_STATUS,
    labels.TO_STATUS,
    limits=SeriesLimits(own=8),
)
FINISHED = counter(
    "taskgate_tasks_finished_total",
    "Tasks that ended, and why.",
    labels.UPSTREAM,
    labels.STATUS,
    labels.FINISH_REASON,
    limits=SeriesLimits(own=12, shared=12),
)
RUNNING = gauge(
    "taskgate_tasks_running",
    "Calls of tasks in flight to an upstream.",
    labels.UPSTREAM,
    limits=FROM_START,
)
OLDEST = gauge(
    "taskgate_task_oldest_age_seconds",
    "Time since the creation of the oldest unfinished task; absent without one.",
    labels.UPSTREAM,
)
DURATION = histogram(
    "taskgate_task_duration_seconds",
    "Creation of a task to its end.",
    _TASK_SECONDS,
    labels.UPSTREAM,
    labels.STATUS,
    limits=SeriesLimits(own=3),
)
QUEUE_WAIT = histogram(
    "taskgate_task_queue_wait_seconds",
    "Creation of a task to its dispatch.",
    _WAIT_SECONDS,
    labels.UPSTREAM,
    limits=FROM_START,
)
INPUT_WAIT = histogram(
    "taskgate_task_input_wait_seconds",
    "Time that a task waited for its host, for each time in input_required.",
    _INPUT_SECONDS,
    labels.UPSTREAM,
    limits=FROM_START,
)
INPUTS = counter(
    "taskgate_task_input_requests_total",
    "Input requests of tasks, by what became of them.",
    labels.UPSTREAM,
    labels.INPUT_KIND,
    labels.INPUT_OUTCOME,
    limits=SeriesLimits(own=4, shared=12),
)
RESULT_BYTES = histogram(
    "taskgate_task_result_bytes", "Size of a stored outcome.", _OUTCOME_BYTES, labels.UPSTREAM, limits=FROM_START
)
TTL = histogram(
    "taskgate_task_ttl_seconds", "Time to live granted to a task.", _TTL_SECONDS, labels.UPSTREAM, limits=FROM_START
)
ADJUSTMENTS = counter(
    "taskgate_ttl_adjustments_total", "Times to live other than requested.", labels.UPSTREAM, labels.TTL_ADJUSTMENT
)
EXPIRATIONS = counter(
    "taskgate_task_expirations_total",
    "Unfinished tasks that reached the age of tasks.ttl.max.",
    labels.UPSTREAM,
    labels.PHASE,
    limits=from_start(("queued",), ("working",), ("input_required",)),
)
CANCELS = counter(
    "taskgate_task_cancel_requests_total", "Cancels that hosts asked for.", labels.UPSTREAM, labels.CANCEL_OUTCOME
)
RECOVERIES = counter(
    "taskgate_task_recoveries_total",
    "Tasks taken over from a process that was gone.",
    labels.UPSTREAM,
    labels.RECOVERY_OUTCOME,
    limits=from_start(("failed",), ("retried",)),
)
LATE_ANSWERS = counter(
    "taskgate_task_late_answers_total",
    "Answers dropped because their task had ended before.",
    labels.UPSTREAM,
    limits=FROM_START,
)
LEASES_LOST = counter(
    "taskgate_leases_lost_total",
    "Leases of this process that another one took over.",
    labels.LEASE_KIND,
    limits=FROM_START,
)
SHADOW_PROMOTIONS = counter(
    "taskgate_shadow_promotions_total",
    "Calls that a rule in shadow mode would have made a task.",
    labels.UPSTREAM,
    limits=FROM_START,
)

DELIVERY = histogram(
    "taskgate_task_delivery_delay_seconds",
    "End of a task to the first delivery of its outcome to its owner.",
    _DELIVERY_SECONDS,
    labels.UPSTREAM,
    limits=FROM_START,
)
UNDELIVERED = counter(
    "taskgate_tasks_undelivered_total",
    "Records removed whose outcome was never fetched.",
    labels.UPSTREAM,
    labels.STATUS,
    limits=from_start(("completed",), ("failed",), own=0),
)
PURGED = counter(
    "taskgate_tasks_purged_total", "Records removed after their time to live.", labels.STATUS, limits=from_start(())
)
DENIALS = counter(
    "taskgate_task_access_denials_total",
    "Look-ups that found no task of the caller's.",
    labels.UPSTREAM,
    labels.METHOD,
    labels.DENIAL,
    limits=SeriesLimits(initial=_DENIALS, own=1, shared=8),
)
POLLS = counter("taskgate_task_polls_total", "Polls of tasks by hosts.", labels.UPSTREAM, labels.POLL_RESULT)
POLLS_PER_TASK = histogram(
    "taskgate_task_polls_per_task",
    "Polls of a task until its host saw that it had ended.",
    _POLLS,
    labels.UPSTREAM,
    limits=FROM_START,
)
POLL_INTERVAL = gauge(
    "taskgate_poll_interval_seconds",
    "Poll interval that the newest answer advised; absent before the first.",
    labels.UPSTREAM,
)

FAMILIES: Final = (
    STARTED, TRANSITIONS, FINISHED, RUNNING, OLDEST, DURATION, QUEUE_WAIT, INPUT_WAIT, INPUTS, RESULT_BYTES, TTL,
    ADJUSTMENTS, EXPIRATIONS, CANCELS, RECOVERIES, LATE_ANSWERS, LEASES_LOST, SHADOW_PROMOTIONS, DELIVERY,
    UNDELIVERED, PURGED, DENIALS, POLLS, POLLS_PER_TASK, POLL_INTERVAL,
)  # fmt: skip

# --- recorders -------------------------------------------------------------------------------------------------------

_WITH_OUTCOME: Final = (TaskStatus.COMPLETED, TaskStatus.FAILED)


def task_recorders(registry: Registry) -> Recorders:
    """The recorders of tasks until they end."""
    started = registry.counter(STARTED)
    granted = registry.histogram(TTL)
    adjustments = registry.counter(ADJUSTMENTS)
    queue_wait = registry.histogram(QUEUE_WAIT)
    transitions = registry.counter(TRANSITIONS)
    cancels = registry.counter(CANCELS)
    recoveries = registry.counter(RECOVERIES)
    shadow_promotions = registry.counter(SHADOW_PROMOTIONS)
    tenants = registry.tenants

    def task_created(event: events.TaskCreated) -> None:
        mount = event.task.owner.mount
        # The tenant of the present request's caller.
        started[mount, "" if tenants.listed is None else tenants.text()].value += 1
        granted[mount,].observe(event.task.ttl.total_seconds())
        if event.adjustment is not None:
            adjustments[mount, event.adjustment].value += 1

    def task_dispatched(event: events.TaskDispatched) -> None:
        queue_wait[event.task.owner.mount,].observe(event.waited.total_seconds())

    def task_transitioned(event: events.TaskTransitioned) -> None:
        transitions[event.task.owner.mount, event.before, event.task.status].value += 1

    def task_cancel_requested(event: events.TaskCancelRequested) -> None:
        cancels[event.task.owner.mount, event.outcome].value += 1

    def task_recovered(event: events.TaskRecovered) -> None:
        recoveries[event.task.owner.mount, event.outcome].value += 1

    def shadow_promotion(event: events.ShadowPromotion) -> None:
        shadow_promotions[event.mount,].value += 1

    return {
        events.TaskCreated: task_created,
        events.TaskDispatched: task_dispatched,
        events.TaskTransitioned: task_transitioned,
        events.TaskCancelRequested: task_cancel_requested,
        events.TaskRecovered: task_recovered,
        events.ShadowPromotion: shadow_promotion,
    }


def task_end_recorders(registry: Registry) -> Recorders:
    """The recorders of the ends of tasks, and of what happens after."""
    finished = registry.counter(FINISHED)
    durations = registry.histogram(DURATION)
    result_bytes = registry.histogram(RESULT_BYTES)
    expirations = registry.counter(EXPIRATIONS)
    purges = registry.counter(PURGED)
    undelivered = registry.counter(UNDELIVERED)
    leases_lost = registry.counter(LEASES_LOST)
    late_answers = registry.counter(LATE_ANSWERS)

    def task_finished(event: events.TaskFinished) -> None:
        mount = event.task.owner.mount
        finished[mount, event.status, event.reason].value += 1
        durations[mount, event.status].observe(event.age.total_seconds())
        if event.result_bytes is not None:
            result_bytes[mount,].observe(event.result_bytes)

    def task_expired(event: events.TaskExpired) -> None:
        expirations[event.task.owner.mount, event.phase].value += 1

    def task_purged(event: events.TaskPurged) -> None:
        task = event.task
        purges[task.status,].value += 1
        if task.status in _WITH_OUTCOME and not task.retrieved:
            undelivered[task.owner.mount, task.status].value += 1

    def late_answer_dropped(event: events.LateAnswerDropped) -> None:
        late_answers[event.mount,].value += 1

    def lease_lost(event: events.LeaseLost) -> None:
        leases_lost[event.kind,].value += 1

    return {
        events.TaskFinished: task_finished,
        events.TaskExpired: task_expired,
        events.TaskPurged: task_purged,
        events.LateAnswerDropped: late_answer_dropped,
        events.LeaseLost: lease_lost,
    }


def poll_recorders(registry: Registry) -> Recorders:
    """The recorders of what hosts do with tasks: poll them, answer input requests, fetch outcomes."""
    polls = registry.counter(POLLS)
    polls_per_task = registry.histogram(POLLS_PER_TASK)
    denials = registry.counter(DENIALS)
    delays = registry.histogram(DELIVERY)
    inputs = registry.counter(INPUTS)
    input_wait = registry.histogram(INPUT_WAIT)

    def task_polled(event: events.TaskPolled, times: int = 1) -> None:
        # The event is a tuple of the labels' values, in their order, so it is the key itself.
        polls.count(event, times)

    def polls_counted(event: events.PollsCounted) -> None:
        polls_per_task[event.mount,].observe(event.polls)

    def task_denied(event: events.TaskDenied) -> None:
        denials[event.mount, event.method, event.reason].value += 1
        # A poll that was refused. Such a request emits no TaskPolled.
        if event.method == TASKS_GET:
            polls[event.mount, "denied"].value += 1

    def task_retrieved(event: events.TaskRetrieved) -> None:
        # None for every fetch but the first one.
        if event.delay is not None:
            delays[event.task.owner.mount,].observe(event.delay.total_seconds())

    def input_settled(event: events.InputSettled) -> None:
        inputs[event.task.owner.mount, event.kind, event.outcome].value += 1

    def input_waited(event: events.InputWaited) -> None:
        input_wait[event.task.owner.mount,].observe(event.waited.total_seconds())

    return {
        events.TaskPolled: task_polled,
        events.PollsCounted: polls_counted,
        events.TaskDenied: task_denied,
        events.TaskRetrieved: task_retrieved,
        events.InputSettled: input_settled,
        events.InputWaited: input_waited,
    }
