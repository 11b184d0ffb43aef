"""JSON-RPC messages as text with member positions: `Request`, `Notification`, `Response`, `Params`.

`jsonrpc.parse` makes the first three from text. Positions of members are those of the whole `text`.
The functions below read parameters of hosts in either era: a wrong type raises InvalidParams.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

from taskgate.domain.record import RequestId, TaskId
from taskgate.errors import InvalidParams, MalformedMessage, TaskNotFound
from taskgate.jsontext.edits import Edits, dump, splice, splice_range
from taskgate.jsontext.large import LargeJson, MessageText
from taskgate.jsontext.spans import CachedShape, Member, Members, RawJson, Shape

TASK_ID: Final = r"[A-Za-z0-9_-]{32}"
"""The form of taskgate's task ids, as a regular expression."""
MAX_TOOL_NAME: Final = 256
"""Longest name of a tool, in characters."""
MAX_CAPABILITIES: Final = 16 * 1024
"""Largest declaration of a host, in characters: sessions store it, as a tree of up to 25 times its
size.
"""
MAX_INFO: Final = 512
"""Characters of the name and of the version of a host that are stored."""

TOOL_ERROR: Final = "tool_error"
"""The error label of a result with `isError`."""

ENVELOPE: Final[Shape] = {
    "params": {"_meta": CachedShape('{"io.modelcontextprotocol/'), "task": {}},
    "result": {"_meta": {}},
    "error": {},
}
"""The objects that the gateway may have to read or amend in any message."""


class Request(NamedTuple):
    """A request: `text` is the whole message.

    `params` are the members of its parameters, `params_text` is their text, which starts at
    `params_at` of `text`. All are empty or 0 if there are none. If `params_text` is no object,
    `params` is empty. `body` has the bytes of a large message in ASCII, where places of bytes are
    those of characters.
    """

    id: RequestId
    method: str
    params: Members
    text: str
    params_text: RawJson
    params_at: int = 0
    body: bytes | None = None


class Notification(NamedTuple):
    """A notification; `params` and the rest as in a request."""

    method: str
    params: Members
    text: str
    params_text: RawJson
    params_at: int


@final
class Response(NamedTuple):
    """A response: `text` is the whole message, `id_span` the place of its id in it.

    Exactly one of `result` and `error` is given. An error has an integer `code` and a `message`;
    `error_code` is that code, None for a result. `body` is as in a request: `amended` copies none of
    its bytes.
    """

    id: RequestId
    result: Member | None
    error: Member | None
    text: str
    id_span: tuple[int, int]
    error_code: int | None
    body: bytes | None = None


Message = Request | Notification | Response


@dataclass(slots=True)
class Params:
    """Parameters on their way through the gateway: the sender's text, split at its progress token.

    `tail` is None if there is no token. `views` has the bytes of both if they are large and in ASCII.
    """

    head: RawJson
    tail: RawJson | None = None
    views: tuple[memoryview, ...] = ()

    def with_token(self, token: RequestId) -> RawJson:
        """The text with `token` in place of the sender's; unchanged if the sender gave none."""
        if self.tail is None:
            return self.head
        return f"{self.head}{token if isinstance(token, int) else dump(token)}{self.tail}"

    @property
    def size(self) -> int:
        """The number of characters, without any token."""
        return len(self.head) + len(self.tail or "")


def spliced_params(request: Request, edits: Edits, token: Member | None) -> Params:
    """The parameters of a request with these edits, split at its progress token if it has one.

    Positions are those of the whole message.
    """
    text, begin = request.text, request.params_at
    end = begin + len(request.params_text)
    if request.body is not None and not edits:
        view = memoryview(request.body)
        if token is None:
            return Params(request.params_text, None, (view[begin:end],))
        return Params(
            text[begin : token.start], text[token.end : end], (view[begin : token.start], view[token.end : end])
        )
    if token is None:
        return Params(splice_range(text, begin, end, edits))
    return Params(splice_range(text, begin, token.start, edits), splice_range(text, token.end, end, edits))


def amended(response: Response, edits: Edits) -> MessageText:
    """The text of a response with these edits."""
    return splice(response.text, edits) if response.body is None else LargeJson(response.body).spliced(edits)


def error_of(response: Response) -> str | None:
    """The error label of a server's response."""
    if response.error is not None:
        return str(response.error_code)
    members = (response.result and response.result.members) or {}
    return TOOL_ERROR if "isError" in members and members["isError"].value is True else None


# --- reading parameters -----------------------------------------------------------------------------------------------


def value_of(members: Members, name: str) -> Any:
    """A member's value; None without it, `UNREAD` for an object or array of too many parts."""
    member = members.get(name)
    return None if member is None else member.value


def meta_of(members: Members) -> Members:
    """The members of an object's `_meta`; none if it has none, or one that is no object."""
    meta = members.get("_meta")
    return (meta.members or {}) if meta else {}


def required_string(params: Members, name: str, label: str) -> str:
    """A required string. Raises InvalidParams for anything else; `label` begins the message."""
    member = params.get(name)
    value = None if member is None else member.value
    if not isinstance(value, str):
        raise InvalidParams(f"{label} must be a string")
    return value


def required_unicode(params: Members, name: str, label: str) -> str:
    """A required string as `required_string`, which can be encoded: MalformedMessage for a lone
    surrogate.
    """
    value = required_string(params, name, label)
    if not is_unicode(value):
        raise MalformedMessage(f"{label} is not valid Unicode")
    return value


def is_unicode(value: str) -> bool:
    """Whether a string can be encoded: one from an escaped lone surrogate cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def tool_name(request: Request) -> str:
    """The name of the tool to call. It is bounded because it is stored and compared.

    Raises InvalidParams, and MalformedMessage for a lone surrogate.
    """
    name = required_string(request.params, "name", "The tool's name")
    if not name.isascii() and not is_unicode(name):
        raise MalformedMessage("The tool's name is not valid Unicode")
    if len(name) > MAX_TOOL_NAME:
        raise InvalidParams(f"The tool's name is longer than {MAX_TOOL_NAME} characters")
    arguments = request.params.get("arguments")
    if arguments is not None and request.text[arguments.start] != "{":
        raise InvalidParams("The arguments must be an object")
    return name


def task_id(params: Members) -> TaskId:
    """The task id of a request. A wrong form raises TaskNotFound, as an unknown id does (T24)."""
    member = params.get("taskId")
    value = None if member is None else member.value
    if not isinstance(value, str) or _TASK_ID(value) is None:
        raise TaskNotFound
    return value


def is_task_id(value: object) -> bool:
    """Whether the value has the form of taskgate's task ids."""
    return isinstance(value, str) and _TASK_ID(value) is not None


def check_capabilities(declared: Member | None) -> None:
    """Raise InvalidParams for capabilities that are too large to be stored with a session."""
    if declared is not None and declared.end - declared.start > MAX_CAPABILITIES:
        raise InvalidParams(f"The capabilities are longer than {MAX_CAPABILITIES} characters")


def short_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """The name and version of a host, cut to `MAX_INFO`. The rest of its info may be large and is
    unused.
    """
    texts = {name: info[name] for name in ("name", "version") if isinstance(info.get(name), str)}
    return {name: text[:MAX_INFO] for name, text in texts.items()}


_TASK_ID: Final = re.compile(TASK_ID).fullmatch
