"""The native format of audit lines: `NativeRenderer` makes a document of an event.

Every line has all parts. The other formats are made of this document. It has no token and no id of
a task or session, and of arguments only what `LineOptions` allow. Documents are made on the thread
of a sink, or on the event loop.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import orjson

from taskgate.domain.record import TaskStatus
from taskgate.telemetry.auditlog.catalogue import VERSION
from taskgate.telemetry.auditlog.events import (
    AuditEvent,
    CallArguments,
    EventOrigin,
    LimitHit,
    RequestSummary,
    TaskSubject,
    summary_in,
)
from taskgate.telemetry.auditlog.formats.digests import digests_of
from taskgate.telemetry.auditlog.formats.redaction import (
    MAX_SENTENCE,
    printable,
    scrubbed,
    scrubbed_cached,
)
from taskgate.telemetry.auditlog.settings import LineOptions
from taskgate.telemetry.request_context import Caller, RequestContext
from taskgate.telemetry.tracing import Span

_MAX_DELEGATION: Final = 8
"""Actors of a delegation chain that a line shows, at most."""


def context_ref(key: str) -> str:
    """The reference of an auth context."""
    return f"c_{key}"


def actor_of(event: AuditEvent, *, full: bool) -> dict[str, Any] | None:
    """The caller, else the owner of the task; None when both are unknown.

    Without `full`, only the reference of the auth context, and the method of authentication.
    """
    caller = event.caller or (None if event.origin is None else event.origin.caller)
    if caller is not None:
        return actor_of_caller(caller, full=full)
    owner = None if event.subject is None or event.name in _OF_OTHERS else event.subject.owner
    return None if owner is None else {"ctx": context_ref(owner), **_NO_IDENTITY}


def actor_of_caller(caller: Caller, *, full: bool) -> dict[str, Any]:
    """The member `actor` of a caller."""
    identity = caller.identity
    if identity is None:
        return {"ctx": context_ref(caller.key), **_NO_IDENTITY, "method": "none"}
    if not full:
        return {"ctx": context_ref(caller.key), **_NO_IDENTITY, "method": identity.method}
    claims = identity.claims
    return {
        "ctx": context_ref(caller.key),
        "method": identity.method,
        "iss": printable(identity.issuer, MAX_SENTENCE),
        "sub": printable(identity.subject, MAX_SENTENCE),
        "client_id": printable(identity.client_id, MAX_SENTENCE),
        "tenant": printable(identity.tenant, MAX_SENTENCE),
        "jti": printable(claims.get("jti"), MAX_SENTENCE),
        "delegation": list(_delegation(claims)) if "act" in claims else [],
    }


def _delegation(claims: Mapping[str, Any]) -> Iterator[dict[str, str | None]]:
    """The actors for the subject (RFC 8693, section 4.1), the current one first."""
    for _ in range(_MAX_DELEGATION):
        acting = claims.get("act")
        if not isinstance(acting, Mapping):
            return
        yield {name: printable(acting.get(name), MAX_SENTENCE) for name in ("iss", "sub", "client_id")}
        claims = acting


_NO_IDENTITY: Final[dict[str, Any]] = {
    "method": None,
    "iss": None,
    "sub": None,
    "client_id": None,
    "tenant": None,
    "jti": None,
    "delegation": [],
}
_OF_OTHERS: Final = frozenset({"task.access_denied", "admin.request"})
"""Here the owner of the task is known, but is not the caller."""


MAX_ARGUMENTS_LENGTH: Final = 16 * 1024
"""Characters of arguments that a line shows in full; longer ones have only a digest."""
MAX_ARGUMENT_VALUES: Final = 1000
"""Values in them, about: a recursive path takes 10 µs for each, and no caller may keep the thread
busy."""


class NativeRenderer:
    """The maker of documents. `key` is the key of digests, `node` the name of this replica.

    Raises ValueError for an invalid path in `line_options.redact`.
    """

    def __init__(self, line_options: LineOptions, *, key: bytes, node: str) -> None:
        self._line_options = line_options
        self.digests = digests_of(key)
        self._node = node
        self.names_callers = line_options.identity == "full"
        self.shows_results = line_options.results != "none"
        self.only_digests = line_options.arguments == "hash"
        if line_options.arguments == "full":
            # It loads a library that nothing else needs.
            from taskgate.telemetry.auditlog.formats.field_redaction import parse_paths  # noqa: PLC0415

            self._redaction = parse_paths(line_options.redact)

    def document(self, event: AuditEvent) -> dict[str, Any]:
        """The document of an event, without `seq` and `prev`."""
        origin = event.origin
        summary = summary_in(origin)
        return {
            "v": VERSION,
            "time": time_text(event.time)[1:-1].decode(),
            "node": self._node,
            "event": event.name,
            "outcome": event.outcome,
            "reason": None if event.reason is None else printable(event.reason),
            "severity": event.severity,
            "actor": actor_of(event, full=self.names_callers),
            "mcp": _message(event, summary),
            "task": self._task(event, summary),
            "args": None if summary.arguments is None else self._arguments(summary.arguments),
            "http": None if origin is None else _http(origin),
            "limit": None if event.limit is None else _limit(event.limit),
            "trace": None if origin is None or origin.span is None else _trace(origin.span),
            "data": self.data(event.data, event.result),
        }

    def _task(self, event: AuditEvent, summary: RequestSummary) -> dict[str, Any] | None:
        subject = event.subject
        if subject is None:
            task = (event.origin and event.origin.task) or summary.task
            if task is None:
                return None
            subject = TaskSubject(task, None, None, None, None, None)
        return {
            "ref": self.digests.task(subject.id),
            "status": subject.status,
            "owner_ctx": None if subject.owner is None else context_ref(subject.owner),
            "ttl_ms": None if subject.ttl is None else subject.ttl // _MILLISECOND,
        }

    def _arguments(self, arguments: CallArguments) -> dict[str, Any]:
        written = arguments.encoded()
        keys = arguments.first_keys(written)
        names = None if keys is None else [scrubbed_cached(key) for key in keys]
        fields: dict[str, Any] = {"keys": names, "bytes": None, "hmac": None}
        if written is None:
            return {**fields, "omitted": "memory"}
        fields["bytes"] = len(written)
        if self._line_options.arguments == "keys":
            return fields
        fields["hmac"] = self.digests.arguments(written).decode()
        if self._line_options.arguments == "full":
            fields.update(self._full_arguments(str(written, "utf-8", "surrogatepass")))
        return fields

    def _full_arguments(self, text: str) -> dict[str, Any]:
        if len(text) > MAX_ARGUMENTS_LENGTH or sum(map(text.count, ",[{")) > MAX_ARGUMENT_VALUES:
            return {"omitted": "size"}
        try:
            return {"values": self._redaction.apply(orjson.loads(text))}
        except ValueError:
            # Unreadable arguments may contain what the paths must remove.
            return {"omitted": "unreadable"}

    def data(self, data: Mapping[str, Any] | None, result: str | None = None) -> dict[str, Any]:
        """The member `data`; `result` is the result that an event has to be hashed."""
        fields: dict[str, Any] = {}
        if data is not None:
            for name, value in data.items():
                # Written out for what nearly every line has.
                kind = type(value)
                if kind is float and -_LARGE < value < _LARGE:
                    fields[name] = round(value * 1e6) / 1e6
                else:
                    fields[name] = value if kind in _CLEAN else _cleaned(value)
            if "stated_reason" in fields:
                fields["stated_reason"] = scrubbed(data["stated_reason"], MAX_SENTENCE)
        if result is not None:
            fields["result"] = {**fields.get("result", {}), "hmac": self.digests.result(result)}
        if not self.shows_results:
            fields.pop("result", None)
        return fields


def _message(event: AuditEvent, summary: RequestSummary) -> dict[str, Any] | None:
    """The message and the upstream of an event; None without both."""
    origin, subject = event.origin, event.subject
    mount = event.mount or (subject and subject.mount) or (origin and origin.mount)
    if origin is None:
        if mount is None:
            return None
        return {
            **_NO_MESSAGE,
            "method": event.method,
            "upstream": mount,
            "tool": scrubbed_cached(subject and subject.tool),
        }
    request_id = summary.request_id
    return {
        "method": scrubbed_cached(event.method or summary.method),
        "protocol": scrubbed_cached(origin.revision),
        "request_id": None if request_id is None else scrubbed(str(request_id)),
        "upstream": mount,
        "tool": scrubbed_cached(summary.tool) or scrubbed_cached(subject and subject.tool),
        "client": None if origin.client is None else _client(*origin.client),
    }


@lru_cache(maxsize=256)
def _client(name: str | None, version: str | None) -> dict[str, str | None]:
    return {"name": scrubbed(name), "version": scrubbed(version)}


def _http(origin: EventOrigin | RequestContext) -> dict[str, Any]:
    path = origin.path
    return {
        "peer": origin.address or None,
        "request_id": origin.id or None,
        "verb": scrubbed_cached(origin.verb, 16),
        "path": scrubbed_cached(path.partition("?")[0]) if path else None,
        "status": origin.status,
        "user_agent": scrubbed_cached(origin.agent, MAX_SENTENCE),
    }


def _limit(limit: LimitHit) -> dict[str, Any]:
    return {"kind": limit.kind, "policy": limit.policy, "scope": limit.scope}


def _trace(span: Span) -> dict[str, str]:
    return {"trace_id": span.trace_id, "span_id": span.span_id}


def time_text(time: int) -> bytes:
    """RFC 3339 in UTC, as JSON, always with six digits after the point, so that lines sort by it."""
    seconds, microseconds = divmod(time, 1_000_000)
    return b'"%b.%06dZ"' % (_second_text(seconds), microseconds)


@lru_cache(maxsize=64)
def _second_text(seconds: int) -> bytes:
    """The part of a time before the point; thousands of events happen in one second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19].encode()


def _cleaned(value: Any) -> Any:
    """A value of `data`: texts without unprintable characters, numbers rounded."""
    if type(value) is float:
        return rounded(value)
    if isinstance(value, str):
        return printable(value, MAX_SENTENCE)
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    return value


def rounded(value: float) -> float:
    """`round(value, 6)`, but five times as fast for values below a million."""
    return round(value * 1e6) / 1e6 if -_LARGE < value < _LARGE else round(value, 6)


_LARGE: Final = 1e6
_CLEAN: Final = frozenset({TaskStatus, bool, int, type(None), dict})
"""The types of values of `data` that are shown as they are."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_MESSAGE: Final = {
    "method": None,
    "protocol": None,
    "request_id": None,
    "upstream": None,
    "tool": None,
    "client": None,
}
