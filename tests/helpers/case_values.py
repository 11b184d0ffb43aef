"""Values of cases as text: `read` makes an argument of the type that a function asks for, `show` writes what comes out.

A text stands as it is where no reader could mistake it. Else it stands in single quotes, with the escapes of JSON.
"""

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from helpers.manual_clock import EPOCH
from taskgate.domain.record import OwnerKey, TaskRecord, TaskStatus, ToolCall
from taskgate.domain.versions import NEWEST_LEGACY, Peer, Revision
from taskgate.jsontext.large import JsonChunks, LargeJson, to_string
from taskgate.jsontext.spans import Member, Members
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification, Params, Request, Response

TOKEN: Final = "<token>"
"""Where the progress token of parameters stands."""
WIDTH: Final = 160
_DEPTH: Final = 64
CALL: Final = ToolCall(
    tool="render",
    peer=Peer(revision=NEWEST_LEGACY, capabilities={}, info={}),
    host_session="s",
    progress_token=None,
    params='{"name":"render"}',
)
_NEW_RECORD: Final = TaskRecord.__init__
_ESCAPE: Final = re.compile(r'\\.|"')
_WORDS: Final = {"none", "true", "false"}
_UNSHOWN: Final = {"views", "body"}
"""Fields that repeat what another field says."""


class Lines(str):
    """A text that stands as it is, over as many lines as it has."""

    __slots__ = ()


class Line(str):
    """A text of one line that stands as it is."""

    __slots__ = ()


# --- writing ----------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """A text as it stands in a case."""
    is_plain = text.isprintable() and text == text.strip() and text not in _WORDS | {""} and text[0] not in "'#$!"
    if is_plain and not _is_number(text) and " => " not in text and " | " not in text and not text.startswith("----"):
        return text
    inner = json.dumps(text, ensure_ascii=not all(each.isprintable() for each in text if each >= " "))[1:-1]
    plain = _ESCAPE.sub(lambda found: found[0].removeprefix("\\") if found[0] == '\\"' else found[0], inner)
    return "'" + plain.replace(" => ", r" \u003d> ").replace(" | ", r" \u007c ") + "'"


def show(value: object) -> str:
    """What a function gave back, on one line if it is short."""
    if isinstance(value, Lines):
        return str(value)
    parts = _message_parts(value) if isinstance(value, Request | Notification | Response) else _parts(value)
    line = _whole(type(value).__name__, parts) if parts else _shown(value)
    if len(line) <= WIDTH or not parts:
        return line
    return "\n".join([type(value).__name__, *(f"  {name}: {_shown(each)}" for name, each in parts)])


def show_error(error: Exception) -> str:
    """What a function refused, and how."""
    more = {name: each for name, each in vars(error).items() if each != getattr(type(error), name, None)}
    told = "".join(f", {name}={_shown(each)}" for name, each in more.items())
    return f"! {type(error).__name__}: {quoted(str(error))}{told}"


def _shown(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case Enum():
            return str(value.value) if isinstance(value, str) else value.name.lower()
        case str():
            return quoted(value)
        case bytes():
            return quoted(value.decode("utf-8", "surrogateescape"))
        case int() | float():
            return repr(value)
        case timedelta():
            return f"{value.total_seconds():.12g}s"
        case datetime():
            return value.isoformat()
        case LargeJson() | JsonChunks():
            return quoted(to_string(value))
        case Request() | Notification() | Response():
            return quoted(value.text)
        case Params():
            return quoted(value.head if value.tail is None else f"{value.head}{TOKEN}{value.tail}")
        case Member():
            return _shown(value.value)
    if parts := _parts(value):
        return _whole(type(value).__name__, parts)
    return _shown_many(value)


def _whole(name: str, parts: list[tuple[str, object]]) -> str:
    return f"{name}({', '.join(f'{part}={_shown(each)}' for part, each in parts)})"


def _message_parts(message: Request | Notification | Response) -> list[tuple[str, object]]:
    """A message by its members, then as a whole."""
    if isinstance(message, Response):
        members = {"id": message.id, "result": message.result, "error": message.error, "error_code": message.error_code}
        found = {
            name: message.text[each.start : each.end] if isinstance(each, Member) else each
            for name, each in members.items()
            if each is not None
        }
    else:
        found = {"method": message.method, "params": message.params_text, "members": list(message.params)}
        found |= {"id": message.id} if isinstance(message, Request) else {}
    return [*found.items(), ("text", message.text)]


def _shown_many(value: object) -> str:
    match value:
        case Mapping():
            return f"{{{', '.join(f'{_shown(name)}: {_shown(each)}' for name, each in value.items())}}}"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(_shown, value)))}}}"
        case Sequence():
            return f"[{', '.join(map(_shown, value))}]"
    return type(value).__name__


def _parts(value: object) -> list[tuple[str, object]]:
    """The fields of an object that say more than their default, by name."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        named = value._asdict()
        usual = {each.name: each.default for each in inspect.signature(type(value)).parameters.values()}
    elif is_dataclass(value) and not isinstance(value, type):
        named = {each.name: getattr(value, each.name) for each in fields(value)}
        usual = {each.name: each.default for each in fields(value) if each.default is not MISSING}
        made = {each.name: each.default_factory for each in fields(value) if each.default_factory is not MISSING}
        usual |= {name: make() for name, make in made.items()}
    else:
        return []
    if isinstance(value, Params | Member | Request | Notification | Response | LargeJson | JsonChunks):
        return []
    return [
        (name, each)
        for name, each in named.items()
        if name not in _UNSHOWN and not (name in usual and usual[name] == each)
    ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# --- reading ----------------------------------------------------------------------------------------------------------


def unquoted(text: str) -> str:
    """The text that `quoted` wrote."""
    if len(text) > 1 and text[0] == text[-1] == "'":
        inner = _ESCAPE.sub(lambda found: '\\"' if found[0] == '"' else found[0], text[1:-1])
        found: str = json.loads(f'"{inner}"')
        return found
    return text


def read(kind: Any, text: str) -> Any:
    """The argument of a type that a text stands for. Raises LookupError for a type that no text stands for."""
    if kind in _READERS:
        return _READERS[kind](text)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _read_one_of(get_args(kind), text)
    if origin is typing.Literal:
        return unquoted(text)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(text)
    return made(kind, json.loads(text))


def _read_one_of(kinds: tuple[Any, ...], text: str) -> Any:
    if type(None) in kinds and text == "none":
        return None
    for kind in sorted(kinds, key=lambda kind: (kind is str, kind is int)):
        if kind is type(None):
            continue
        try:
            return read(kind, text)
        except (ValueError, TypeError, LookupError):
            continue
    raise LookupError(f"{text} is none of {kinds}")


def made(kind: Any, value: Any) -> Any:
    """The value of a type that JSON stands for."""
    origin, args = get_origin(kind) or kind, get_args(kind)
    if value is None or origin is Any or origin is object:
        return value
    if origin in (Union, types.UnionType):
        return _made_one_of(args, value)
    if kind in MAKERS:
        return MAKERS[kind](value)
    if kind in _READERS:
        return _READERS[kind](value) if isinstance(value, str) else value
    if isinstance(origin, type) and issubclass(origin, Enum):
        return origin(value)
    if isinstance(origin, type) and issubclass(origin, Mapping) and not hasattr(origin, "__required_keys__"):
        of = args[1] if len(args) > 1 else Any
        return {name: made(of, each) for name, each in value.items()}
    if origin is tuple and len(args) > 1 and args[1] is not Ellipsis:
        return tuple(made(of, each) for of, each in zip(args, value, strict=True))
    if origin in (tuple, list, set, frozenset) or origin is Sequence:
        of = args[0] if args else Any
        return (origin if origin is not Sequence else tuple)(made(of, each) for each in value)
    if isinstance(value, dict) and (is_dataclass(origin) or hasattr(origin, "_fields")):
        hints = get_type_hints(origin)
        return origin(**{name: made(hints.get(name, Any), each) for name, each in value.items()})
    return value


def _made_one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        if kind in (Params, str) and isinstance(value, str):
            return _READERS[kind](value)
        if kind in MAKERS and isinstance(value, dict | int | float):
            return MAKERS[kind](value)
        names = getattr(kind, "_fields", None) or (
            tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()
        )
        if isinstance(value, dict) and names and set(value) <= set(names):
            return made(kind, value)
        if not names and isinstance(value, str):
            try:
                return made(kind, value)
            except ValueError:
                continue
    return value


def _message(text: str) -> Any:
    return parse(unquoted(text).encode("utf-8", "surrogateescape"), max_depth=_DEPTH)


def members(text: str) -> Members:
    """The members of a JSON object, as those of parameters."""
    read_ = _message(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{unquoted(text)}}}')
    found: Members = read_.params
    return found


def _params(text: str) -> Params:
    return Params(*unquoted(text).split(TOKEN))


def peer(text: str) -> Peer:
    """A host or a server: its revision alone, or an object with more of it."""
    return _peer(json.loads(text) if text.startswith("{") else {"revision": text})


def _peer(value: dict[str, Any]) -> Peer:
    return Peer(**{"capabilities": {}, "info": {}, **value, "revision": Revision(value["revision"])})


def seconds(text: str) -> timedelta:
    """A time such as 1.5s."""
    return timedelta(seconds=float(text.removesuffix("s")))


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text]


def record(changes: Mapping[str, Any]) -> TaskRecord:
    """A working record made at EPOCH and changed 7.12 s later, with other fields as they are named."""
    hints = get_type_hints(_NEW_RECORD)
    call = {name: made(get_type_hints(ToolCall)[name], each) for name, each in changes.get("call", {}).items()}
    usual: dict[str, Any] = {
        "id": "7Qm2vX0cJ9rYw4LkT1eZ8A-_7Qm2vX0c",
        "owner": OwnerKey("anonymous", "reports"),
        "status": TaskStatus.WORKING,
        "created_at": EPOCH,
        "updated_at": EPOCH + timedelta(seconds=7, milliseconds=120),
        "ttl": timedelta(hours=1),
        "poll_interval": timedelta(seconds=2),
    }
    named = {name: made(hints[name], each) for name, each in changes.items() if name != "call"}
    return TaskRecord(**{**usual, **named, "call": CALL._replace(**call)})


_READERS: Final[dict[Any, Callable[[str], Any]]] = {
    str: unquoted,
    Line: Line,
    Lines: lambda text: Lines(f"{text}\n"),
    bytes: lambda text: unquoted(text).encode("utf-8", "surrogateescape"),
    int: int,
    float: float,
    bool: _truth,
    Any: json.loads,
    object: json.loads,
    Request: _message,
    Notification: _message,
    Response: _message,
    Request | Notification | Response: _message,
    Params: _params,
    Peer: peer,
    Members: members,
    timedelta: seconds,
    datetime: datetime.fromisoformat,
    LargeJson: lambda text: LargeJson(unquoted(text).encode()),
}
MAKERS: Final[dict[Any, Callable[[Any], Any]]] = {
    Peer: _peer,
    TaskRecord: record,
    timedelta: lambda value: timedelta(seconds=value),
}
"""How JSON becomes a value of a type, where that is more than its fields. Runners add their own."""
