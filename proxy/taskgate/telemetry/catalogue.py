"""The metric families that the gateway exports: one table, the other half of `docs/metrics.md`.

Names, kinds, meanings and buckets. What must not live here: the labels and their values (`labels`), and what counts.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from taskgate.telemetry import labels
from taskgate.telemetry.labels import Label


class Kind(StrEnum):
    """The types of families in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family. `name` is the whole name, suffix included; `buckets` are the bounds of a histogram but for +Inf.

    `starts` tells whether the series of a configured name is there from the start: 0 means that nothing happened yet.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    starts: bool = True


def _counter(name: str, meaning: str, *by: Label) -> Family:
    return Family(name=name, kind=Kind.COUNTER, meaning=meaning, labels=by)


def _gauge(name: str, meaning: str, *by: Label, starts: bool = True) -> Family:
    return Family(name=name, kind=Kind.GAUGE, meaning=meaning, labels=by, starts=starts)


def _histogram(name: str, meaning: str, buckets: tuple[float, ...], *by: Label) -> Family:
    return Family(name=name, kind=Kind.HISTOGRAM, meaning=meaning, labels=by, buckets=buckets)


# --- buckets: seconds and bytes --------------------------------------------------------------------------------------

# The HTTP conventions' own; a blocking call and a stream outlast their last bound, so two more follow.
_HTTP_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 60.0, 300.0)
# The MCP conventions' own; a server may take as long as its timeout allows, so three more follow on its side.
_HOST_SIDE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_SERVER_SIDE = (*_HOST_SIDE, 600.0, 1800.0, 3600.0)
_TASK_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0)
_TTL_SECONDS = (1.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 604800.0)
_WAIT_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0)
_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_OUTCOME_BYTES = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0)

# --- the process -----------------------------------------------------------------------------------------------------

BUILD = _gauge("taskgate_build_info", "What is running; always 1.", labels.VERSION, labels.REVISION, labels.PYTHON)
READY = _gauge("taskgate_ready", "1 if the gateway last said that it is ready, to a probe or at a scrape.")
DRAINING = _gauge("taskgate_draining", "1 from the moment the gateway begins to shut down.")
LAG = _histogram("taskgate_event_loop_lag_seconds", "How late a ticker of 250 ms came.", _LAG_SECONDS)
OVERFLOWS = _counter("taskgate_metrics_label_overflows_total", "Values that became `_OTHER`, by label.", labels.FOLDED)

CONFIG_LOADED = _gauge(
    "taskgate_config_last_reload_successful", "1 if the configuration was taken over when it was last read."
)
CONFIG_LOADED_AT = _gauge(
    "taskgate_config_last_reload_success_timestamp_seconds", "When that was last so; 0 before the first."
)
CONFIG_HASH = _gauge(
    "taskgate_config_hash", "A number of 48 bits that is the same for the same configuration in force."
)
CONFIG_RELOADS = _counter(
    "taskgate_config_reloads_total", "Times that the configuration was read again.", labels.RELOAD
)

# --- messages --------------------------------------------------------------------------------------------------------

HTTP = _histogram(
    "http_server_request_duration_seconds",
    "Requests of hosts, each to the end of its answer.",
    _HTTP_SECONDS,
    labels.ROUTE,
    labels.VERB,
    labels.CODE,
)
REJECTIONS = _counter("taskgate_http_rejections_total", "Requests refused before they were JSON-RPC.", labels.REJECTION)
STREAMS = _gauge("taskgate_streams", "Event streams open now.", labels.SIDE, labels.STREAM)
SERVED = _histogram(
    "mcp_server_operation_duration_seconds",
    "JSON-RPC requests of hosts.",
    _HOST_SIDE,
    labels.UPSTREAM,
    labels.METHOD,
    labels.ERROR,
)
CALLED = _histogram(
    "mcp_client_operation_duration_seconds",
    "JSON-RPC requests to upstreams.",
    _SERVER_SIDE,
    labels.UPSTREAM,
    labels.METHOD,
    labels.ERROR,
)
PROTOCOLS = _counter("taskgate_requests_by_protocol_total", "JSON-RPC requests of hosts, by revision.", labels.PROTOCOL)
TOOL_CALLS = _counter(
    "taskgate_tool_calls_total",
    "What became of calls of tools; `_OTHER` is a tool not listed.",
    labels.UPSTREAM,
    labels.TOOL,
    labels.DISPOSITION,
)
SESSIONS_LOST = _counter("taskgate_upstream_sessions_lost_total", "Sessions that an upstream ended.", labels.UPSTREAM)
JOINED = _counter(
    "taskgate_calls_joined_total", "Calls that were answered by an earlier one.", labels.UPSTREAM, labels.JOIN
)

# --- upstreams -------------------------------------------------------------------------------------------------------

UP = _gauge(
    "taskgate_upstream_up",
    "1 if the upstream is thought to be well; absent while nobody knows.",
    labels.UPSTREAM,
    starts=False,
)
CIRCUIT_OPEN = _gauge(
    "taskgate_upstream_circuit_open", "1 while the upstream is left alone, or is tried after that.", labels.UPSTREAM
)
HEALTH_CHECKS = _counter(
    "taskgate_upstream_health_checks_total", "Checks of an upstream's health.", labels.UPSTREAM, labels.RESULT
)
RETRIES = _counter(
    "taskgate_upstream_retries_total", "Further tries of what could not leave.", labels.UPSTREAM, labels.RETRY
)

# --- tasks -----------------------------------------------------------------------------------------------------------

STARTED = _counter("taskgate_tasks_started_total", "Tasks durably created.", labels.UPSTREAM)
TRANSITIONS = _counter(
    "taskgate_task_transitions_total", "Changes of a task's status.", labels.UPSTREAM, labels.FROM, labels.TO
)
FINISHED = _counter(
    "taskgate_tasks_finished_total", "Tasks that ended, and why.", labels.UPSTREAM, labels.STATUS, labels.ENDING
)
RUNNING = _gauge("taskgate_tasks_running", "Calls of tasks that this process holds upstream.", labels.UPSTREAM)
DURATION = _histogram(
    "taskgate_task_duration_seconds", "Creation of a task to its end.", _TASK_SECONDS, labels.UPSTREAM, labels.STATUS
)
QUEUE_WAIT = _histogram(
    "taskgate_task_queue_wait_seconds", "Creation of a task to its dispatch.", _WAIT_SECONDS, labels.UPSTREAM
)
RESULT_BYTES = _histogram("taskgate_task_result_bytes", "Size of a stored outcome.", _OUTCOME_BYTES, labels.UPSTREAM)
TTL = _histogram("taskgate_task_ttl_seconds", "Time to live granted to a task.", _TTL_SECONDS, labels.UPSTREAM)
ADJUSTMENTS = _counter(
    "taskgate_ttl_adjustments_total", "Times to live other than what was asked for.", labels.UPSTREAM, labels.ADJUSTMENT
)
EXPIRATIONS = _counter(
    "taskgate_task_expirations_total",
    "Times to live that ran out before the end of the task.",
    labels.UPSTREAM,
    labels.PHASE,
)
PURGED = _counter("taskgate_tasks_purged_total", "Records removed after their time to live.", labels.STATUS)
CANCELS = _counter(
    "taskgate_task_cancel_requests_total", "Cancels that hosts asked for.", labels.UPSTREAM, labels.CANCEL
)
RECOVERIES = _counter(
    "taskgate_task_recoveries_total", "Tasks of an earlier process taken over.", labels.UPSTREAM, labels.RECOVERY
)
DENIALS = _counter("taskgate_task_access_denials_total", "Look-ups that found no task.", labels.UPSTREAM, labels.METHOD)
LATE_ANSWERS = _counter(
    "taskgate_task_late_answers_total", "Answers dropped because their task had ended before.", labels.UPSTREAM
)
SHADOW_PROMOTIONS = _counter(
    "taskgate_shadow_promotions_total", "Calls of which a rule in shadow would have made a task.", labels.UPSTREAM
)
POLLS = _counter("taskgate_task_polls_total", "Looks of hosts at a task.", labels.UPSTREAM, labels.POLL)
POLL_INTERVAL = _gauge(
    "taskgate_poll_interval_seconds",
    "Interval between looks that the newest answer advised; absent before the first.",
    labels.UPSTREAM,
    starts=False,
)

# --- limits -----------------------------------------------------------------------------------------------------------

RATE_DECISIONS = _counter(
    "taskgate_rate_limit_decisions_total",
    "What rate policies said of requests.",
    labels.POLICY,
    labels.RATE_SCOPE,
    labels.DECISION,
)
IN_USE = _gauge(
    "taskgate_concurrency_in_use",
    "Calls in flight to an upstream; over all, unfinished tasks in the store.",
    labels.USE_SCOPE,
    labels.UPSTREAM,
)
LIMIT = _gauge(
    "taskgate_concurrency_limit",
    "The most that there may be of them; absent where there is no limit.",
    labels.USE_SCOPE,
    labels.UPSTREAM,
)
CAP_REJECTIONS = _counter(
    "taskgate_concurrency_rejections_total",
    "What a cap refused: too many tasks, bytes, sessions or streams.",
    labels.CAP,
    labels.CAP_SCOPE,
)
QUEUE_DEPTH = _gauge("taskgate_queue_depth", "Calls that wait for a turn at an upstream.", labels.UPSTREAM)
QUEUE_REJECTIONS = _counter(
    "taskgate_queue_rejections_total",
    "Calls that found no place to wait, or waited for too long.",
    labels.UPSTREAM,
    labels.NO_TURN,
)

# --- who may do what --------------------------------------------------------------------------------------------------

AUTH_REQUESTS = _counter(
    "taskgate_auth_requests_total",
    "Requests by what became of their token; `_OTHER` is no configured issuer's, or none.",
    labels.ISSUER,
    labels.JUDGEMENT,
    labels.WHY,
)
KEY_REFRESHES = _counter(
    "taskgate_jwks_refreshes_total", "Attempts to get an issuer's keys.", labels.ISSUER, labels.FETCH
)
KEYS = _gauge("taskgate_jwks_keys", "Keys of an issuer that are usable.", labels.ISSUER)
KEYS_FETCHED = _gauge(
    "taskgate_jwks_last_success_timestamp_seconds",
    "When an issuer's keys were last got; 0 before the first.",
    labels.ISSUER,
)
ACCESS_REFUSALS = _counter(
    "taskgate_access_refusals_total",
    "Operations refused by a rule, or by one in shadow.",
    labels.UPSTREAM,
    labels.METHOD,
    labels.MODE,
)
CREDENTIALS = _histogram(
    "taskgate_token_exchange_duration_seconds",
    "Tokens asked for, to show to an upstream.",
    _SERVER_SIDE,
    labels.UPSTREAM,
    labels.RESULT,
)
SECURITY_EVENTS = _counter("taskgate_security_events_total", "Signs of an attack.", labels.EVENT)
PENALIZED = _gauge("taskgate_penalized_contexts", "Callers that may look for no task for a while.")

# --- the store -------------------------------------------------------------------------------------------------------

STORE_OPERATIONS = _histogram(
    "taskgate_store_operation_duration_seconds",
    "Operations of the store.",
    _STORE_SECONDS,
    labels.BACKEND,
    labels.OPERATION,
    labels.RESULT,
)
STORE_UP = _gauge("taskgate_store_up", "1 if the last operation of the store worked.", labels.BACKEND)
STORE_SIZE = _gauge("taskgate_store_size_bytes", "Size of the store; absent where it is not known.", labels.BACKEND)
STORE_TASKS = _gauge("taskgate_store_tasks", "Records in the store.", labels.STATUS)

FAMILIES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Family))
"""Every family above."""
