"""JSON-RPC as text: `parse` reads one message strictly, `result_text` and others write one.

A message stays the text it came in, with the positions of the members that matter. The gateway
amends it by splices and never rebuilds it from a tree. Only the envelope and the objects that a
`Shape` opens are walked; those must not repeat a key. All values below are checked for syntax
alone. One module, because the fast and the full way to read a message must accept the same texts.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.edits import Edits, dump, removals, splice
from taskgate.jsontext.large import MessageText
from taskgate.jsontext.long_values import NumberTooLarge
from taskgate.jsontext.spans import (
    LARGE,
    MAX_MEMBERS,
    PARSE_ERRORS,
    LargeMember,
    Member,
    Members,
    RawJson,
    Shape,
    WalkedMember,
    decode,
    end_of_value,
    read_object,
    read_pairs,
    skip_space,
    walk,
)
from taskgate.protocol import vocabulary as names
from taskgate.protocol.messages import (
    ENVELOPE,
    TASK_ID,
    Message,
    Notification,
    Request,
    Response,
    amended,
    is_unicode,
    value_of,
)

MAX_ID_BYTES: Final = 256
"""Longest id or progress token that is a string, in bytes."""
MAX_BATCH: Final = 64
"""Largest number of messages in a batch."""
MANY_BYTES: Final = 32 * 1024
"""Size of a message from which copies cost more than chunks."""


def parse(body: bytes, *, max_depth: int, shape: Shape = ENVELOPE, max_members: int | None = None) -> Message:
    """Read one message. `max_depth` limits its nesting; `shape` names the objects that are walked.

    `max_members` limits each walked object, and turns on the limit for the number of objects and
    arrays in the text.

    Raises UnparsableMessage for text that is not JSON. Raises MalformedMessage for JSON that is not
    one JSON-RPC message, with the id if it could be read. Cases are an array, a duplicate key in a
    walked object, too many members, a lookalike key, and a wrong version, id, method or `error`. If
    `params` is no object, `params` is empty and `params_text` has the text: the caller decides.
    An optional member (`NULLABLE`) that is null counts as absent, and the text is without it.
    """
    text = decode(body, max_depth, counted=max_members is not None)
    limit = MAX_MEMBERS if max_members is None else max_members
    message = (fast_parse(text, limit) if shape is ENVELOPE else None) or _full_parse(text, shape, limit)
    if type(message) is not Response:
        params, message_id = message.params, message.id if type(message) is Request else None
        if "null" in message.params_text and (edits := _null_members(message)):
            return parse(
                splice(message.text, edits).encode(), max_depth=max_depth, shape=shape, max_members=max_members
            )
        # Nearly all keys are known names.
        if not params.keys() <= PARAMS_NAMES:
            _refuse_lookalikes(params, PARAMS_NAMES, message_id)
        if "_meta" in params and (meta := params["_meta"].members) and not meta.keys() <= META_NAMES:
            _refuse_lookalikes(meta, META_NAMES, message_id)
        if "task" in params and (task := params["task"].members) and not task.keys() <= TASK_NAMES:
            _refuse_lookalikes(task, TASK_NAMES, message_id)
    # A message without a null member is shorter: its places are not those of the body.
    if len(body) > MANY_BYTES and len(message.text) == len(body) and not isinstance(message, Notification):
        return message._replace(body=body)
    return message


NULLABLE: Final = frozenset(
    {
        *("_meta", "task", "arguments", "cursor", "context", "filter", "inputResponses", "requestState"),
        *("total", "message", "reason"),
    }
)
"""Optional parameters of the methods of hosts, and of notifications.

Peers whose serializer omits nothing write them as null. Extensions may give null a meaning.
"""


def _null_members(message: Request | Notification) -> Edits:
    """The edits that remove optional members which are null from the parameters and their `_meta`."""
    if message.method not in names.METHODS_OF_HOSTS and message.method not in names.ERA_NOTICES:
        return []
    params, text = message.params, message.text
    edits, meta = _nulls_in(params, NULLABLE, text), params.get("_meta")
    return edits + _nulls_in(meta.members, META_NAMES, text) if meta is not None and meta.members else edits


def _nulls_in(found: Members, optional: frozenset[str], text: str) -> Edits:
    names_ = {name for name in optional & found.keys() if _is_null(found[name], text)}
    return removals(found, names_) if names_ else []


def _is_null(member: Member | None, text: str) -> bool:
    return member is not None and text.startswith("null", member.start)


def is_id(value: object) -> bool:
    """Whether a value may be a request id or a progress token: a string or an integer of limited
    size.
    """
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass")) <= MAX_ID_BYTES and is_unicode(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


# --- writing ----------------------------------------------------------------------------------------------------------


def result_text(id: RequestId, result: RawJson) -> str:
    """A success response around the text of a result."""
    return f'{{"jsonrpc":"2.0","id":{id if type(id) is int else dump(id)},"result":{result}}}'


def error_text(id: RequestId | None, error: RawJson) -> str:
    """An error response around the text of an error object; None if the id of the request is
    unknown.
    """
    head = "" if id is None else f'"id":{dump(id)},'
    return f'{{"jsonrpc":"2.0",{head}"error":{error}}}'


def unread_error_text(error: RawJson) -> str:
    """An error response to a message that was not read. Its id is null: released hosts show only errors with an id."""
    return f'{{"jsonrpc":"2.0","id":null,"error":{error}}}'


def request_text(id: RequestId, method: str, params: RawJson | None) -> str:
    """A request around the text of its parameters."""
    # The known methods need no escapes.
    named = f'"{method}"' if method in names.METHODS_OF_HOSTS else dump(method)
    head = f'{{"jsonrpc":"2.0","id":{id if type(id) is int else dump(id)},"method":{named}'
    # One join: the parameters may be long.
    return f"{head}}}" if params is None else f'{head},"params":{params}}}'


def notification_text(method: str, params: RawJson | None = None) -> str:
    """A notification around the text of its parameters."""
    tail = "" if params is None else f',"params":{params}'
    return f'{{"jsonrpc":"2.0","method":{dump(method)}{tail}}}'


def with_id(response: Response, id: RequestId) -> MessageText:
    """The text of a response under another id; every other byte stays."""
    start, end = response.id_span
    written = str(id) if type(id) is int else dump(id)
    if response.body is not None:
        return amended(response, [(start, end, written)])
    return f"{response.text[:start]}{written}{response.text[end:]}"


def timestamp(moment: datetime) -> str:
    """A time as hosts see it, cut to the millisecond and in UTC."""
    span = moment - _EPOCH
    return _second_text(span.days * 86_400 + span.seconds) + _MILLISECONDS[span.microseconds // 1000]


def timestamp_of(microseconds: int) -> str:
    """A time in microseconds since 1970, as `timestamp`."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return _second_text(seconds) + _MILLISECONDS[rest // 1000]


@lru_cache(maxsize=1024)
def _second_text(seconds: int) -> str:
    """A second since 1970 as a timestamp starts with it. The tasks of one page share few."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:-6]


@lru_cache(maxsize=256)
def milliseconds(span: timedelta) -> int:
    """A span as hosts see it, in whole milliseconds; many tasks share few spans."""
    return span // _MILLISECOND


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MILLISECONDS: Final = tuple(f".{number:03}Z" for number in range(1000))


# --- reading any message ----------------------------------------------------------------------------------------------


def _full_parse(text: str, shape: Shape, limit: int) -> Message:
    """The message `text` in any form; MalformedMessage or UnparsableMessage if it is none."""
    envelope = _read_envelope(text, shape, limit)
    if "null" in text and (nulls := _null_envelope(envelope, text)):
        text = splice(text, removals(envelope, nulls))
        envelope = _read_envelope(text, shape, limit)
    message_id = _read_id(envelope)
    _refuse_lookalikes(envelope, ENVELOPE_NAMES, message_id)
    if value_of(envelope, "jsonrpc") != "2.0":
        raise MalformedMessage('"jsonrpc" must be "2.0"', id=message_id)
    if "method" in envelope:
        return _read_call(text, envelope, message_id)
    return _read_response(text, envelope, message_id)


def _null_envelope(envelope: Members, text: str) -> set[str]:
    """The members of a message that are null and stand for absent ones.

    A request may have them all, and a notification an id too. Of a response it is the one of result
    and error that does not apply.
    """
    nulls = {name for name in ("id", "params", "result", "error") if _is_null(envelope.get(name), text)}
    method = value_of(envelope, "method")
    if isinstance(method, str):
        return nulls if method.startswith("notifications/") else nulls - {"id"}
    if "error" in nulls:
        return {"error"} & nulls if "result" in envelope else set()
    return {"result"} & nulls if "error" in envelope else set()


def _read_envelope(text: str, shape: Shape, limit: int) -> Members:
    try:
        return read_object(text, shape, limit)
    except MalformedMessage as refusal:
        # The error needs the id: it is used if the text is JSON and has exactly one.
        with suppress(MalformedMessage):
            ids = [member.value for key, member in read_pairs(text) if key == "id"]
            refusal.id = ids[0] if len(ids) == 1 and is_id(ids[0]) else None
        raise


def _read_id(envelope: Members) -> RequestId | None:
    member = envelope.get("id")
    if member is None:
        return None
    if not is_id(member.value):
        raise MalformedMessage("The id must be a string or an integer")
    value: RequestId = member.value
    return value


def _read_call(text: str, envelope: Members, message_id: RequestId | None) -> Request | Notification:
    method = value_of(envelope, "method")
    if not isinstance(method, str) or not is_unicode(method):
        raise MalformedMessage("The method must be a string", id=message_id)
    if "result" in envelope or "error" in envelope:
        raise MalformedMessage("A message is a call or a response, not both", id=message_id)
    params = envelope.get("params")
    inner = (params.members or {}) if params else {}
    params_text = text[params.start : params.end] if params else ""
    at = params.start if params else 0
    if message_id is None:
        return Notification(method=method, params=inner, text=text, params_text=params_text, params_at=at)
    return Request(id=message_id, method=method, params=inner, text=text, params_text=params_text, params_at=at)


def _read_response(text: str, envelope: Members, message_id: RequestId | None) -> Response:
    result, error = envelope.get("result"), envelope.get("error")
    if message_id is None or (result is None) == (error is None):
        raise MalformedMessage("The message is neither a call nor a response", id=message_id)
    code = None
    if error is not None:
        code = value_of(error.members or {}, "code")
        if isinstance(code, float) and code.is_integer():
            code = int(code)
        is_code = isinstance(code, int) and not isinstance(code, bool)
        if not is_code or not isinstance(value_of(error.members or {}, "message"), str):
            raise MalformedMessage("The error is not an error object", id=message_id)
    place = envelope["id"]
    return Response(message_id, result, error, text, (place.start, place.end), code)


# --- reading common messages fast -------------------------------------------------------------------------------------
#
# A common message has "jsonrpc" and the id before everything else or after it. Beside them it has a
# method and parameters, or a result, and these are objects. It reads the same as by the full parse.
# That one reads every message in another form, and it alone refuses.


def fast_parse(text: str, limit: int = MAX_MEMBERS) -> Message | None:
    """The message `text`; None for an uncommon form, and for a text that is no message.

    A large text that is no message is not read twice: it raises UnparsableMessage or
    MalformedMessage at once.
    """
    begin = _BEGIN(text)
    if begin is None:
        return None
    leads, written, method, task = begin.group(1, 2, 3, 5)
    end = begin.end()
    if task is not None:
        # Nearly every poll has the id of its task and nothing else, so the match has read all.
        start = begin.start(5) - 1
        key_at = start - 9 - (text[start - 1] == " ")
        at, found = key_at - 1, {"taskId": _NEW(Member, (task, key_at, start, end - 1, None))}
    else:
        at = end
        try:
            found, end = walk(text, at, _RESULT if method is None else _PARAMS, limit)
        except (*PARSE_ERRORS, MalformedMessage) as refusal:
            if len(text) <= LARGE or written is None or isinstance(refusal, NumberTooLarge):
                return None
            # The full parse would come to the same refusal.
            if isinstance(refusal, MalformedMessage):
                id_ = written[1:-1] if written[0] == '"' else int(written)
                raise MalformedMessage(str(refusal), id=id_) from None
            raise UnparsableMessage("The body is not JSON") from None
    place = begin
    if leads is None or len(text) - end != 1 or text[end] != "}":
        rest = (_CLOSE if leads is not None else _ENVELOPE_AND_CLOSE)(text, end)
        if rest is None:
            return None
        if leads is None:
            place, written = rest, rest["id"]
    if written is None:
        return None if method is None else Notification(method, found, text, text[at:end], at)
    id_ = written[1:-1] if written[0] == '"' else int(written)
    if method is not None:
        return _NEW(Request, (id_, method, found, text, text[at:end], at, None))
    result = _NEW(WalkedMember, (None, begin.start(4), at, end, found))
    return _NEW(Response, (id_, result, None, text, place.span("id"), None, None))


def read_text_result(message: bytes) -> Response | None:
    """The usual result of a tool, a short text, as the response that it is; None for another form.

    Nearly every answer that is relayed has this form, and one match reads all of it. It accepts
    nothing that the walk refuses, and reads the same members at the same places.
    """
    if len(message) > LARGE:
        return None
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return None
    match = _TEXT_RESULT(text)
    if match is None:
        return None
    _, first, (at, end), (kind, kind_end), (start, stop), (more, more_end), (failed, failed_end), last = match.regs
    # Before each value are its key with two quotes, a colon, and one space or none. Arrays and
    # objects are parsed when they are read.
    found: Members = {}
    if kind > 0:
        key_at = kind - 13 - (text[kind - 1] == " ")
        found["resultType"] = _NEW(Member, ("complete", key_at, kind, kind_end, None))
    found["content"] = _NEW(LargeMember, (text, start - 10 - (text[start - 1] == " "), start, stop, None))
    if more > 0:
        key_at = more - 20 - (text[more - 1] == " ")
        found["structuredContent"] = _NEW(LargeMember, (text, key_at, more, more_end, None))
    if failed > 0:
        key_at = failed - 10 - (text[failed - 1] == " ")
        found["isError"] = _NEW(Member, (text[failed] == "t", key_at, failed, failed_end, None))
    result = _NEW(WalkedMember, (None, at - 9 - (text[at - 1] == " "), at, end, found))
    place = first if first[0] > 0 else last
    return _NEW(Response, (int(text[place[0] : place[1]]), result, None, text, place, None, None))


_PARAMS: Final = ENVELOPE["params"]
_RESULT: Final = ENVELOPE["result"]
_PLAIN: Final = r'[^"\\\x00-\x1f]'
# Ids far below every limit, without escapes.
_ID: Final = rf'"id": ?(?P<id>-?(?:0|[1-9][0-9]{{0,17}})|"{_PLAIN}{{0,64}}")'
_VERSION: Final = r'"jsonrpc": ?"2\.0"'
_BEGIN: Final = re.compile(
    rf'\{{({_VERSION}, ?(?:{_ID}, ?)?)?(?:"method": ?"({_PLAIN}*)", ?"params"|("result")): ?'
    rf'(?=\{{)(?:\{{"taskId": ?"({TASK_ID})"\}})?'
).match
_CLOSE: Final = re.compile(r"[ \t\n\r]*\}[ \t\n\r]*\Z").match
_ENVELOPE_AND_CLOSE: Final = re.compile(rf", ?{_VERSION}(?:, ?{_ID})?[ \t\n\r]*\}}[ \t\n\r]*\Z").match
_STRING: Final = r'"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+"'
# As many digits as the gateway's own ids and tokens have, which fit 32 bits.
_OWN: Final = "[1-9][0-9]{0,9}"
_OWN_ID: Final = rf'"id": ?({_OWN})'
_TEXT_RESULT: Final = re.compile(
    rf'\{{(?:{_VERSION}, ?{_OWN_ID}, ?)?"result": ?'
    rf'(\{{(?:"resultType": ?("complete"), ?)?"content": ?(\[(?:\{{"type": ?"text", ?"text": ?{_STRING}\}})?\])'
    rf'(?:, ?"structuredContent": ?(\{{{_STRING}: ?{_STRING}\}}))?(?:, ?"isError": ?(true|false))?\}})'
    rf"(?(1)|, ?{_VERSION}, ?{_OWN_ID})\}}"
).fullmatch
# Makes a named tuple without its constructor, which is Python.
_NEW: Final = tuple.__new__


# --- progress of a server ---------------------------------------------------------------------------------------------
#
# Progress is the most frequent message. A usual one stays the bytes it came in: a host gets them
# with its own token.


class UsualProgress(Notification):
    """A progress notification in the form that nearly all servers write; `usual_progress` makes it.

    It has the match of the message in place of the members, and the token in place of the text. Each
    access to one of `params`, `params_text` and `params_at` parses the message.
    """

    __slots__ = ()

    # Without a frame of Python: they are read for each event.
    _found = property(itemgetter(1))
    token = property(itemgetter(2), doc="The progress token, which is the gateway's.")

    @property
    def done(self) -> float:
        """The progress number."""
        written = self._found[5]
        return float(written) if b"." in written else int(written)

    @property
    def text(self) -> str:
        message: bytes = self._found.string
        return message.decode()

    @property
    def params(self) -> Members:
        return self._read().params

    @property
    def params_text(self) -> RawJson:
        return self._read().params_text

    @property
    def params_at(self) -> int:
        return self._read().params_at

    def with_token(self, token: bytes) -> bytes:
        """The message with another token, which is JSON; every other byte stays."""
        found = self._found
        start, end = found.span(3)
        message = found.string
        return b"%b%b%b" % (message[:start], token, message[end:])

    def params_with_token(self, token: bytes) -> bytes:
        """The parameters with another token."""
        found = self._found
        return b"%b%b%b" % (found[2], token, found[4])

    def _read(self) -> Notification:
        read = parse(self._found.string, max_depth=2)
        assert isinstance(read, Notification), "the pattern matches no other message"
        return read


def usual_progress(message: bytes) -> UsualProgress | None:
    """A message of a server as progress under a token of the gateway; None for any other form.

    `parse` reads the same messages, and alone refuses one.
    """
    found = _PROGRESS(message)
    if found is None:
        return None
    if not message.isascii():
        try:
            message.decode()
        except UnicodeDecodeError:
            return None
    progress: UsualProgress = _NEW(UsualProgress, (names.NOTE_PROGRESS, found, int(found[3]), "", 0))
    return progress


_NUMBER: Final = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?"
_PROGRESS: Final = re.compile(
    (
        rf'\{{({_VERSION}, ?)?"method": ?"{names.NOTE_PROGRESS}", ?"params": ?'
        rf'(\{{"progressToken": ?)({_OWN})(, ?"progress": ?({_NUMBER})'
        rf'(?:, ?"total": ?{_NUMBER})?(?:, ?"message": ?"{_PLAIN}{{0,1000}}")?\}})'
        rf"(?(1)|, ?{_VERSION})\}}"
    ).encode()
).fullmatch


# --- batches ----------------------------------------------------------------------------------------------------------


def is_batch(body: bytes) -> bool:
    """Whether a body, if it is JSON, is an array: a batch, which one revision has."""
    return body[:1] == b"[" or (body[:1].isspace() and body.lstrip(b" \t\r\n")[:1] == b"[")


def split_batch(body: bytes, *, max_depth: int, limit: int = MAX_BATCH, counted: bool = False) -> list[bytes]:
    """The elements of a batch as they are written, at most `limit`. `counted` is as in `decode`.

    Raises UnparsableMessage for text that is no JSON or no array, MalformedMessage for an empty or
    too long array.
    """
    text = decode(body, max_depth, counted=counted)
    try:
        found = _batch_elements(text, limit)
    except PARSE_ERRORS:
        raise UnparsableMessage("The body is not JSON") from None
    if not found:
        raise MalformedMessage("A batch must not be empty")
    return [element.encode("utf-8", "surrogatepass") for element in found]


def _batch_elements(text: str, limit: int) -> list[str]:
    at = skip_space(text, 0)
    if text[at] != "[":
        raise ValueError
    found: list[str] = []
    at = skip_space(text, at + 1)
    if text[at] != "]":
        while True:
            end = end_of_value(text, at)
            found.append(text[at:end])
            if len(found) > limit:
                # The rest is not read: the batch is refused whatever it is.
                raise MalformedMessage(f"A batch must not have more than {limit} elements")
            at = skip_space(text, end)
            if text[at] == "]":
                break
            if text[at] != ",":
                raise ValueError
            at = skip_space(text, at + 1)
    if skip_space(text, at + 1) != len(text):
        raise ValueError
    return found


# --- lookalike keys ---------------------------------------------------------------------------------------------------
#
# Go's standard library, .NET and Java have decoders that match names without regard to case; some C
# parsers end a key at NUL. Such a server would read another value than the gateway did.

ENVELOPE_NAMES: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
"""The members of a message."""

PARAMS_NAMES: Final = frozenset(
    {
        *("_meta", "task", "name", "arguments", "uri", "taskId", "cursor", "level", "ref", "argument", "context"),
        *("progressToken", "progress", "total", "message", "requestId", "reason", "mode", "url", "elicitationId"),
        *("protocolVersion", "capabilities", "clientInfo", "notifications", "inputResponses", "requestState"),
        *("filter", "methods", "taskIds", "status", "order", "orderBy", "createdAfter", "createdBefore"),
        *("lastUpdatedAfter", "lastUpdatedBefore", "createdAt", "lastUpdatedAt"),
    }
)
"""The parameters of any method that the gateway reads, or that a server's answer depends on."""

META_NAMES: Final = frozenset(
    {
        *("progressToken", names.TRACEPARENT, names.TRACESTATE, names.BAGGAGE),
        *(names.RELATED_TASK, names.IMMEDIATE_RESPONSE, names.IDEMPOTENCY_KEY, names.TASKS_EXTENSION),
        *(names.PROTOCOL_VERSION, names.CLIENT_CAPABILITIES, names.CLIENT_INFO, names.SERVER_INFO),
        *(names.LOG_LEVEL, names.SUBSCRIPTION_ID),
    }
)
"""The members of `_meta` that the protocol defines, and taskgate's own."""

TASK_NAMES: Final = frozenset({"ttl", "pollInterval"})
"""The members of `task`."""


def refuse_lookalikes(keys: Iterable[str], known: frozenset[str]) -> None:
    """Raise MalformedMessage for a key that is none of `known` but folds to one of them."""
    folded = _FOLDED.get(known) or {fold(name): name for name in known}
    for key in keys:
        if key not in known and (name := folded.get(fold(key))) is not None:
            raise MalformedMessage(f'A key of the message is not "{name}", but some servers read it as that')


def fold(key: str) -> str:
    """A key as a case-insensitive reader sees it: letters folded one by one, cut at NUL.

    Beside capitals, these characters fold to ASCII letters: the long s, the Kelvin sign, and in
    some libraries the two Turkish i.
    """
    return key.partition("\0")[0].translate(_LETTERS).lower()


def _refuse_lookalikes(keys: Iterable[str], known: frozenset[str], message_id: RequestId | None) -> None:
    try:
        refuse_lookalikes(keys, known)
    except MalformedMessage as refusal:
        refusal.id = message_id
        raise


_LETTERS: Final = {0x17F: "s", 0x212A: "k", 0x130: "i", 0x131: "i"}
_FOLDED: Final[Mapping[frozenset[str], Mapping[str, str]]] = MappingProxyType(
    {known: {fold(name): name for name in known} for known in (ENVELOPE_NAMES, PARAMS_NAMES, META_NAMES, TASK_NAMES)}
)
