"""The three kinds of JSON-RPC message: each the text it came in and the places of what matters in it.

Only shapes. What may become one of them is judged elsewhere.
"""

from typing import Final, NamedTuple, final

from taskgate.domain.record import RequestId
from taskgate.jsontext.spans import CachedShape, Member, Members, RawJson, Shape

ENVELOPE: Final[Shape] = {
    "params": {"_meta": CachedShape('{"io.modelcontextprotocol/'), "task": {}},
    "result": {"_meta": {}},
    "error": {},
}
"""What the gateway may have to read or amend in any message."""


class Request(NamedTuple):
    """A request; `params` is an object, empty where the message has none. Its text starts at `params_at` of `text`."""

    id: RequestId
    method: str
    params: Members
    text: str
    params_text: RawJson
    params_at: int = 0


class Notification(NamedTuple):
    """A notification; `params` as in a request."""

    method: str
    params: Members
    text: str
    params_text: RawJson


@final
class Response(NamedTuple):
    """A response: exactly one of `result` and `error` is a member."""

    id: RequestId
    result: Member | None
    error: Member | None
    text: str
    id_span: tuple[int, int]

    @property
    def error_code(self) -> int | None:
        """The code of the error, of which no more is read; None for a result."""
        code: int | None = None if self.error is None else (self.error.members or {})["code"].value
        return code


Message = Request | Notification | Response
