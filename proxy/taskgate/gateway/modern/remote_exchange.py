"""The exchange of a request that another replica received: `RemoteExchange`.

`RemoteRetries` creates one for each retry that another replica forwards to this one. `Calls` then
serves the retry like a request of its own listener. Messages for the host go to `tell`, which sends
them over the cluster bus to the replica that has the connection. The exchange ends with
`disconnect`, when the host or that replica is gone.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from taskgate.jsontext.large import MessageText, to_string
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import UNKNOWN, Admission, HttpMethod
from taskgate.streams.resumable import StreamOpener


class _RemoteEventStream(EventStream):
    """The event stream of the answer. The host's reading speed is unknown here, so nothing is
    queued.
    """

    __slots__ = ("_exchange", "_tell")

    def __init__(self, exchange: "RemoteExchange", tell: Callable[[str], None]) -> None:
        super().__init__()
        self._exchange = exchange
        self._tell = tell

    @property
    def is_closed(self) -> bool:
        return self._exchange.is_gone

    @property
    def is_ended(self) -> bool:
        return self._exchange.is_gone

    def send_now(self, message: MessageText) -> bool:
        if self.is_closed:
            return False
        self._tell(to_string(message))
        return True

    send = send_now

    def send_answer(self, message: MessageText) -> None:
        self.send_now(message)


class RemoteExchange:
    """An `Exchange` whose host is connected to another replica.

    `tell` sends a message to that host. `heard` is the loop time of the replica's last heartbeat,
    set by `RemoteRetries`. `is_gone` is set by `disconnect`.
    """

    def __init__(self, tell: Callable[[str], None], *, accepts_stream: bool) -> None:
        self.head: Final = Admission(HttpMethod.POST, "", accepts_stream=accepts_stream)
        # The replica that received the request has compared them with its body.
        self.fields: Final = ()
        self.address: Final = UNKNOWN
        # Never called: streams of the modern era are not resumable.
        self.opener: StreamOpener | None = None
        self.heard = asyncio.get_running_loop().time()
        self.is_gone = False
        self._feed = _RemoteEventStream(self, tell)
        self._has_begun = False
        self._callbacks: list[Callable[[], None]] = []

    def disconnect(self) -> None:
        """Handle that the host has disconnected, or that its replica is gone.

        The callbacks of `on_disconnect` are called, and later messages are dropped.
        """
        self.is_gone = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    async def body(self, budget: BytesInFlight, caller: str) -> bytes:
        raise AssertionError("the body stays on the replica that forwarded the request")

    def count_answer(self, size: int) -> None:
        """Count nothing: the replica that received the request counts its bytes."""

    def stream(self) -> EventStream:
        self._has_begun = True
        return self._feed

    def resume(self, feed: EventStream, missed: Sequence[bytes]) -> bool:
        return False

    @property
    def is_streaming(self) -> bool:
        return self._has_begun

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if self.is_gone:
            callback()
        else:
            self._callbacks.append(callback)
