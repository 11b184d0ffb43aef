"""The families about tasks and how hosts look at them; see `catalogue`."""

from typing import Final

from taskgate.protocol.vocabulary import TASKS_CANCEL, TASKS_GET, TASKS_RESULT, TASKS_UPDATE
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import ALONE, SeriesRoom, beginning, counter, gauge, histogram

_TASK_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0)
_TTL_SECONDS = (1.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 604800.0)
_WAIT_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0)
# People answer questions, and hosts come back for results: seconds to hours.
_INPUT_SECONDS = (0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0)
_DELIVERY_SECONDS = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
_OUTCOME_BYTES = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0)
_POLLS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

_DENIALS = frozenset(
    (method, reason)
    for method in (TASKS_GET, TASKS_RESULT, TASKS_CANCEL, TASKS_UPDATE)
    for reason in labels.DENIAL.values or ()
)

# --- from creation to end --------------------------------------------------------------------------------------------

STARTED = counter(
    "taskgate_tasks_started_total", "Tasks durably created.", labels.UPSTREAM, labels.TENANT, room=beginning(("",))
)
TRANSITIONS = counter(
    "taskgate_task_transitions_total",
    "Changes of a task's status.",
    labels.UPSTREAM,
    labels.FROM,
    labels.TO,
    room=SeriesRoom(most=8),
)
FINISHED = counter(
    "taskgate_tasks_finished_total",
    "Tasks that ended, and why.",
    labels.UPSTREAM,
    labels.STATUS,
    labels.ENDING,
    room=SeriesRoom(most=12, shared=12),
)
RUNNING = gauge(
    "taskgate_tasks_running",
    "Calls of tasks that are with an upstream now.",
    labels.UPSTREAM,
    room=ALONE,
)
DURATION = histogram(
    "taskgate_task_duration_seconds",
    "Creation of a task to its end.",
    _TASK_SECONDS,
    labels.UPSTREAM,
    labels.STATUS,
    room=SeriesRoom(most=3),
)
QUEUE_WAIT = histogram(
    "taskgate_task_queue_wait_seconds",
    "Creation of a task to its dispatch.",
    _WAIT_SECONDS,
    labels.UPSTREAM,
    room=ALONE,
)
INPUT_WAIT = histogram(
    "taskgate_task_input_wait_seconds",
    "How long a task waited for its host, each time that it was input_required.",
    _INPUT_SECONDS,
    labels.UPSTREAM,
    room=ALONE,
)
INPUTS = counter(
    "taskgate_task_input_requests_total",
    "What became of what servers asked the hosts of tasks.",
    labels.UPSTREAM,
    labels.INPUT,
    labels.SETTLED,
    room=SeriesRoom(most=4, shared=12),
)
RESULT_BYTES = histogram(
    "taskgate_task_result_bytes", "Size of a stored outcome.", _OUTCOME_BYTES, labels.UPSTREAM, room=ALONE
)
TTL = histogram(
    "taskgate_task_ttl_seconds", "Time to live granted to a task.", _TTL_SECONDS, labels.UPSTREAM, room=ALONE
)
ADJUSTMENTS = counter(
    "taskgate_ttl_adjustments_total", "Times to live other than what was asked for.", labels.UPSTREAM, labels.ADJUSTMENT
)
EXPIRATIONS = counter(
    "taskgate_task_expirations_total",
    "Times to live that ran out before the end of the task.",
    labels.UPSTREAM,
    labels.PHASE,
    room=beginning(("queued",), ("working",), ("input_required",)),
)
CANCELS = counter(
    "taskgate_task_cancel_requests_total", "Cancels that hosts asked for.", labels.UPSTREAM, labels.CANCEL
)
RECOVERIES = counter(
    "taskgate_task_recoveries_total",
    "Tasks taken over whose process was gone.",
    labels.UPSTREAM,
    labels.RECOVERY,
    room=beginning(("failed",), ("retried",)),
)
LATE_ANSWERS = counter(
    "taskgate_task_late_answers_total",
    "Answers dropped because their task had ended before.",
    labels.UPSTREAM,
    room=ALONE,
)
LEASES_LOST = counter(
    "taskgate_leases_lost_total",
    "What was held here and another process took over.",
    labels.LEASED,
    room=ALONE,
)
SHADOW_PROMOTIONS = counter(
    "taskgate_shadow_promotions_total",
    "Calls of which a rule in shadow would have made a task.",
    labels.UPSTREAM,
    room=ALONE,
)

# --- what hosts do with them -----------------------------------------------------------------------------------------

DELIVERY = histogram(
    "taskgate_task_delivery_delay_seconds",
    "End of a task to the first time that its owner got the outcome.",
    _DELIVERY_SECONDS,
    labels.UPSTREAM,
    room=ALONE,
)
UNDELIVERED = counter(
    "taskgate_tasks_undelivered_total",
    "Records removed though nobody ever got their outcome.",
    labels.UPSTREAM,
    labels.STATUS,
    room=beginning(("completed",), ("failed",), most=0),
)
PURGED = counter(
    "taskgate_tasks_purged_total", "Records removed after their time to live.", labels.STATUS, room=beginning(())
)
DENIALS = counter(
    "taskgate_task_access_denials_total",
    "Look-ups that found no task of the caller's.",
    labels.UPSTREAM,
    labels.METHOD,
    labels.DENIAL,
    room=SeriesRoom(begins=_DENIALS, most=1, shared=8),
)
POLLS = counter("taskgate_task_polls_total", "Looks of hosts at a task.", labels.UPSTREAM, labels.POLL)
POLLS_PER_TASK = histogram(
    "taskgate_task_polls_per_task",
    "How often a host looked at a task until it saw that it had ended.",
    _POLLS,
    labels.UPSTREAM,
    room=ALONE,
)
POLL_INTERVAL = gauge(
    "taskgate_poll_interval_seconds",
    "Interval between looks that the newest answer advised; absent before the first.",
    labels.UPSTREAM,
)

TASKS: Final = (
    STARTED, TRANSITIONS, FINISHED, RUNNING, DURATION, QUEUE_WAIT, INPUT_WAIT, INPUTS, RESULT_BYTES, TTL, ADJUSTMENTS,
    EXPIRATIONS, CANCELS, RECOVERIES, LATE_ANSWERS, LEASES_LOST, SHADOW_PROMOTIONS, DELIVERY, UNDELIVERED, PURGED,
    DENIALS, POLLS, POLLS_PER_TASK, POLL_INTERVAL,
)  # fmt: skip
