"""A stream that another process has is sent to its host from here, as it grows in the log.

What must not live here: whether that may be (`shared_resumable`), and what a host is told of a call that is lost
(`resuming`). What holds: what is sent is what was written, in its order, and the end of what can be told is the end of
the connection, never silence.
"""

import asyncio
from datetime import timedelta
from typing import Final

from taskgate.errors import StoreUnavailable
from taskgate.protocol import sse
from taskgate.stores.shared import StreamSegment
from taskgate.streams.entries import LAST, LEFT, follow_on, for_carrier, halts
from taskgate.streams.event_stream import ForwardedEventStream
from taskgate.streams.shared_resumable import Left, PutDown, SharedResumableStreams, TakenUp

LOOK: Final = timedelta(seconds=1)
"""How long a stream may be silent before it is looked at again: its process may be gone."""
SIGN: Final = 15.0
"""Seconds between signs of life to the process that has the stream."""
RETRY: Final = 0.5
"""Seconds until a store is asked again that did not answer."""


class Carriage:
    """One stream on its way through here, after `number`. `lost` is what its host is told where nobody has it now."""

    def __init__(
        self, shared: SharedResumableStreams, session: str, stream: str, left: Left, *, number: int, lost: str
    ) -> None:
        self._shared = shared
        self._session = session
        self._stream = stream
        self._carrier = left.carrier or ""
        self._holder = left.holder
        self._number = number
        self._lost = lost
        self._said_at = asyncio.get_running_loop().time()
        self._is_over = False

    async def carry(self, feed: ForwardedEventStream) -> None:
        """Send what comes, until the stream is over, is carried elsewhere, or its host leaves."""
        pumping = asyncio.get_running_loop().create_task(self._pump(feed))
        try:
            await feed.ended()
        finally:
            pumping.cancel()
            await asyncio.wait([pumping])
            if not self._is_over:
                word = PutDown(self._session, self._stream, self._carrier)
                self._shared.company.say(word, to=self._holder)

    async def _pump(self, feed: ForwardedEventStream) -> None:
        while not feed.closed:
            try:
                passage = await self._shared.log.read(self._session, self._stream, after=self._number)
                if not self._pass_on(passage, feed):
                    return
                await self._shared.log.wait_for_events(self._session, self._stream, timeout=LOOK)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)
            self._give_sign()
            while (clog := feed.clog()) is not None:
                await clog

    def _pass_on(self, passage: StreamSegment | None, feed: ForwardedEventStream) -> bool:
        """Send what is new; whether there may be more."""
        if passage is None or not follow_on(passage.events, self._number):
            # It cannot be told wholly any more; the host hears of that when it comes back.
            feed.close()
            return False
        for self._number, entry in passage.events:
            if halts(entry, self._carrier):
                self._is_over = True
                feed.part()
                return False
            piece = for_carrier(entry, self._carrier)
            if piece:
                feed.pass_on(piece)
        ending = passage.events[-1][1][:1] if passage.events else b""
        if passage.over or ending in (LAST, LEFT) or not passage.lives:
            self._is_over = True
            if ending != LAST:
                feed.pass_on(sse.event(self._lost))
            feed.part()
            return False
        return True

    def _give_sign(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said_at > SIGN:
            self._said_at = now
            self._shared.company.say(TakenUp(self._session, self._stream, self._carrier), to=self._holder)
