"""A request, a server's question and a dialect as the parts of a call see them, without a socket."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from helpers.records import new_peer
from taskgate.auth.context import AuthContext
from taskgate.protocol.host_requests import RequestMeta
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification, Params
from taskgate.protocol.server_messages import Question
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import Admission, AdmitLarge, HttpMethod
from taskgate.streams.resumable import StreamOpener
from taskgate.upstream.calls import Principal


class Heard(EventStream):
    """A stream that keeps what is said on it; `clogged` is what `clog` gives."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.clogged: Any = None

    def send_now(self, message: str) -> bool:
        self.said.append(message)
        return True

    send = send_now

    def backpressure(self) -> Any:
        return self.clogged


class Talk:
    """An exchange; `feed` is None until its answer became a stream, `leave` is what the host does.

    `spaces` is how often its host was kept waiting for a document.
    """

    def __init__(self, *, accepts_json: bool = True, accepts_stream: bool = True) -> None:
        self.head = Admission(
            method=HttpMethod.POST, path="/reports/mcp", accepts_json=accepts_json, accepts_stream=accepts_stream
        )
        self.address = "192.0.2.7"
        self.fields: Collection[tuple[str, str]] = ()
        self.feed: Heard | None = None
        self.spaces = 0
        self._gone = False
        self._forgets: list[Callable[[], None]] = []

    @property
    def said(self) -> list[str]:
        """What went out on its stream."""
        return [] if self.feed is None else self.feed.said

    async def body(self, budget: BytesInFlight, caller: AuthContext, admit_large: AdmitLarge) -> bytes:
        raise AssertionError("the body was read before")

    def count_answer(self, size: int) -> None:
        raise AssertionError("nothing is answered here")

    def stream(self) -> Heard:
        assert self.head.accepts_stream, "the host takes no stream"
        self.feed = self.feed or Heard()
        return self.feed

    def begin_document(self) -> bool:
        self.spaces += not self.is_streaming
        return not self.is_streaming

    @property
    def is_streaming(self) -> bool:
        return self.feed is not None

    @property
    def has_begun(self) -> bool:
        return self.is_streaming or self.spaces > 0

    def on_disconnect(self, forget: Callable[[], None]) -> None:
        if self._gone:
            forget()
        else:
            self._forgets.append(forget)

    def leave(self) -> None:
        """The host leaves."""
        self._gone = True
        for forget in self._forgets:
            forget()

    @property
    def opener(self) -> StreamOpener | None:
        return None

    @opener.setter
    def opener(self, opener: StreamOpener | None) -> None:
        raise AssertionError("no stream of this era is kept")

    def resume(self, feed: EventStream, missed: Sequence[bytes]) -> bool:
        raise AssertionError("no stream of this era is taken up again")


class Wonder:
    """A question of a server; see ServerQuestion. `replies` is what the server was told."""

    def __init__(self, size: int = 0, *, is_withdrawn: bool = False) -> None:
        self.key = None
        self.question = Question("elicitation/create", Params("x" * size) if size else None)
        self.replies: list[str] = []
        self._forgets: list[Callable[[], None]] = []
        self._is_withdrawn = is_withdrawn

    @property
    def is_open(self) -> bool:
        return not self.replies and not self._is_withdrawn

    def answer(self, answer: str, principal: Principal | None = None) -> None:
        self.replies.append(answer)

    def refuse(self) -> None:
        self.answer("refused")

    def tell(self, notification: Notification) -> None:
        raise AssertionError("hosts of this era tell nothing")

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        if self._is_withdrawn:
            forget()
        self._forgets.append(forget)

    def withdraw(self) -> None:
        """The server gives it up."""
        self._is_withdrawn = True
        for forget in self._forgets:
            forget()


class Words:
    """What of a dialect is needed to tell a host something: texts that a test can read."""

    def notification(self, notification: Notification, token: object, id: object = None) -> str:
        named = "" if id is None else f" on {id}"
        return f"{notification.method} {notification.params_text} {token}{named}"

    def progress(self, token: object, done: float, message: str) -> str:
        return f"{'alive' if message == 'Still running' else message} {done} {token}"

    def wants_log(self, notification: Notification, level: str | None) -> bool:
        return level == "info"


def said(**changes: Any) -> RequestMeta:
    """What a request says of itself."""
    usual: dict[str, Any] = {"log_level": None, "progress_token": None, "declares_tasks": False}
    return RequestMeta(**{"peer": new_peer(), **usual, **changes})


def noted(method: str, params: str = "{}") -> Notification:
    """A notification of a server."""
    found = parse(f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'.encode(), max_depth=9)
    assert isinstance(found, Notification)
    return found
