"""Templates of native lines: `LineTemplates` writes lines of common requests and tasks without a document.

Most requests and tasks repeat an earlier one: the same host, method and tool. The native document of
the first becomes a template with placeholders for what differs, such as time, caller and digests. So
a line has the same bytes as its document would, and only `native` decides what lines contain.

`ChainWriter` asks for the line of each event, through `Renderer`, and renders a document if there is
none. A template is found by everything that is constant in its lines (`key`). All else that can vary
must have a placeholder, or the event must have no template.
"""

from collections.abc import Callable
from datetime import UTC
from typing import Any, Final

import orjson

from taskgate.jsontext.spans import Member
from taskgate.protocol.messages import Request
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.telemetry.auditlog.events import TASK_METHODS, UNREAD, AuditEvent, EventOrigin, text_of
from taskgate.telemetry.auditlog.formats.digests import encoded
from taskgate.telemetry.auditlog.formats.native import NativeRenderer, actor_of, context_ref, rounded
from taskgate.telemetry.auditlog.formats.redaction import scrubbed
from taskgate.telemetry.request_context import Caller, CallerIdentity, RequestContext

MAX_TEMPLATES: Final = 512
"""Templates kept at most, and actors; when there are more, all are dropped."""


class LineTemplates:
    """The writer of lines that equal, byte for byte, the canonical form of the native document.

    `_templates` are found by the key in `line`. `_actors` are the rendered callers, each with its
    identity. They are found by `Caller.key` and the `id` of the identity, since the same caller with
    another token has other claims. Threads may share the object: at worst a template is made twice.
    """

    def __init__(self, native: NativeRenderer) -> None:
        self._native = native
        self._templates: dict[tuple[object, ...], bytes] = {}
        self._actors: dict[tuple[str, int], tuple[CallerIdentity | None, bytes]] = {}

    def line(self, event: AuditEvent, seq: int, prev: bytes) -> bytes | None:
        """The line with these `seq` and `prev` (JSON text).

        None for an event that needs a document. A template serves events of tasks (`_task_line`), and
        the last event of a request that fulfils all of these:

        - it is one JSON-RPC request with a short message, and was not refused. Else `origin` is no
          RequestContext (`RequestMapper`), `parts` is set, or `message` is no Request;
        - it is not traced (`span`), and `data` has its duration (`seconds`);
        - its line shows no more of arguments than names, size and digest (`only_digests`).

        `data` of such an event has `seconds`, perhaps `result` with `bytes`, and nothing else.
        """
        request_context, data, time = event.origin, event.data, event.time
        if type(request_context) is not RequestContext:
            return self._task_line(event, seq, prev)
        if data is None or request_context.span is not None or request_context.parts:
            return None
        # A time in a whole second is written otherwise by orjson: `native` adds the zeros.
        message, native = request_context.message, self._native
        if type(message) is not Request or "seconds" not in data or time.tzinfo is not UTC or not time.microsecond:
            return None
        # Every request has a line: a Python call would cost as much as most of these steps. So fields
        # of a Member are read by number: 0 is its value, 2 and 3 are its start and end in the text.
        id, method, params = message.id, message.method, message.params
        tool, arguments, task = None, None, request_context.task
        keys: tuple[str, ...] | bool | None = _NO_ARGUMENTS
        if method == TOOLS_CALL:
            name_member, arguments = params.get("name"), params.get("arguments")
            tool = name_member[0] if name_member is not None and type(name_member[0]) is str else None
            if arguments is not None:
                # Another type than Member is for large arguments, whose value was not parsed.
                if not native.only_digests or type(arguments) is not Member:
                    return None
                keys = tuple(arguments[0]) if type(arguments[0]) is dict else None
        elif task is None and method in TASK_METHODS:
            task = text_of(params.get("taskId"))
        result = data.get("result") if native.shows_results else None
        key = (
            event.name,
            event.outcome,
            event.reason,
            request_context.address,
            request_context.verb,
            request_context.path,
            request_context.agent,
            request_context.status,
            request_context.mount,
            request_context.revision,
            request_context.client,
            method,
            tool,
            keys,
            task is None,
            result is None,
        )
        template = self._templates.get(key) or self._new(key, event, _answer_places)
        # The values in the order of their placeholders in the sorted line: actor, args.bytes,
        # args.hmac, data.result.bytes, data.seconds, http.request_id, mcp.request_id, prev, seq,
        # task.ref, time.
        values: list[Any] = [self._actor_of(event, request_context.caller)]
        if arguments is not None:
            argument_bytes = message.text[arguments[2] : arguments[3]].encode("utf-8", "surrogatepass")
            values += len(argument_bytes), native.digests.arguments(argument_bytes)
        if result is not None:
            values.append(result["bytes"])
        request_id = b'"%d"' % id if type(id) is int else orjson.dumps(scrubbed(id))
        values += orjson.dumps(rounded(data["seconds"])), request_context.id.encode(), request_id, prev, seq
        if task is not None:
            values.append(native.digests.task(task).encode())
        values.append(orjson.dumps(time, option=orjson.OPT_UTC_Z))
        return template % tuple(values)

    def _task_line(self, event: AuditEvent, seq: int, prev: bytes) -> bytes | None:
        """The line of an event of a task within an untraced request.

        None unless it shows nothing else than the task, its request and `data`, and no more of
        arguments than names, size and digest.
        """
        origin, subject, time = event.origin, event.subject, event.time
        if type(origin) is not EventOrigin or subject is None or subject.owner is None or event.limit is not None:
            return None
        if origin.span is not None or origin.caller is None or time.tzinfo is not UTC or not time.microsecond:
            return None
        if event.caller is not None or event.mount is not None or event.method is not None:
            return None
        if event.result is not None:
            # Its digest may take milliseconds, and lines from templates are made on the event loop.
            return None
        summary, native = origin.summary, self._native
        arguments = summary.arguments
        keys: tuple[str, ...] | bool | None = _NO_ARGUMENTS
        if arguments is not None:
            keys = arguments.keys
            if not native.only_digests or arguments.text is None or keys is UNREAD:
                return None
        key = (
            *event[:4],
            *origin[1:7],
            origin.revision,
            origin.client,
            summary.method,
            summary.tool,
            keys,
            subject.status,
            subject.ttl,
            subject.mount,
            subject.tool,
        )
        template = self._templates.get(key) or self._new(key, event, _task_places)
        # The values in the order of their placeholders in the sorted line: actor, args.bytes,
        # args.hmac, data, http.request_id, mcp.request_id, prev, seq, task.owner_ctx, task.ref, time.
        values: list[Any] = [self._actor_of(event, origin.caller)]
        if arguments is not None and arguments.text is not None:
            argument_bytes = encoded(arguments.text[arguments.start : arguments.end])
            values += len(argument_bytes), native.digests.arguments(argument_bytes)
        id = summary.request_id
        values += (
            orjson.dumps(native.data(event), option=orjson.OPT_SORT_KEYS),
            origin.id.encode(),
            b"null" if id is None else b'"%d"' % id if type(id) is int else orjson.dumps(scrubbed(id)),
            prev,
            seq,
            context_ref(subject.owner).encode(),
            native.digests.task(subject.id).encode(),
            orjson.dumps(time, option=orjson.OPT_UTC_Z),
        )
        return template % tuple(values)

    def _new(self, key: tuple[object, ...], event: AuditEvent, set_places: Callable[[dict[str, Any]], None]) -> bytes:
        """Make the template of an event's document, and remember it under the key."""
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        template = self._templates[key] = _template(self._native.document(event), set_places)
        return template

    def _actor_of(self, event: AuditEvent, caller: Caller | None) -> bytes:
        """The member `actor`, remembered for the caller."""
        if caller is None:
            return b"null"
        identity = caller.identity
        key = caller.key, id(identity)
        cached = self._actors.get(key)
        if cached is not None:
            return cached[1]
        if len(self._actors) >= MAX_TEMPLATES:
            self._actors.clear()
        text = orjson.dumps(actor_of(event, full=self._native.names_callers), option=orjson.OPT_SORT_KEYS)
        # With the identity, so that no other one gets its `id`.
        self._actors[key] = identity, text
        return text


def _answer_places(document: dict[str, Any]) -> None:
    """Set the placeholders of an answered request: its duration, and the size of its result."""
    document["data"]["seconds"] = _TEXT
    if "result" in document["data"]:
        # A copy: the event owns the dictionary.
        document["data"]["result"] = {**document["data"]["result"], "bytes": _NUMBER}


def _task_places(document: dict[str, Any]) -> None:
    """Set the placeholders of an event of a task."""
    document["data"] = _TEXT
    document["task"]["owner_ctx"] = _QUOTED


def _template(document: dict[str, Any], set_places: Callable[[dict[str, Any]], None]) -> bytes:
    """A template of a document: `%` placeholders for what differs; other `%` signs are doubled.

    Changes the document. `set_places` sets the placeholders that are not in every template.
    """
    document |= {"actor": _TEXT, "prev": _TEXT, "seq": _NUMBER, "time": _TEXT}
    document["mcp"]["request_id"] = _TEXT
    document["http"]["request_id"] = _QUOTED
    if document["args"] is not None:
        document["args"] |= {"bytes": _NUMBER, "hmac": _QUOTED}
    if document["task"] is not None:
        document["task"]["ref"] = _QUOTED
    set_places(document)
    text = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    return text.replace(b"%", b"%%").replace(b"\0", b"%")


_NO_ARGUMENTS: Final = False
"""The part `keys` of a template key without arguments. It is None for arguments that are no object,
else the names of the arguments."""
# JSON text has no other NUL byte, so it marks placeholders.
_TEXT: Final = orjson.Fragment(b"\0b")
_QUOTED: Final = orjson.Fragment(b'"\0b"')
_NUMBER: Final = orjson.Fragment(b"\0d")
