"""A request that waits at another process, as if it had come to this one: what it is told goes there.

What must not live here: how that gets there.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from taskgate.jsontext.large import MessageText, to_string
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import UNKNOWN, HttpMethod, InboundHead
from taskgate.streams.resumable import StreamOpener


class _RemoteEventStream(EventStream):
    """The stream of its answer; nobody here knows how fast its host reads."""

    __slots__ = ("_exchange", "_tell")

    def __init__(self, exchange: "RemoteExchange", tell: Callable[[str], None]) -> None:
        super().__init__()
        self._exchange = exchange
        self._tell = tell

    @property
    def is_closed(self) -> bool:
        """See EventStream."""
        return self._exchange.is_gone

    @property
    def is_ended(self) -> bool:
        """See EventStream."""
        return self._exchange.is_gone

    def send_now(self, message: MessageText) -> bool:
        """See EventStream."""
        if self.is_closed:
            return False
        self._tell(to_string(message))
        return True

    def send_answer(self, message: MessageText) -> None:
        """See EventStream."""
        self.send_now(message)


class RemoteExchange:
    """See Exchange. `tell` says something to its host; `heard` is when the other process last showed that it lives."""

    def __init__(self, tell: Callable[[str], None], *, accepts_stream: bool) -> None:
        self.head: Final = InboundHead(HttpMethod.POST, "", accepts_stream=accepts_stream)
        self.address: Final = UNKNOWN
        self.heard = asyncio.get_running_loop().time()
        self.is_gone = False
        self._feed = _RemoteEventStream(self, tell)
        self._has_begun = False
        self._waiting: list[Callable[[], None]] = []

    def leave(self) -> None:
        """The host has left, or nobody is there any more who would tell it something."""
        self.is_gone = True
        waiting, self._waiting = self._waiting, []
        for forget in waiting:
            forget()

    async def body(self, budget: BytesInFlight, caller: str) -> bytes:
        """See Exchange: it was read where it came to."""
        raise AssertionError("the body stays on the replica that forwarded the request")

    def count_answer(self, size: int) -> None:
        """See Exchange: its bytes count where it came to."""

    def stream(self) -> EventStream:
        """See Exchange."""
        self._has_begun = True
        return self._feed

    def make_resumable(self, resumable: StreamOpener) -> None:
        """See Exchange: streams of this era are not taken up again."""

    def resume(self, feed: EventStream, missed: Sequence[bytes]) -> bool:
        """See Exchange."""
        return False

    @property
    def is_streaming(self) -> bool:
        """See Exchange."""
        return self._has_begun

    def on_disconnect(self, forget: Callable[[], None]) -> None:
        """See Exchange."""
        if self.is_gone:
            forget()
        else:
            self._waiting.append(forget)
