"""The labels of the metric families, each with the closed set of its values.

No label holds an identity: no context, session, task, address or token. What a peer chooses (a method, a revision, an
error code) becomes a label only through a set below; everything else is `_OTHER`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from taskgate.domain.limits import CapScope
from taskgate.domain.rates import RateScope
from taskgate.domain.record import FaultReason, TaskStatus
from taskgate.domain.versions import Revision
from taskgate.errors import AuthReason, StoreFault
from taskgate.protocol.extensions import AUTHORIZATION, BUILT_IN, KNOWN_METHODS
from taskgate.protocol.vocabulary import METHODS_OF_HOSTS
from taskgate.telemetry.auditlog.catalogue import EVENTS, OUTCOMES

OTHER: Final = "_OTHER"
"""The label of every value outside its set, as the semantic conventions spell it."""

ALL: Final = "global"
"""The scope of what is used or allowed over all upstreams, of which none is named then."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Label:
    """A label, and its text for each value that an event may carry.

    `values` is None where only the running gateway knows them: its build, upstreams, issuers, rate policies, store and
    sinks, the tools it met, the tenants that its operator listed. A set may grow by names that the configuration has
    besides; see `registry`.
    """

    name: str
    values: Mapping[Any, str] | None = None


def _label(name: str, values: Iterable[str | int]) -> Label:
    return Label(name=name, values={value: str(value) for value in values})


VERSION, REVISION, PYTHON = Label(name="version"), Label(name="revision"), Label(name="python_version")
UPSTREAM: Final = Label(name="upstream")
ISSUER: Final = Label(name="issuer")
POLICY: Final = Label(name="policy")
SINK: Final = Label(name="sink")
TOOL: Final = Label(name="tool")
TIMED_TOOL: Final = Label(name="gen_ai_tool_name")
TENANT: Final = Label(name="tenant")
BACKEND: Final = Label(name="backend")

ROUTE = _label("http_route", ("mcp", "prm", "other"))
VERB = _label("http_request_method", ("POST", "GET", "DELETE", "OPTIONS", "HEAD"))
_CLIENT_FAULTS = (400, 401, 403, 404, 405, 406, 408, 413, 414, 415, 421, 429, 431)
_CODES = (200, 202, 204, *_CLIENT_FAULTS, 500, 501, 503, 505)
# Whoever left before is answered nothing.
CODE = Label(name="http_response_status_code", values={0: "", **{code: str(code) for code in _CODES}})
_REFUSED_MESSAGES = ("no_session", "session_not_found", "stream_not_found", "bad_version", "bad_json", "bad_message")
# Of the modern era, whose refusals have statuses of HTTP.
_REFUSED_REQUESTS = ("bad_meta", "missing_capability", "unknown_method", "task_support", "bad_verb")
_REFUSED_FRAMES = ("header_too_large", "body_too_large", "draining", "overload", "audit")
_REFUSED_HEADS = (
    "bad_host",
    "bad_origin",
    "unknown_path",
    "header_mismatch",
    "not_acceptable",
    "media_type",
)
_REFUSED_CALLERS = ("unauthenticated", "insufficient_scope", "jwks_unavailable")
# What has a status of its own: all of it where the operator wants that, a rate before authentication in any case.
_REFUSED_BY_LIMITS = ("rate", "concurrency", "queue", "bytes", "penalty")
_REFUSED_MEANINGS = (*_REFUSED_MESSAGES, *_REFUSED_REQUESTS, *_REFUSED_CALLERS, *_REFUSED_BY_LIMITS)
REJECTION = _label("reason", (*_REFUSED_FRAMES, *_REFUSED_HEADS, *_REFUSED_MEANINGS))
SIDE = _label("side", ("downstream", "upstream"))
STREAM = _label("kind", ("response", "get", "listen"))
METHOD = _label("mcp_method_name", sorted(METHODS_OF_HOSTS | KNOWN_METHODS))
PROTOCOL = Label(
    name="mcp_protocol_version", values={None: "", **{revision.value: revision.value for revision in Revision}}
)
_FAULTS = (
    "unreachable",
    "closed",
    "timeout",
    "refused",
    "redirect",
    "malformed",
    "too_large",
    "session_lost",
    "call_lost",
    "internal",
)
_STANDARD_CODES = (-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32020, -32021, -32022, -32042)
_ERRORS = ("tool_error", "cancelled", *_FAULTS, *map(str, _STANDARD_CODES), "-32800", "403", "429", "503")
ERROR = Label(name="error_type", values={None: "", **{error: error for error in _ERRORS}})
DISPOSITION = _label("disposition", ("task", "inline", "direct", "rejected"))
_STATUSES = [status.value for status in TaskStatus]
STATUS, FROM, TO = _label("status", _STATUSES), _label("from_status", _STATUSES), _label("to_status", _STATUSES)
ENDING = _label("reason", ("ok", "tool_error", "client", *(reason.value for reason in FaultReason)))
PHASE = _label("phase", ("queued", "working", "input_required"))
INPUT = _label("kind", ("elicitation", "sampling", "roots"))
SETTLED = _label("outcome", ("answered", "declined", "expired", "superseded"))
CANCEL = _label("outcome", ("propagated", "already_terminal"))
RECOVERY = _label("outcome", ("failed", "retried"))
LEASED = _label("kind", ("task",))
ADJUSTMENT = _label("action", ("clamped_max", "raised_min", "defaulted"))
DENIAL = _label("reason", ("context_mismatch", "not_found", "expired", "malformed_id"))
RESULT = Label(name="result", values={True: "ok", False: "error"})
JUDGEMENT = Label(name="result", values={True: "accepted", False: "rejected"})
_NOT_ACCEPTED = (*(reason.value for reason in AuthReason), "jwks_unavailable")
WHY = Label(name="reason", values={"ok": "", **{reason: reason for reason in _NOT_ACCEPTED}})
FETCH = _label("result", ("ok", "stale", "failed"))
MODE = Label(name="mode", values={False: "enforced", True: "shadow"})
_OF_CALLERS = ("enumeration_suspected", "cross_context_access", "excessive_polling")
_OF_REQUESTS = ("header_mismatch", "auth_bruteforce", "input_key_unknown")
SUSPICION = _label("type", (*_OF_CALLERS, *_OF_REQUESTS))
TOKEN_CACHE = Label(name="result", values={True: "hit", False: "miss"})
RATE_SCOPE = _label("scope", (scope.value for scope in RateScope))
DECISION = _label("decision", ("allowed", "rejected", "shadow", "fail_local", "fail_open"))
CAP = _label("policy", ("tasks", "bytes", "sessions", "streams", "waits"))
CAP_SCOPE = _label("scope", (scope.value for scope in CapScope))
USE_SCOPE = _label("scope", ("upstream", ALL))
NO_TURN = _label("reason", ("full", "timeout"))
POLL = _label("result", ("changed", "unchanged", "terminal", "early", "limited", "denied"))
RETRY = _label("reason", ("connect",))
RESTART = _label("reason", ("exit", "signal", "closed", "too_large", "nursery"))
RELOAD = _label("result", ("success", "invalid", "unchanged", "needs_restart"))
JOIN = _label("how", ("key", "retry"))
# `changed` is left out: it waits on purpose, so its duration tells nothing about the store.
_OF_TASKS = ("insert", "repeated", "load", "owner_of", "swap", "page", "renew", "lapsed", "purge")
_OF_SESSIONS = ("put", "find", "touch", "drop", "purge_sessions")
_OF_REPLICAS = ("judge", "beat", "restore")
OPERATION = _label("operation", (*_OF_TASKS, *_OF_SESSIONS, "census", "check", *_OF_REPLICAS))
EXTENSION = _label("extension", sorted(BUILT_IN.keys() | AUTHORIZATION))
FAULT = _label("fault", (fault.value for fault in StoreFault))

AUDIT_EVENT = _label("event", sorted(EVENTS))
AUDIT_OUTCOME = _label("outcome", OUTCOMES)
LOST_LINE = _label("reason", ("queue_full", "write_failed", "closed"))

_MET = {each.name for each in list(globals().values()) if isinstance(each, Label)}
FOLDED: Final = _label("label", sorted(_MET - {VERSION.name, REVISION.name, PYTHON.name, BACKEND.name}))
"""The labels that may have a value that becomes `_OTHER`."""
