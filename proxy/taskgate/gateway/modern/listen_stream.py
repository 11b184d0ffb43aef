"""An open event stream of `subscriptions/listen`: `ListenStream`.

`Subscriptions` creates one per request and sends notifications with `say`, inside the block `kept`.
After the token of the request has expired, nothing more is sent (T9).
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from taskgate.clock import Clock
from taskgate.gateway.listen import LONGEST_TIMER
from taskgate.jsontext.large import MessageText
from taskgate.streams.exchange import Exchange
from taskgate.streams.sse_connection import QUEUE_BYTES
from taskgate.system.cancel_scope import CancelScope

LARGE: Final = QUEUE_BYTES // 16
"""Characters of a large message. It is sent although a little is queued: otherwise the stream would
end for it each time that the host reconnects."""


class ListenStream:
    """The answer to a request, as an event stream. Nothing is sent from `until` on, if that is
    given.
    """

    def __init__(self, exchange: Exchange, until: datetime | None, clock: Clock) -> None:
        self._exchange = exchange
        self._feed = exchange.stream()
        self._until = until
        self._clock = clock
        self._work = CancelScope()
        self.has_begun = False
        """Whether a message was sent."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """The block in which the stream is served. It raises Interrupted at the first of these: the
        host disconnects or is too slow, the token expires, `end` is called.
        """
        expiry: asyncio.TimerHandle | None = None
        with self._work:
            if self._until is not None:
                left = (self._until - self._clock.wall()).total_seconds()
                expiry = asyncio.get_running_loop().call_later(min(left, LONGEST_TIMER), self.end)
            self._feed.on_connection_lost(self.end)
            self._exchange.on_disconnect(self.end)
            try:
                yield
            finally:
                if expiry is not None:
                    expiry.cancel()

    def end(self) -> None:
        """Interrupt the block `kept`."""
        self._work.cancel()

    def say(self, message: MessageText) -> None:
        """Send a message. A host that is too slow loses the stream."""
        if self._until is not None and self._clock.wall() >= self._until:
            self.end()
            return
        self.has_begun = True
        if len(message) > LARGE and not self._feed.is_congested:
            self._feed.send_answer(message)
        else:
            self._feed.send(message)

    async def room(self) -> None:
        """Wait while the host is too slow to be sent more."""
        room = self._feed.backpressure()
        if room is not None:
            await room
