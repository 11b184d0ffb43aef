"""GET stream of a session: `ServerStream` receives what the server sends outside of answers.

Most servers also send progress there. It is opened once after the handshake, and reopened from the
last event whenever it ends. A server that refuses it for good is not asked again. Each `Talk` has
at most one; messages go to `Conversation.hear_aside`.
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
    """One GET stream, kept open in a background task until `close`.

    `hear` is called with every message, in order; messages for which it raises UpstreamFailed are
    skipped. `lost` is called once if the answer to a GET shows that the server ended the session;
    the stream then ends. The session id in `headers` varies the pauses between streams.
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
        # The pause in seconds that the server asked for on the last stream.
        self._wished_pause: float | None = None
        self._session = headers.get(SESSION_HEADER, "")
        self._hear = hear
        self._lost = lost
        self._observer = observer
        self._clock = clock
        self._known = asyncio.Event()
        # An empty context: the stream serves all later uses of the session.
        self._task = asyncio.get_running_loop().create_task(self._listen(), context=Context())

    async def known(self, within: float) -> None:
        """Wait for the first attempt, at most `within` seconds: opened, refused or failed."""
        try:
            async with asyncio.timeout(within):
                await self._known.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """End the stream, and wait for its end."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _listen(self) -> None:
        """Open streams, one after the other, with pauses that grow while streams are short."""
        pause = PAUSE_FIRST
        for turn in count():
            began = self._clock.elapsed()
            try:
                if not await self._read_stream():
                    return
            except UpstreamFailed as failure:
                if failure.reason == UpstreamReason.SESSION_LOST.value:
                    self._lost()
                    return
                if failure.reason == UpstreamReason.REDIRECT.value:
                    # It would be the same for every attempt.
                    return
            finally:
                self._known.set()
            if self._clock.elapsed() - began > PAUSE_MOST:
                pause = PAUSE_FIRST
            if self._wished_pause is not None:
                # The server asked for this pause; its stream did not break.
                await asyncio.sleep(self._wished_pause * (0.5 + share(self._session, turn)))
                pause = PAUSE_FIRST
                continue
            await asyncio.sleep(pause * share(self._session, turn))
            pause = min(pause * 2, PAUSE_MOST)

    async def _read_stream(self) -> bool:
        """Open one stream and read it to its end; returns whether to try again."""
        self._wished_pause = None
        headers = takes_up(self._headers, self._last_event)
        incoming = await self._transport.send(Outgoing(verb="GET", headers=headers, only_listens=True))
        try:
            if incoming.status in FOR_NOW or incoming.status == TAKEN:
                return True
            if incoming.status != 200 or not incoming.streams:
                # The server may have forgotten only the event: open the stream without it next
                # time.
                was_resumed, self._last_event = self._last_event is not None, None
                return was_resumed
            self._known.set()
            await self._hear_all(incoming)
            return True
        finally:
            incoming.release()

    async def _hear_all(self, incoming: Incoming) -> None:
        self._observer.stream_opened("get")
        try:
            async for message in incoming.messages():
                await self._hear_one(message)
        finally:
            self._observer.stream_ended("get")
            self._last_event = incoming.last_event or self._last_event
            self._wished_pause = wished(incoming)

    async def _hear_one(self, message: bytes) -> None:
        # An invalid message answers no call, and the stream is still usable.
        with suppress(UpstreamFailed):
            await self._hear(message)
