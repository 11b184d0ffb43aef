"""The GET stream of a session: what a server says outside of any answer, progress of most servers included.

Opened once after the handshake and again whenever it breaks, from the last event that came; a server that has none
says so and is left alone. What must not live here: what is heard.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import Context
from itertools import count

from taskgate.clock import Clock
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.vocabulary import SESSION_HEADER
from taskgate.upstream.base import Incoming, Outgoing, Transport
from taskgate.upstream.legacy.resuming import TAKEN, takes_up, wished
from taskgate.upstream.pauses import FOR_NOW, PAUSE_FIRST, PAUSE_MOST, share
from taskgate.upstream.settings import UpstreamObserver


class ServerStream:
    """Holds one GET stream open until it is closed. `hear` gets every message; what it cannot read is passed over.

    The session's id in `headers` tells streams apart. `lost` is told where the stream says that the session is over.
    """

    def __init__(
        self,
        transport: Transport,
        headers: Mapping[str, str],
        *,
        hear: Callable[[bytes], Awaitable[None]],
        lost: Callable[[], None],
        observer: UpstreamObserver,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._headers = headers
        self._last_event: str | None = None
        self._wished: float | None = None
        self._session = headers.get(SESSION_HEADER, "")
        self._hear = hear
        self._lost = lost
        self._observer = observer
        self._clock = clock
        self._known = asyncio.Event()
        # It is heard for whatever the session is used for later.
        self._task = asyncio.get_running_loop().create_task(self._listen(), context=Context())

    async def known(self, within: float) -> None:
        """Wait until the server opened the stream or refused to, but no longer than `within` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._known.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """End the stream, and wait until it has ended."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _listen(self) -> None:
        pause = PAUSE_FIRST
        for turn in count():
            began = self._clock.elapsed()
            try:
                if not await self._hold():
                    return
            except UpstreamFailed as failure:
                if failure.reason == UpstreamReason.SESSION_LOST.value:
                    self._lost()
                    return
                if failure.reason == UpstreamReason.REDIRECT.value:
                    return
            finally:
                self._known.set()
            if self._clock.elapsed() - began > PAUSE_MOST:
                pause = PAUSE_FIRST
            if self._wished is not None:
                # The server means to be asked again, and no sooner: its stream did not break.
                await asyncio.sleep(self._wished * (0.5 + share(self._session, turn)))
                pause = PAUSE_FIRST
                continue
            await asyncio.sleep(pause * share(self._session, turn))
            pause = min(pause * 2, PAUSE_MOST)

    async def _hold(self) -> bool:
        """Hear one stream to its end; whether there may be another."""
        self._wished = None
        headers = takes_up(self._headers, self._last_event)
        incoming = await self._transport.send(Outgoing(verb="GET", headers=headers, only_listens=True))
        try:
            if incoming.status in FOR_NOW or incoming.status == TAKEN:
                return True
            if incoming.status != 200 or not incoming.streams:
                # What it does not know any more may be the event alone.
                was_resumed, self._last_event = self._last_event is not None, None
                return was_resumed
            self._known.set()
            await self._hear_all(incoming)
            return True
        finally:
            await incoming.release()

    async def _hear_all(self, incoming: Incoming) -> None:
        self._observer.stream_opened("get")
        try:
            async for message in incoming.messages():
                await self._hear_one(message)
        finally:
            self._observer.stream_ended("get")
            self._last_event = incoming.last_event or self._last_event
            self._wished = wished(incoming)

    async def _hear_one(self, message: bytes) -> None:
        # Whatever it is, it answers nothing: the stream is still good for the next message.
        with suppress(UpstreamFailed):
            await self._hear(message)
