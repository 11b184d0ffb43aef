"""The labels of metric families, and the closed set of values of each.

A `Label` has a fixed set of values, or one that only the running gateway knows: configured names,
tools and tenants. A `LabelSet` maps the values of events to label texts. Any value outside of its
set becomes `_OTHER`, so that methods, revisions or error codes that peers invent make no series and
are not remembered. No label holds an identity: no context, session, task, address or token.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from taskgate.domain.limits import CapScope
from taskgate.domain.rates import RateScope
from taskgate.domain.record import FaultReason, TaskStatus
from taskgate.domain.versions import Revision
from taskgate.errors import AuthReason, StoreFault
from taskgate.protocol.extensions import AUTHORIZATION, BUILT_IN, KNOWN_METHODS
from taskgate.protocol.vocabulary import METHODS_OF_HOSTS
from taskgate.telemetry import request_context
from taskgate.telemetry.auditlog.catalogue import EVENTS, OUTCOMES
from taskgate.telemetry.metrics.settings import MetricsSettings
from taskgate.telemetry.upstream_condition import UpstreamState

OTHER: Final = "_OTHER"
"""The text of every value outside of its set, as in the semantic conventions."""

ALL: Final = "global"
"""The `scope` of limits over all upstreams; such a series names no upstream."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Label:
    """A label, with its text for each value that an event may carry.

    `values` is None if only the running gateway knows them. The configuration may add names to a
    fixed set, as `registry` does for extensions and their methods.
    """

    name: str
    values: Mapping[Any, str] | None = None


def _label(name: str, values: Iterable[str | int]) -> Label:
    return Label(name=name, values={value: str(value) for value in values})


# --- the labels ------------------------------------------------------------------------------------------------------

VERSION, REVISION, PYTHON = Label(name="version"), Label(name="revision"), Label(name="python_version")
UPSTREAM: Final = Label(name="upstream")
ISSUER: Final = Label(name="issuer")
POLICY: Final = Label(name="policy")
SINK: Final = Label(name="sink")
TOOL: Final = Label(name="tool")
HISTOGRAM_TOOL: Final = Label(name="gen_ai_tool_name")
TENANT: Final = Label(name="tenant")
BACKEND: Final = Label(name="backend")

ROUTE = _label("http_route", ("mcp", "prm", "other"))
HTTP_METHOD = _label("http_request_method", ("POST", "GET", "DELETE", "OPTIONS", "HEAD"))
_CLIENT_ERRORS = (400, 401, 403, 404, 405, 406, 408, 413, 414, 415, 421, 429, 431)
_CODES = (200, 202, 204, *_CLIENT_ERRORS, 500, 501, 503, 505)
# 0 where no answer was sent: the host had disconnected.
STATUS_CODE = Label(name="http_response_status_code", values={0: "", **{code: str(code) for code in _CODES}})
_REFUSED_MESSAGES = ("no_session", "session_not_found", "stream_not_found", "bad_version", "bad_json", "bad_message")
# The modern era refuses these with an HTTP status.
_REFUSED_REQUESTS = ("bad_meta", "missing_capability", "unknown_method", "task_support", "bad_verb")
_REFUSED_FRAMES = ("header_too_large", "body_too_large", "draining", "overload", "audit")
_REFUSED_HEADS = (
    "bad_host",
    "bad_origin",
    "bad_client",
    "unknown_path",
    "header_mismatch",
    "not_acceptable",
    "media_type",
)
_REFUSED_CALLERS = ("unauthenticated", "insufficient_scope", "jwks_unavailable")
# Refused with an HTTP status of their own: a rate before authentication, the others if configured so.
_REFUSED_BY_LIMITS = ("rate", "concurrency", "queue", "bytes", "penalty")
_REFUSED_MEANINGS = (*_REFUSED_MESSAGES, *_REFUSED_REQUESTS, *_REFUSED_CALLERS, *_REFUSED_BY_LIMITS)
REJECTION = _label("reason", (*_REFUSED_FRAMES, *_REFUSED_HEADS, *_REFUSED_MEANINGS))
SIDE = _label("side", ("downstream", "upstream"))
STREAM_KIND = _label("kind", ("response", "get", "listen"))
METHOD = _label("mcp_method_name", sorted(METHODS_OF_HOSTS | KNOWN_METHODS))
PROTOCOL = Label(
    name="mcp_protocol_version", values={None: "", **{revision.value: revision.value for revision in Revision}}
)
_FAILURES = (
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
_ERRORS = ("tool_error", "cancelled", *_FAILURES, *map(str, _STANDARD_CODES), "-32800", "403", "429", "503")
ERROR = Label(name="error_type", values={None: "", **{error: error for error in _ERRORS}})
DISPOSITION = _label("disposition", ("task", "handoff", "inline", "direct", "rejected"))
_STATUSES = [status.value for status in TaskStatus]
STATUS, FROM_STATUS, TO_STATUS = (
    _label("status", _STATUSES),
    _label("from_status", _STATUSES),
    _label("to_status", _STATUSES),
)
FINISH_REASON = _label("reason", ("ok", "tool_error", "client", "operator", *(reason.value for reason in FaultReason)))
PHASE = _label("phase", ("queued", "working", "input_required"))
INPUT_KIND = _label("kind", ("elicitation", "sampling", "roots"))
INPUT_OUTCOME = _label("outcome", ("answered", "declined", "expired", "superseded"))
CANCEL_OUTCOME = _label("outcome", ("propagated", "already_terminal"))
RECOVERY_OUTCOME = _label("outcome", ("failed", "retried"))
LEASE_KIND = _label("kind", ("task",))
TTL_ADJUSTMENT = _label("action", ("clamped_max", "raised_min", "defaulted"))
DENIAL = _label("reason", ("context_mismatch", "not_found", "expired", "malformed_id"))
UPSTREAM_STATE = _label("state", tuple(UpstreamState))
RESULT = Label(name="result", values={True: "ok", False: "error"})
TOKEN_RESULT = Label(name="result", values={True: "accepted", False: "rejected"})
_TOKEN_REFUSALS = (*(reason.value for reason in AuthReason), "jwks_unavailable")
TOKEN_REASON = Label(name="reason", values={"ok": "", **{reason: reason for reason in _TOKEN_REFUSALS}})
KEY_FETCH_RESULT = _label("result", ("ok", "stale", "failed"))
RULE_MODE = Label(name="mode", values={False: "enforced", True: "shadow"})
_CALLER_SUSPICIONS = ("enumeration_suspected", "cross_context_access", "excessive_polling")
_REQUEST_SUSPICIONS = ("header_mismatch", "auth_bruteforce", "input_key_unknown")
SUSPICION = _label("type", (*_CALLER_SUSPICIONS, *_REQUEST_SUSPICIONS))
TOKEN_CACHE_RESULT = Label(name="result", values={True: "hit", False: "miss"})
RATE_SCOPE = _label("scope", (scope.value for scope in RateScope))
RATE_DECISION = _label("decision", ("allowed", "rejected", "shadow", "fail_local", "fail_open", "delayed"))
CAP = _label("policy", ("tasks", "bytes", "sessions", "streams", "waits"))
CAP_SCOPE = _label("scope", (scope.value for scope in CapScope))
CONCURRENCY_SCOPE = _label("scope", ("upstream", ALL))
QUEUE_REFUSAL = _label("reason", ("full", "timeout"))
POLL_RESULT = _label("result", ("changed", "unchanged", "terminal", "early", "limited", "denied"))
RETRY_REASON = _label("reason", ("connect",))
RESTART_CAUSE = _label("reason", ("exit", "signal", "closed", "too_large", "nursery"))
RELOAD_RESULT = _label("result", ("success", "invalid", "unchanged", "needs_restart"))
COALESCED_BY = _label("how", ("key", "retry"))
# Without `changed`: it waits on purpose, so its duration says nothing about the store.
_TASK_OPERATIONS = ("insert", "repeated", "load", "owner_of", "swap", "page", "renew", "lapsed", "purge")
_SESSION_OPERATIONS = ("put", "find", "touch", "drop", "purge_sessions")
_REPLICA_OPERATIONS = ("judge", "beat", "restore")
STORE_OPERATION = _label(
    "operation", (*_TASK_OPERATIONS, *_SESSION_OPERATIONS, "census", "check", *_REPLICA_OPERATIONS)
)
EXTENSION = _label("extension", sorted(BUILT_IN.keys() | AUTHORIZATION))
STORE_FAULT = _label("fault", (fault.value for fault in StoreFault))

AUDIT_EVENT = _label("event", sorted(EVENTS))
AUDIT_OUTCOME = _label("outcome", OUTCOMES)
DROP_REASON = _label("reason", ("queue_full", "write_failed", "closed"))

_NAMES = {each.name for each in list(globals().values()) if isinstance(each, Label)}
LABEL: Final = _label("label", sorted(_NAMES - {VERSION.name, REVISION.name, PYTHON.name, BACKEND.name}))
"""The names of the labels of which a value may become `_OTHER`."""


# --- values while the gateway runs -----------------------------------------------------------------------------------

OnOverflow = Callable[[str], None]
"""A callback with the name of a label of which a value became `_OTHER`."""

_MAX_TOOL_NAME: Final = 128
"""Characters of a tool name in a label: a longer one would only make each scrape longer."""


class LabelSet:
    """The values of one label of one family.

    `texts` has the label text of each valid value. If it is None, the gateway alone chooses the
    values, so any is valid. `gone` are valid values that are not configured any more. Both may
    change from outside when the configuration does. `on_overflow` is called at each invalid value.
    """

    def __init__(
        self, name: str, texts: Mapping[Any, str] | None, gone: Collection[Any], on_overflow: OnOverflow
    ) -> None:
        self._name = name
        self._texts = texts
        self._on_overflow = on_overflow
        self.gone = gone

    def text(self, value: Any) -> str:
        """The label text of a value; for an invalid one `_OTHER`, after calling `on_overflow`.

        A value that is gone still has its text, because its counters stay.
        """
        if self._texts is None:
            return str(value)
        text = self._texts.get(value)
        if text is None:
            self._on_overflow(self._name)
            return OTHER
        return text

    def is_current(self, value: Any) -> bool:
        """Whether a value is valid and not gone."""
        return value not in self.gone and (self._texts is None or value in self._texts)


class ConfiguredValues:
    """The values of a label that the configuration names, beside the `fixed` ones.

    `texts` has all values that were configured since the start. `gone` are those of them that are
    not configured now. `LabelSet`s hold both collections, so they are changed and never replaced.
    """

    def __init__(self, fixed: Mapping[Any, str]) -> None:
        self._fixed = frozenset(fixed)
        self.texts: dict[Any, str] = dict(fixed)
        self.gone: set[Any] = set()

    def adopt(self, texts: Mapping[Any, str]) -> None:
        """Make these the configured values; earlier ones are gone, and may return later."""
        self.texts.update(texts)
        self.gone.clear()
        self.gone.update(self.texts.keys() - texts.keys() - self._fixed)

    def configured(self) -> list[Any]:
        """The values that are configured now, without the fixed ones."""
        return [value for value in self.texts if value not in self.gone and value not in self._fixed]


class ToolLabels:
    """The label texts of tools: the first `max_tools` that are called at each mount have their own.

    A tool keeps its text until `adopt` lowers `max_tools`. `mounts` has the mounts of the
    configuration; it may change from outside. `has_histograms` is whether histograms have a label
    for tools.
    """

    def __init__(self, mounts: Container[str], on_overflow: OnOverflow) -> None:
        self._mounts = mounts
        self._on_overflow = on_overflow
        self._settings = MetricsSettings()
        self.has_histograms = self._settings.tool_histograms
        self._names: dict[str, set[str]] = {}

    def adopt(self, settings: MetricsSettings) -> None:
        """Use these settings; with a smaller `max_tools`, all tools start anew."""
        if settings.max_tools < self._settings.max_tools:
            self._names.clear()
        self._settings, self.has_histograms = settings, settings.tool_histograms

    def text(self, mount: str, tool: str | None, times: int = 1) -> str:
        """The text for counters, used so many times; it gives the tool a place of its own if one is free.

        `tool` is None unless the server listed it: then the text is `_OTHER`. A tool beyond
        `max_tools`, or with an unfit name, is `_OTHER` too, and counts as an overflow each time. Without the
        label for tools the text is empty.
        """
        if tool is None:
            known = OTHER
        elif tool in self._names.get(mount, ()):
            known = tool
        else:
            known = self._admit(mount, tool, times)
        return known if self._settings.tool_label else ""

    def histogram_text(self, mount: str, tool: str) -> str:
        """The text for histograms: that of a tool which `text` has seen, else `_OTHER`."""
        return tool if tool in self._names.get(mount, ()) else OTHER

    def _admit(self, mount: str, tool: str, times: int) -> str:
        """The text of a tool without a place; takes a place for it if one is free."""
        if not (self._settings.tool_label or self._settings.tool_histograms):
            return ""
        if mount not in self._mounts:
            return OTHER
        names = self._names.setdefault(mount, set())
        if len(names) >= self._settings.max_tools or len(tool) > _MAX_TOOL_NAME or not tool.isprintable():
            for _ in range(times):
                self._on_overflow(TOOL.name)
            return OTHER
        names.add(tool)
        return tool


class TenantLabels:
    """The label texts of tenants: those in `listed`, which the operator chose, have their own.

    `listed` is None by default: then the text is empty, and recorders need not ask for it.
    """

    def __init__(self) -> None:
        self.listed: frozenset[str] | None = None

    def adopt(self, settings: MetricsSettings) -> None:
        """Use the list of these settings."""
        self.listed = settings.tenants

    def text(self) -> str:
        """The text for the caller of the current request; empty without tenant or without a list.

        A tenant that is not listed is `_OTHER`, but no overflow: the operator chose it so.
        """
        if self.listed is None or (here := request_context.current()) is None or here.caller is None:
            return ""
        identity = here.caller.identity
        if identity is None or identity.tenant is None:
            return ""
        return identity.tenant if identity.tenant in self.listed else OTHER
