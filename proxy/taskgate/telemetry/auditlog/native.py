"""A line of the audit log in our own words: from an event to a document of which every line has all parts.

Runs where lines are made. What must not live here: other formats, which are made of this document, and what ties
lines together. What holds: no token, no id of a task or session, and of arguments what `telling` allows.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal

import orjson

from taskgate.telemetry.auditlog.actors import actor, context
from taskgate.telemetry.auditlog.catalogue import VERSION
from taskgate.telemetry.auditlog.digests import Digests, encoded
from taskgate.telemetry.auditlog.events import (
    Arguments,
    AuditEvent,
    EventOrigin,
    Limit,
    RequestSummary,
    TaskSubject,
    asked_in,
)
from taskgate.telemetry.auditlog.redaction import FieldRedaction, parse
from taskgate.telemetry.auditlog.texts import TEXT, heard, recurring, shown
from taskgate.telemetry.request_context import RequestContext
from taskgate.telemetry.tracing import Span

MOST_SHOWN: Final = 16 * 1024
"""Letters of arguments that are shown in full; of longer ones there is the digest alone."""
MOST_VALUES: Final = 1000
"""Values in them, about: paths that look everywhere take 10 µs for each, and nobody may keep the thread busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineOptions:
    """How much lines tell, and in which words.

    `identity` is whether callers are named; `arguments` and `results` how much is told of those. `redact` are JSONPaths
    of what is taken out where arguments are told in full.
    """

    format: Literal["native", "ocsf", "ecs"] = "native"
    identity: Literal["full", "pseudonymous"] = "full"
    arguments: Literal["none", "keys", "hash", "full"] = "hash"
    results: Literal["none", "size", "hash"] = "size"
    redact: tuple[str, ...] = ("$..password", "$..token", "$..secret", "$..authorization")


class Native:
    """Makes documents. `key` is what digests are keyed with, `node` the name of this gateway among several.

    Raises ValueError where `telling` has a path that is none.
    """

    def __init__(self, telling: LineOptions, *, key: bytes, node: str) -> None:
        self._telling = telling
        self.digests = Digests(key)
        self._node = node
        self.names_callers = telling.identity == "full"
        self.shows_results = telling.results != "none"
        self.only_digests = telling.arguments == "hash"
        self._redaction: FieldRedaction = parse(telling.redact)

    def document(self, event: AuditEvent) -> dict[str, Any]:
        """Everything that is told of an event; what ties it to other lines is not in it yet."""
        origin = event.origin
        asked = asked_in(origin)
        return {
            "v": VERSION,
            "time": _written(event.time),
            "node": self._node,
            "event": event.name,
            "outcome": event.outcome,
            "reason": None if event.reason is None else shown(event.reason),
            "severity": event.severity,
            "actor": actor(event, full=self.names_callers),
            "mcp": _message(event, asked),
            "task": self._task(event, asked),
            "args": None if asked.arguments is None else self._arguments(asked.arguments),
            "http": None if origin is None else _request(origin),
            "limit": None if event.limit is None else _limit(event.limit),
            "trace": None if origin is None or origin.span is None else _trace(origin.span),
            "data": self._facts(event),
        }

    def _task(self, event: AuditEvent, asked: RequestSummary) -> dict[str, Any] | None:
        subject = event.subject
        if subject is None:
            task = (event.origin and event.origin.task) or asked.task
            if task is None:
                return None
            subject = TaskSubject(task, None, None, None, None, None)
        return {
            "ref": self.task_ref(subject.id),
            "status": subject.status,
            "owner_ctx": None if subject.owner is None else context(subject.owner),
            "ttl_ms": None if subject.ttl is None else subject.ttl // _MILLISECOND,
        }

    def task_ref(self, id: str) -> str:
        """What stands for the id of a task."""
        return self.digests.task(id)

    def _arguments(self, place: Arguments) -> dict[str, Any]:
        keys = place.first_keys()
        names = None if keys is None else [recurring(key) for key in keys]
        told: dict[str, Any] = {"keys": names, "bytes": None, "hmac": None}
        if place.text is None:
            return {**told, "omitted": "memory"}
        text = place.text[place.start : place.end]
        told["bytes"] = _size(text)
        if self._telling.arguments == "keys":
            return told
        told["hmac"] = self.digests.arguments(encoded(text)).decode()
        if self._telling.arguments == "full":
            told.update(self._in_full(text))
        return told

    def _in_full(self, text: str) -> dict[str, Any]:
        if len(text) > MOST_SHOWN or sum(map(text.count, ",[{")) > MOST_VALUES:
            return {"omitted": "size"}
        try:
            return {"values": self._redaction.applied(orjson.loads(text))}
        except ValueError:
            # What cannot be read as the paths want it could hold what they are to take out.
            return {"omitted": "unreadable"}

    def _facts(self, event: AuditEvent) -> dict[str, Any]:
        told = {} if event.data is None else {name: plain(value) for name, value in event.data.items()}
        if "stated_reason" in told:
            told["stated_reason"] = heard((event.data or {})["stated_reason"], TEXT)
        if event.result is not None:
            told["result"] = {**told.get("result", {}), "hmac": self.digests.result(event.result)}
        if not self.shows_results:
            told.pop("result", None)
        return told


def _message(event: AuditEvent, asked: RequestSummary) -> dict[str, Any] | None:
    """Which message it was about, and at which server; None where it was about none."""
    origin, subject = event.origin, event.subject
    mount = event.mount or (subject and subject.mount) or (origin and origin.mount)
    if origin is None:
        if mount is None:
            return None
        return {**_NO_MESSAGE, "method": event.method, "upstream": mount, "tool": recurring(subject and subject.tool)}
    request_id = asked.request_id
    return {
        "method": recurring(event.method or asked.method),
        "protocol": recurring(origin.revision),
        "request_id": None if request_id is None else heard(str(request_id)),
        "upstream": mount,
        "tool": recurring(asked.tool) or recurring(subject and subject.tool),
        "client": None if origin.client is None else _client(*origin.client),
    }


@lru_cache(maxsize=256)
def _client(name: str | None, version: str | None) -> dict[str, str | None]:
    return {"name": heard(name), "version": heard(version)}


def _request(origin: EventOrigin | RequestContext) -> dict[str, Any]:
    path = origin.path
    return {
        "peer": origin.address or None,
        "request_id": origin.id or None,
        "verb": recurring(origin.verb, 16),
        "path": recurring(path.partition("?")[0]) if path else None,
        "status": origin.status,
        "user_agent": recurring(origin.agent, TEXT),
    }


def _limit(limit: Limit) -> dict[str, Any]:
    return {"kind": limit.kind, "policy": limit.policy, "scope": limit.scope}


def _trace(span: Span) -> dict[str, str]:
    return {"trace_id": span.trace_id, "span_id": span.span_id}


def _written(time: datetime) -> str:
    """RFC 3339 in UTC, always with six digits after the point, so that lines sort by it."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    text = orjson.dumps(time, option=orjson.OPT_UTC_Z)[1:-1].decode()
    return text if time.microsecond else f"{text[:-1]}.000000Z"


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(encoded(text))


def plain(value: Any) -> Any:
    """A value of a fact as it may be told: texts cleaned, the rest as it is."""
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, str):
        return shown(value, TEXT)
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def rounded(value: float) -> float:
    """To six digits after the point, as by `round(value, 6)`, but what is not large in a fifth of the time."""
    return round(value * 1e6) / 1e6 if -_LARGE < value < _LARGE else round(value, 6)


_LARGE: Final = 1e6
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_MESSAGE: Final = {
    "method": None,
    "protocol": None,
    "request_id": None,
    "upstream": None,
    "tool": None,
    "client": None,
}
