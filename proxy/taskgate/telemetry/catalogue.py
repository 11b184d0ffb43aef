"""The metric families that the gateway exports: one table, the other half of `docs/metrics.md`.

Names, kinds, labels, buckets and the closed set of values of every label, and nothing that counts. No label holds an
identity: no context, session, task, address or token. What a peer chooses (a method, a revision, an error code) becomes
a label only through a set below; everything else is `_OTHER`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from taskgate.errors import AuthReason
from taskgate.mcp.versions import Revision
from taskgate.mcp.vocabulary import METHODS_OF_HOSTS
from taskgate.tasks.record import FaultReason, TaskStatus

OTHER: Final = "_OTHER"
"""The label of every value outside its set, as the semantic conventions spell it."""

MAX_TOOLS: Final = 50
"""How many tools of one upstream get a label of their own."""

ENUMERATION: Final = "enumeration_suspected"
"""The security event that many failed look-ups are."""


class Kind(StrEnum):
    """The types of families in use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A label, and its text for each value that a fact may carry.

    `values` is None where only the running gateway knows them: its build, upstreams, issuers and store, the tools it
    met.
    """

    name: str
    values: Mapping[Any, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family. `name` is the whole name, suffix included; `buckets` are the bounds of a histogram but for +Inf."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()


def _label(name: str, values: Iterable[str | int]) -> Label:
    return Label(name=name, values={value: str(value) for value in values})


def _counter(name: str, meaning: str, *labels: Label) -> Family:
    return Family(name=name, kind=Kind.COUNTER, meaning=meaning, labels=labels)


def _gauge(name: str, meaning: str, *labels: Label) -> Family:
    return Family(name=name, kind=Kind.GAUGE, meaning=meaning, labels=labels)


def _histogram(name: str, meaning: str, buckets: tuple[float, ...], *labels: Label) -> Family:
    return Family(name=name, kind=Kind.HISTOGRAM, meaning=meaning, labels=labels, buckets=buckets)


# --- labels --------------------------------------------------------------------------------------------------------

_VERSION, _REVISION, _PYTHON = Label(name="version"), Label(name="revision"), Label(name="python_version")
UPSTREAM: Final = Label(name="upstream")
ISSUER: Final = Label(name="issuer")
TOOL: Final = Label(name="tool")
BACKEND: Final = Label(name="backend")
FOLDED: Final = Label(name="label")

_ROUTE = _label("http_route", ("mcp", "other"))
_VERB = _label("http_request_method", ("POST", "GET", "DELETE", "OPTIONS", "HEAD"))
_CLIENT_FAULTS = (400, 401, 403, 404, 405, 406, 408, 413, 414, 415, 421, 429, 431)
_CODE = _label("http_response_status_code", (200, 202, 204, *_CLIENT_FAULTS, 500, 501, 503, 505))
_REFUSED_MESSAGES = ("no_session", "session_not_found", "stream_not_found", "bad_version", "bad_json", "bad_message")
# Of the stateless era, whose refusals have statuses of HTTP.
_REFUSED_REQUESTS = ("bad_meta", "missing_capability", "unknown_method", "task_support", "bad_verb")
_REFUSED_FRAMES = ("header_too_large", "body_too_large", "draining")
_REFUSED_HEADS = (
    "bad_host",
    "bad_origin",
    "unknown_path",
    "header_mismatch",
    "not_acceptable",
    "media_type",
)
_REFUSED_CALLERS = ("unauthenticated", "insufficient_scope", "jwks_unavailable")
_REJECTION = _label(
    "reason", (*_REFUSED_FRAMES, *_REFUSED_HEADS, *_REFUSED_MESSAGES, *_REFUSED_REQUESTS, *_REFUSED_CALLERS)
)
_SIDE = _label("side", ("downstream", "upstream"))
_STREAM = _label("kind", ("response", "get"))
_METHOD = _label("mcp_method_name", sorted(METHODS_OF_HOSTS))
_PROTOCOL = Label(
    name="mcp_protocol_version", values={None: "", **{revision.value: revision.value for revision in Revision}}
)
_FAULTS = ("unreachable", "closed", "timeout", "refused", "redirect", "malformed", "too_large", "session_lost")
_STANDARD_CODES = (-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32020, -32021, -32022, -32042)
_ERRORS = ("tool_error", "cancelled", *_FAULTS, *map(str, _STANDARD_CODES), "-32800", "403", "429", "503")
_ERROR = Label(name="error_type", values={None: "", **{error: error for error in _ERRORS}})
_DISPOSITION = _label("disposition", ("task", "direct", "rejected"))
_STATUSES = [status.value for status in TaskStatus]
_STATUS, _FROM, _TO = _label("status", _STATUSES), _label("from_status", _STATUSES), _label("to_status", _STATUSES)
_ENDING = _label("reason", ("ok", "tool_error", "client", *(reason.value for reason in FaultReason)))
_PHASE = _label("phase", ("working", "input_required"))
_CANCEL = _label("outcome", ("propagated", "already_terminal"))
_RECOVERY = _label("outcome", ("failed", "retried"))
_ADJUSTMENT = _label("action", ("clamped_max", "raised_min", "defaulted"))
_RESULT = Label(name="result", values={True: "ok", False: "error"})
_JUDGEMENT = Label(name="result", values={True: "accepted", False: "rejected"})
_NOT_ACCEPTED = (*(reason.value for reason in AuthReason), "jwks_unavailable")
_WHY = Label(name="reason", values={"ok": "", **{reason: reason for reason in _NOT_ACCEPTED}})
_FETCH = _label("result", ("ok", "stale", "failed"))
_MODE = Label(name="mode", values={False: "enforced", True: "shadow"})
_EVENT = _label("type", (ENUMERATION,))
# `changed` is left out: it waits on purpose, so its duration tells nothing about the store.
_OF_TASKS = ("insert", "load", "swap", "page", "renew", "lapsed", "purge")
_OF_SESSIONS = ("put", "find", "touch", "drop", "purge_sessions")
_OPERATION = _label("operation", (*_OF_TASKS, *_OF_SESSIONS, "census"))

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

BUILD = _gauge("taskgate_build_info", "What is running; always 1.", _VERSION, _REVISION, _PYTHON)
READY = _gauge("taskgate_ready", "1 if the gateway last said that it is ready, to a probe or at a scrape.")
DRAINING = _gauge("taskgate_draining", "1 from the moment the gateway begins to shut down.")
LAG = _histogram("taskgate_event_loop_lag_seconds", "How late a ticker of 250 ms came.", _LAG_SECONDS)
OVERFLOWS = _counter("taskgate_metrics_label_overflows_total", "Values that became `_OTHER`, by label.", FOLDED)

# --- messages --------------------------------------------------------------------------------------------------------

HTTP = _histogram(
    "http_server_request_duration_seconds",
    "Requests of hosts, each to the end of its answer.",
    _HTTP_SECONDS,
    _ROUTE,
    _VERB,
    _CODE,
)
REJECTIONS = _counter("taskgate_http_rejections_total", "Requests refused before they were JSON-RPC.", _REJECTION)
STREAMS = _gauge("taskgate_streams", "Event streams open now.", _SIDE, _STREAM)
SERVED = _histogram(
    "mcp_server_operation_duration_seconds", "JSON-RPC requests of hosts.", _HOST_SIDE, UPSTREAM, _METHOD, _ERROR
)
CALLED = _histogram(
    "mcp_client_operation_duration_seconds", "JSON-RPC requests to upstreams.", _SERVER_SIDE, UPSTREAM, _METHOD, _ERROR
)
PROTOCOLS = _counter("taskgate_requests_by_protocol_total", "JSON-RPC requests of hosts, by revision.", _PROTOCOL)
TOOL_CALLS = _counter(
    "taskgate_tool_calls_total",
    "What became of calls of tools; `_OTHER` is a tool not listed.",
    UPSTREAM,
    TOOL,
    _DISPOSITION,
)
SESSIONS_LOST = _counter("taskgate_upstream_sessions_lost_total", "Sessions that an upstream ended.", UPSTREAM)

# --- tasks -----------------------------------------------------------------------------------------------------------

STARTED = _counter("taskgate_tasks_started_total", "Tasks durably created.", UPSTREAM)
TRANSITIONS = _counter("taskgate_task_transitions_total", "Changes of a task's status.", UPSTREAM, _FROM, _TO)
FINISHED = _counter("taskgate_tasks_finished_total", "Tasks that ended, and why.", UPSTREAM, _STATUS, _ENDING)
RUNNING = _gauge("taskgate_tasks_running", "Calls of tasks that this process holds upstream.", UPSTREAM)
DURATION = _histogram(
    "taskgate_task_duration_seconds", "Creation of a task to its end.", _TASK_SECONDS, UPSTREAM, _STATUS
)
QUEUE_WAIT = _histogram(
    "taskgate_task_queue_wait_seconds", "Creation of a task to its dispatch.", _WAIT_SECONDS, UPSTREAM
)
RESULT_BYTES = _histogram("taskgate_task_result_bytes", "Size of a stored outcome.", _OUTCOME_BYTES, UPSTREAM)
TTL = _histogram("taskgate_task_ttl_seconds", "Time to live granted to a task.", _TTL_SECONDS, UPSTREAM)
ADJUSTMENTS = _counter(
    "taskgate_ttl_adjustments_total", "Times to live other than what was asked for.", UPSTREAM, _ADJUSTMENT
)
EXPIRATIONS = _counter(
    "taskgate_task_expirations_total", "Times to live that ran out before the end of the task.", UPSTREAM, _PHASE
)
PURGED = _counter("taskgate_tasks_purged_total", "Records removed after their time to live.", _STATUS)
CANCELS = _counter("taskgate_task_cancel_requests_total", "Cancels that hosts asked for.", UPSTREAM, _CANCEL)
RECOVERIES = _counter("taskgate_task_recoveries_total", "Tasks of an earlier process taken over.", UPSTREAM, _RECOVERY)
DENIALS = _counter("taskgate_task_access_denials_total", "Look-ups that found no task.", UPSTREAM, _METHOD)
LATE_ANSWERS = _counter(
    "taskgate_task_late_answers_total", "Answers dropped because their task had ended before.", UPSTREAM
)

# --- who may do what --------------------------------------------------------------------------------------------------

AUTH_REQUESTS = _counter(
    "taskgate_auth_requests_total",
    "Requests by what became of their token; `_OTHER` is no configured issuer's, or none.",
    ISSUER,
    _JUDGEMENT,
    _WHY,
)
KEY_REFRESHES = _counter("taskgate_jwks_refreshes_total", "Attempts to get an issuer's keys.", ISSUER, _FETCH)
KEYS = _gauge("taskgate_jwks_keys", "Keys of an issuer that are usable.", ISSUER)
KEYS_FETCHED = _gauge(
    "taskgate_jwks_last_success_timestamp_seconds", "When an issuer's keys were last got; 0 before the first.", ISSUER
)
ACCESS_REFUSALS = _counter(
    "taskgate_access_refusals_total", "Operations refused by a rule, or by one in shadow.", UPSTREAM, _METHOD, _MODE
)
CREDENTIALS = _histogram(
    "taskgate_token_exchange_duration_seconds",
    "Tokens asked for, to show to an upstream.",
    _SERVER_SIDE,
    UPSTREAM,
    _RESULT,
)
SECURITY_EVENTS = _counter("taskgate_security_events_total", "Signs of an attack.", _EVENT)
PENALIZED = _gauge("taskgate_penalized_contexts", "Callers that may look for no task for a while.")

# --- the store -------------------------------------------------------------------------------------------------------

STORE_OPERATIONS = _histogram(
    "taskgate_store_operation_duration_seconds",
    "Operations of the store.",
    _STORE_SECONDS,
    BACKEND,
    _OPERATION,
    _RESULT,
)
STORE_UP = _gauge("taskgate_store_up", "1 if the last operation of the store worked.", BACKEND)
STORE_SIZE = _gauge("taskgate_store_size_bytes", "Size of the store; absent where it is not known.", BACKEND)
STORE_TASKS = _gauge("taskgate_store_tasks", "Records in the store.", _STATUS)

FAMILIES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Family))
"""Every family above."""
