"""An open event stream of `subscriptions/listen`: `ListenStream`.

`Subscriptions` creates one per request and sends notifications with `send`, inside the block
`serving`. The block ends when the host disconnects or is too slow, when the token of the request
expires, or when `end` is called. After the token has expired, nothing more is sent (T9).
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
"""Characters above which a message may exceed the queue of the stream.

Otherwise such a message would end the stream, and again each time that the host reconnects.
"""


class ListenStream:
    """The answer to one request, as an event stream. `until` is when the request's token expires,
    None if it does not.
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
    def serving(self) -> Iterator[None]:
        """The block in which the stream is served; entered once.

        Whatever ends the stream cancels the block, which then raises ScopeCancelled.
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
        """Cancel the block `serving`. Does nothing after its end."""
        self._work.cancel()

    def send(self, message: MessageText) -> None:
        """Send a message. If too much is queued for a slow host, the stream ends."""
        if self._until is not None and self._clock.wall() >= self._until:
            self.end()
            return
        self.has_begun = True
        if len(message) > LARGE and not self._feed.is_congested:
            self._feed.send_answer(message)
        else:
            self._feed.send(message)

    async def wait_for_room(self) -> None:
        """Wait until the host has read enough of what is queued; returns at once if little is."""
        room = self._feed.backpressure()
        if room is not None:
            await room
