"""One JSON-RPC message: judged once and strictly, then kept as the text it came in.

A message is a text and the places of the members that matter in it. What the gateway does not own is never parsed
into a tree and written out again: amendments are splices into the text. Only the envelope and the objects that a
`Shape` opens are walked member by member; there duplicate keys are refused. Everything below is checked for syntax and
left alone. Pure: no I/O, no revision of the protocol, no method's meaning.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.jsontext.spans import MAX_MEMBERS, Members, RawJson, Shape, decode, read_object, read_pairs
from taskgate.protocol.alike import ENVELOPE_NAMES, META_NAMES, PARAMS_NAMES, TASK_NAMES, refuse_alike
from taskgate.protocol.envelope import ENVELOPE, Message, Notification, Request, Response
from taskgate.protocol.usual import read_usual

MAX_ID_BYTES: Final = 256


def parse(body: bytes, *, max_depth: int, shape: Shape = ENVELOPE, max_members: int | None = None) -> Message:
    """Read one message. `max_members` bounds each walked object, and where it is said all arrays and objects count.

    Raises UnparsableMessage for what is not JSON and MalformedMessage, with the id where it could be
    read, for JSON that is not one JSON-RPC message: an array, a duplicate key in a walked object, too many members, a
    key that some readers take for another (`alike`), a wrong version, id, method or `error`. `params` that is no object
    is left to the caller: it is kept as an empty `params` with `params_text` telling the truth.
    """
    text = decode(body, max_depth, counted=max_members is not None)
    most = MAX_MEMBERS if max_members is None else max_members
    message = (read_usual(text, most) if shape is ENVELOPE else None) or _read_any(text, shape, most)
    if type(message) is not Response:
        params, message_id = message.params, message.id if type(message) is Request else None
        # Nearly all keys are names that are known: to see that enters no function.
        for key in params:
            if key not in PARAMS_NAMES:
                _refuse_alike(params, PARAMS_NAMES, message_id)
                break
        for name, names in _OPENED:
            opened = (params[name].members or ()) if name in params else ()
            for key in opened:
                if key not in names:
                    _refuse_alike(opened, names, message_id)
                    break
    return message


def result_text(id: RequestId, result: RawJson) -> str:
    """A success response around the text of a result."""
    return f'{{"jsonrpc":"2.0","id":{dump(id)},"result":{result}}}'


def error_text(id: RequestId | None, error: RawJson) -> str:
    """An error response around the text of an error object; without an id where the request's could not be read."""
    head = "" if id is None else f'"id":{dump(id)},'
    return f'{{"jsonrpc":"2.0",{head}"error":{error}}}'


def request_text(id: RequestId, method: str, params: RawJson | None) -> str:
    """A request around the text of its parameters."""
    tail = "" if params is None else f',"params":{params}'
    return f'{{"jsonrpc":"2.0","id":{dump(id)},"method":{dump(method)}{tail}}}'


def notification_text(method: str, params: RawJson | None = None) -> str:
    """A notification around the text of its parameters."""
    tail = "" if params is None else f',"params":{params}'
    return f'{{"jsonrpc":"2.0","method":{dump(method)}{tail}}}'


def readdressed(response: Response, id: RequestId) -> str:
    """A response under another id, every other byte as it came."""
    start, end = response.id_span
    return f"{response.text[:start]}{dump(id)}{response.text[end:]}"


def is_id(value: object) -> bool:
    """Whether a value may be a request id or a progress token: a string or an integer of bounded size."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass")) <= MAX_ID_BYTES and _is_text(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


# --- reading -----------------------------------------------------------------------------------------------------


def _refuse_alike(keys: Iterable[str], names: frozenset[str], message_id: RequestId | None) -> None:
    try:
        refuse_alike(keys, names)
    except MalformedMessage as refusal:
        refusal.id = message_id
        raise


def _read_any(text: str, shape: Shape, most: int) -> Message:
    envelope = _read_envelope(text, shape, most)
    message_id = _read_id(envelope)
    _refuse_alike(envelope, ENVELOPE_NAMES, message_id)
    if _value(envelope, "jsonrpc") != "2.0":
        raise MalformedMessage('"jsonrpc" must be "2.0"', id=message_id)
    if "method" in envelope:
        return _read_call(text, envelope, message_id)
    return _read_response(text, envelope, message_id)


def _read_envelope(text: str, shape: Shape, most: int) -> Members:
    try:
        return read_object(text, shape, most)
    except MalformedMessage as refusal:
        # The whole text is JSON and its id told once, or there is none to answer to.
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
    method = _value(envelope, "method")
    if not isinstance(method, str) or not _is_text(method):
        raise MalformedMessage("The method must be a string", id=message_id)
    if "result" in envelope or "error" in envelope:
        raise MalformedMessage("A message is a call or a response, not both", id=message_id)
    params = envelope.get("params")
    inner = (params.members or {}) if params else {}
    params_text = text[params.start : params.end] if params else ""
    if message_id is None:
        return Notification(method=method, params=inner, text=text, params_text=params_text)
    at = params.start if params else 0
    return Request(id=message_id, method=method, params=inner, text=text, params_text=params_text, params_at=at)


def _read_response(text: str, envelope: Members, message_id: RequestId | None) -> Response:
    result, error = envelope.get("result"), envelope.get("error")
    if message_id is None or (result is None) == (error is None):
        raise MalformedMessage("The message is neither a call nor a response", id=message_id)
    if error is not None and not _is_error(error.members or {}):
        raise MalformedMessage("The error is not an error object", id=message_id)
    place = envelope["id"]
    return Response(id=message_id, result=result, error=error, text=text, id_span=(place.start, place.end))


def _is_error(found: Members) -> bool:
    code = _value(found, "code")
    return isinstance(code, int) and not isinstance(code, bool) and isinstance(_value(found, "message"), str)


def _value(members_: Members, name: str) -> Any:
    member = members_.get(name)
    return None if member is None else member.value


def _is_text(value: str) -> bool:
    """Whether a string could be written out again: an escaped lone surrogate could not."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_OPENED: Final = (("_meta", META_NAMES), ("task", TASK_NAMES))
