"""Templates of native lines: `LineTemplates` writes lines of common requests and tasks without a document.

Most requests and tasks repeat an earlier one: the same host, method and tool. The native document of
the first becomes a template with placeholders for what differs, such as time, caller and digests. So
a line has the same bytes as its document would, and only `native` decides what lines contain.

`ChainWriter` asks for the line of each event, through `Renderer`, and renders a document if there is
none. A template is found by everything that is constant in its lines (`key`); the severity follows
from name, outcome and reason. All else that can vary must have a placeholder, or the event must have
no template.
"""

from collections.abc import Callable
from typing import Any, Final

import orjson

from taskgate.domain.record import RequestId
from taskgate.jsontext.spans import Member
from taskgate.protocol.messages import Request
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.telemetry.auditlog.events import (
    TASK_METHODS,
    AuditEvent,
    CallArguments,
    ConstantMembers,
    EventOrigin,
    text_of,
)
from taskgate.telemetry.auditlog.formats.native import NativeRenderer, actor_of_caller, context_ref, rounded, time_text
from taskgate.telemetry.auditlog.formats.redaction import scrubbed
from taskgate.telemetry.request_context import Caller, RequestContext

MAX_TEMPLATES: Final = 512
"""Templates kept at most, and actors, and digests; when there are more, all are dropped."""
_MAX_REMEMBERED: Final = 1024
"""Bytes of arguments whose digest is remembered, at most."""

_Read = tuple[tuple[str, ...] | bool | None, bytes | memoryview | None]
"""The part `keys` of a template key, and the bytes of the arguments."""
_Summarized = tuple[RequestId, str, str | None, str | None, tuple[str, ...] | bool | None, bytes | memoryview | None]
"""The id, method, tool and task of a request, and what was read of its arguments."""


class LineTemplates:
    """The writer of lines that equal, byte for byte, the canonical form of the native document.

    `_templates` are found by the key in `line`. `_actors` are the rendered callers, each with the
    `Caller`, by the `id` of that. There is one for each token: another token of the same caller has
    other claims. `_digests` are those of arguments of new tasks, until the lines of their requests
    have them too. Threads may share the object: at worst a template is made twice.
    """

    def __init__(self, native: NativeRenderer) -> None:
        self._native = native
        self._templates: dict[tuple[object, ...], bytes] = {}
        self._actors: dict[int, tuple[Caller, bytes]] = {}
        self._digests: dict[bytes, bytes] = {}

    def line(self, event: AuditEvent, seq: int, prev: bytes) -> bytes | None:
        """The line with these `seq` and `prev` (JSON text).

        None for an event that needs a document. A template serves events of tasks (`_task_line`), and
        the last event of a request that fulfils all of these:

        - it is one JSON-RPC request: `parts` is not set, and `message` is a Request;
        - it is not traced (`span`), and `data` has its duration (`seconds`);
        - its line shows no more of arguments than names, size and digest (`only_digests`).

        Of a request with a long message, or that was refused, `origin` is an EventOrigin
        (`_summarized`). Else it is the context, and `data` has `seconds`, perhaps `result` with
        `bytes`, and nothing else.
        """
        # Each request and each step of a task has a line: a Python call would cost as much as most of
        # these steps. So fields of named tuples are read all at once, or by number.
        fields: Any = event
        name, outcome, reason, _, time, origin, subject, data, _ = fields[:_USUAL]
        if subject is not None:
            return self._task_line(fields, seq, prev)
        if data is None or "seconds" not in data:
            return None
        native = self._native
        keys, argument_bytes = _NOT_READ
        digest: bytes | None = None
        if type(origin) is RequestContext:
            message = origin.message
            if type(message) is not Request or origin.span is not None or origin.parts:
                return None
            request_id, method, params = message[0], message[1], message[2]
            tool, task = None, origin.task
            if method == TOOLS_CALL:
                name_member, arguments = params.get("name"), params.get("arguments")
                # Of a Member, 0 is the value, 2 and 3 are its start and end in the text.
                tool = name_member[0] if name_member is not None and type(name_member[0]) is str else None
                if arguments is not None and not origin.names_handle:
                    # Another type than Member is for large arguments, whose value was not parsed.
                    if not native.only_digests or type(arguments) is not Member:
                        return None
                    keys = tuple(arguments[0]) if type(arguments[0]) is dict else None
                    argument_bytes = written = message.text[arguments[2] : arguments[3]].encode(
                        "utf-8", "surrogatepass"
                    )
                    digest = self._digests.pop(written, None) if self._digests else None
            elif task is None and method in TASK_METHODS:
                task = text_of(params.get("taskId"))
        else:
            found = self._summarized(fields)
            if found is None:
                return None
            request_id, method, tool, task, keys, argument_bytes = found
        result = data.get("result") if native.shows_results else None
        key = (
            name, outcome, reason, origin.address, origin.verb, origin.path, origin.agent, origin.status,
            origin.mount, origin.revision, origin.client, method, tool, keys, task is None, result is None,
        )  # fmt: skip
        template = self._templates.get(key) or self._new(key, event, _answer_places)
        # The values in the order of their placeholders in the sorted line: actor, args.bytes,
        # args.hmac, data.result.bytes, data.seconds, http.request_id, mcp.request_id, prev, seq,
        # task.ref, time.
        caller = origin.caller
        actor = b"null" if caller is None else (self._actors.get(id(caller)) or self._new_actor(caller))[1]
        seconds, now = orjson.dumps(rounded(data["seconds"])), time_text(time)
        values: tuple[Any, ...] = (seconds, origin.id.encode(), _request_id(request_id), prev, seq)
        if result is not None:
            values = result["bytes"], *values
        if argument_bytes is not None:
            values = len(argument_bytes), digest or native.digests.arguments(argument_bytes), *values
        if task is None:
            return template % (actor, *values, now)
        return template % (actor, *values, native.digests.task(task).encode(), now)

    def _summarized(self, event: Any) -> _Summarized | None:
        """What a template needs of the message of a request, from the summary in an EventOrigin.

        None if the event is not the last one of a request, or if the line shows more.
        """
        origin, data = event[_ORIGIN], event[_DATA]
        if type(origin) is not EventOrigin or origin.span is not None or event[_USUAL:] != _NOTHING_MORE:
            return None
        method, request_id, tool, task, arguments = origin.summary
        if request_id is None or method is None or len(data) > 1 + ("result" in data):
            return None
        read = _NOT_READ if arguments is None else self._read(arguments)
        return None if read is None else (request_id, method, tool, origin.task or task, *read)

    def _read(self, arguments: CallArguments) -> _Read | None:
        """The keys of arguments and their bytes.

        None if a line shows more of them, or if the text was dropped. None also for long keys: many
        templates with such keys would take much memory.
        """
        written = arguments.encoded() if self._native.only_digests else None
        if written is None:
            return None
        keys = arguments.first_keys(written)
        if keys is not None and sum(map(len, keys)) > _MAX_REMEMBERED:
            return None
        return keys, written

    def _task_line(self, event: Any, seq: int, prev: bytes) -> bytes | None:
        """The line of an event of a task within an untraced request.

        None unless it shows nothing else than the task, its request and `data`, and no more of
        arguments than names, size and digest.
        """
        name, outcome, reason, _, time, origin, subject, data, _ = event[:_USUAL]
        if origin is None or origin.span is not None or event[_USUAL:] != _NOTHING_MORE:
            return None
        task, status, owner, ttl, mount, task_tool = subject
        caller, native = origin.caller, self._native
        if owner is None or caller is None:
            return None
        method = tool = None
        request_id = b"null"
        read: _Read | None = _NOT_READ
        # The context of a task's call has no message.
        if type(origin) is EventOrigin:
            method, asked, tool, _, arguments = origin.summary
            if asked is not None:
                request_id = _request_id(asked)
            if arguments is not None:
                read = self._read(arguments)
        if read is None:
            return None
        keys, argument_bytes = read
        shared = data if type(data) is ConstantMembers else None
        key = (
            name, outcome, reason, origin.address, origin.verb, origin.path, origin.agent, origin.mount,
            origin.revision, origin.client, method, tool, keys, status, ttl, mount, task_tool, shared,
        )  # fmt: skip
        template = self._templates.get(key) or self._new(key, event, _task_places if shared is None else _owner_place)
        # The values in the order of their placeholders in the sorted line: actor, args.bytes,
        # args.hmac, data, http.request_id, mcp.request_id, prev, seq, task.owner_ctx, task.ref, time.
        values: tuple[Any, ...] = (
            origin.id.encode(),
            request_id,
            prev,
            seq,
            owner.encode(),
            native.digests.task(task).encode(),
            time_text(time),
        )
        if shared is None:
            values = orjson.dumps(native.data(data), option=orjson.OPT_SORT_KEYS), *values
        if argument_bytes is not None:
            digest = native.digests.arguments(argument_bytes)
            if len(argument_bytes) <= _MAX_REMEMBERED:
                if len(self._digests) >= MAX_TEMPLATES:
                    self._digests.clear()
                self._digests[bytes(argument_bytes)] = digest
            values = len(argument_bytes), digest, *values
        return template % ((self._actors.get(id(caller)) or self._new_actor(caller))[1], *values)

    def _new(self, key: tuple[object, ...], event: AuditEvent, set_places: Callable[[dict[str, Any]], None]) -> bytes:
        """Make the template of an event's document, and remember it under the key."""
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        template = self._templates[key] = _template(self._native.document(event), set_places)
        return template

    def _new_actor(self, caller: Caller) -> tuple[Caller, bytes]:
        """Make the member `actor`, and remember it for the caller with this token."""
        if len(self._actors) >= MAX_TEMPLATES:
            self._actors.clear()
        text = orjson.dumps(actor_of_caller(caller, full=self._native.names_callers), option=orjson.OPT_SORT_KEYS)
        # With the caller, so that no other one gets its `id`.
        made = self._actors[id(caller)] = caller, text
        return made


def _request_id(id: RequestId) -> bytes:
    return b'"%d"' % id if type(id) is int else orjson.dumps(scrubbed(id))


def _answer_places(document: dict[str, Any]) -> None:
    """Set the placeholders of an answered request: its duration, and the size of its result."""
    document["data"]["seconds"] = _TEXT
    if "result" in document["data"]:
        # A copy: the event owns the dictionary.
        document["data"]["result"] = {**document["data"]["result"], "bytes": _NUMBER}


def _task_places(document: dict[str, Any]) -> None:
    """Set the placeholders of an event of a task."""
    document["data"] = _TEXT
    _owner_place(document)


def _owner_place(document: dict[str, Any]) -> None:
    """Set the placeholder of an event of a task with `ConstantMembers`."""
    document["task"]["owner_ctx"] = _CONTEXT


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


_USUAL: Final = AuditEvent._fields.index("limit")
"""The number of fields that usual events have; the others are None in them."""
_ORIGIN: Final = AuditEvent._fields.index("origin")
_DATA: Final = AuditEvent._fields.index("data")
_NOTHING_MORE: Final = (None,) * (len(AuditEvent._fields) - _USUAL)
_NO_ARGUMENTS: Final = False
"""The part `keys` of a template key without arguments. It is None for arguments that are no object,
else the names of the arguments."""
_NOT_READ: Final[_Read] = _NO_ARGUMENTS, None
"""What there is to read of no arguments: the part `keys`, and no bytes."""
# JSON text has no other NUL byte, so it marks placeholders.
_TEXT: Final = orjson.Fragment(b"\0b")
_QUOTED: Final = orjson.Fragment(b'"\0b"')
_CONTEXT: Final = orjson.Fragment(b'"%b"' % context_ref("\0b").encode())
_NUMBER: Final = orjson.Fragment(b"\0d")
