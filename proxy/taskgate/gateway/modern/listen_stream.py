"""One open stream of `subscriptions/listen`, as those see it who tell something on it.

What must not live here: what is told. What holds: nothing is, once the token is over that it was asked for with (T9).
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
from taskgate.system.interruption import Interruptible

LARGE: Final = QUEUE_BYTES // 16
"""Letters of a message that is told though a little waits: a stream that ended for it would never get beyond it."""


class ListenStream:
    """The answer to a request, an event stream from now on; told nothing from `until` on, where that is not None."""

    def __init__(self, exchange: Exchange, until: datetime | None, clock: Clock) -> None:
        self._exchange = exchange
        self._feed = exchange.stream()
        self._until = until
        self._clock = clock
        self._work = Interruptible()
        self.has_begun = False
        """Whether anything was said."""

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Work for it, which raises Interrupted where the host leaves or is too slow, the token ends, or at `end`."""
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
        """Give up the work for it."""
        self._work.interrupt()

    def say(self, message: MessageText) -> None:
        """Say something; a host too slow for what waits loses the stream."""
        if self._until is not None and self._clock.wall() >= self._until:
            self.end()
            return
        self.has_begun = True
        if len(message) > LARGE and not self._feed.is_congested:
            self._feed.send_answer(message)
        else:
            self._feed.send(message)

    async def room(self) -> None:
        """Wait while so much waits for a slow host that nothing more should be said."""
        room = self._feed.backpressure()
        if room is not None:
            await room
