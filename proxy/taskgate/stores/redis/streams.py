"""The events of hosts' streams in Redis or Valkey: `RedisStreamLog`, and `StreamWatch` for new
events.

    stream:NAME     HASH    about (the writer's description), holder (the writing process),
                            newest (number of the newest event), dropped (number of the newest
                            event that is gone), size (bytes of the events), over ("1" at the end)
    events:NAME     STREAM  events, each under its number
    grown:NAME      channel that announces new events

A name is the digest of session and stream. One process writes a stream, any process may read it.
`streams/event_log` is the user.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from datetime import timedelta
from logging import getLogger
from typing import Any, Final

from redis.exceptions import RedisError

from taskgate.stores.codec import pack_text, unpack_text
from taskgate.stores.redis.client import RedisClient, Value, read_script
from taskgate.stores.redis.options import KeyNames
from taskgate.stores.shared import StreamSegment
from taskgate.system.background import cancel_and_wait
from taskgate.system.log_throttle import ThrottledLog

# --- new events -------------------------------------------------------------------------------------------------------


_PING_AFTER: Final = 1.5
"""Seconds without a message before a PING."""
_LINGER: Final = 10.0
"""Seconds that a channel without waiters stays subscribed: a reader usually returns."""
_PAUSE: Final = 0.5
"""Seconds of pause for waiters after a failure of the server."""
_CONNECTION_ERRORS: Final = (RedisError, OSError, TimeoutError)

log = getLogger("taskgate.stores")


class _Channel:
    """A subscribed channel: its waiters' event, their number, and the end of the last wait.

    `event` is set by an announcement or a new subscription, and cleared at the end of each wait.
    """

    __slots__ = ("event", "last_wait", "waiting")

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.waiting = 0
        self.last_wait = 0.0


class StreamWatch:
    """The wait for announcements on channels, over one connection for all waiters. It belongs to one
    event loop.

    The connection exists as long as there are subscribed channels. An announcement is a hint: it may
    be missing or late, so a waiter reads again in any case.
    """

    def __init__(self, open_pubsub: Callable[[], Any]) -> None:
        self._open = open_pubsub
        self._channels: dict[str, _Channel] = {}
        self._pubsub: Any | None = None
        self._listening: asyncio.Task[None] | None = None
        self._closed = False
        self._failed = ThrottledLog(log, "The subscription to new stream events failed and is renewed")

    async def wait(self, name: str, timeout: timedelta) -> None:
        """Wait for an announcement on the channel since the last wait, at most `timeout`.

        Also returns once the channel is newly subscribed: announcements before that are missing.
        """
        if self._closed:
            return
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = _Channel()
            await self._subscribe(name)
        channel.waiting += 1
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await channel.event.wait()
        except TimeoutError:
            pass
        finally:
            channel.event.clear()
            channel.waiting -= 1
            channel.last_wait = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """End every wait and close the connection."""
        self._closed = True
        task = self._listening
        if task is not None:
            await cancel_and_wait(task)
        self._wake_all()

    async def _subscribe(self, name: str) -> None:
        if self._listening is None:
            # An empty context: the task serves all waiters, not only the first request.
            self._listening = asyncio.create_task(self._listen(), name="taskgate-stream-growth", context=Context())
        elif self._pubsub is not None:
            # The listening task meets the same failure.
            with suppress(*_CONNECTION_ERRORS):
                await self._pubsub.subscribe(name)

    async def _listen(self) -> None:
        """Listen until no channel is left or the connection fails, then wake all waiters."""
        try:
            await self._listen_over(self._open())
        except _CONNECTION_ERRORS:
            await asyncio.sleep(_PAUSE)
        except Exception as error:  # after any failure the waiters wake, and the next one subscribes again
            self._failed.emit(error=error)
            await asyncio.sleep(_PAUSE)
        finally:
            self._listening = None
            self._wake_all()

    async def _listen_over(self, pubsub: Any) -> None:
        try:
            async with asyncio.timeout(2 * _PING_AFTER):
                await pubsub.subscribe(*self._channels)
            self._pubsub = pubsub
            await self._subscribe_missing(pubsub)
            while self._channels:
                await self._receive(pubsub)
        finally:
            self._pubsub = None
            with suppress(Exception):
                await pubsub.aclose()

    async def _subscribe_missing(self, pubsub: Any) -> None:
        """Subscribe the channels that were added before the connection was open."""
        missing = [name for name in self._channels if name.encode() not in pubsub.channels]
        if missing:
            await pubsub.subscribe(*missing)

    async def _receive(self, pubsub: Any) -> None:
        message = await pubsub.get_message(timeout=_PING_AFTER)
        if message is None:
            await pubsub.ping()
            message = await pubsub.get_message(timeout=2 * _PING_AFTER)
            if message is None:
                raise TimeoutError
        self._wake(message)
        await self._drop_idle(pubsub)

    def _wake(self, message: dict[str, Any]) -> None:
        if message["type"] in ("message", "subscribe"):
            channel = self._channels.get(message["channel"].decode())
            if channel is not None:
                channel.event.set()

    async def _drop_idle(self, pubsub: Any) -> None:
        """Drop channels without waiters for a while; without the last one, the connection ends."""
        now = asyncio.get_running_loop().time()
        idle = [name for name, each in self._channels.items() if not each.waiting and now - each.last_wait > _LINGER]
        for name in idle:
            del self._channels[name]
        if idle and self._channels:
            await pubsub.unsubscribe(*idle)

    def _wake_all(self) -> None:
        """Wake all waiters, which read again; the next wait subscribes again."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.event.set()


# --- the log ---------------------------------------------------------------------------------------------------------


_BEGIN: Final = read_script("stream_begin.lua")
_APPEND: Final = read_script("stream_append.lua")
_READ: Final = read_script("stream_read.lua")

MOST_EVENTS: Final = 2_048
MOST_BYTES: Final = 1024 * 1024
"""The bounds of a stream; the oldest events are dropped for newer ones, but never the newest."""


class RedisStreamLog:
    """A StreamLog."""

    def __init__(self, client: RedisClient, keys: KeyNames) -> None:
        self._client = client
        self._keys = keys
        self._watch = StreamWatch(client.pubsub)

    async def begin(self, session: str, stream: str, *, holder: str, about: bytes, keep: timedelta) -> None:
        values = (pack_text(holder), about, _milliseconds(keep))
        await self._client.run(_BEGIN, self._names(session, stream), values)

    async def append(
        self, session: str, stream: str, events: Sequence[tuple[int, bytes]], *, over: bool, keep: timedelta
    ) -> None:
        arguments: list[Value] = [
            self._channel(session, stream),
            _milliseconds(keep),
            int(over),
            MOST_EVENTS,
            MOST_BYTES,
        ]
        for number, event in events:
            arguments += (number, event)
        await self._client.run(_APPEND, self._names(session, stream), arguments)

    async def read(self, session: str, stream: str, *, after: int) -> StreamSegment | None:
        names = (*self._names(session, stream), self._keys.of("lives"))
        reply: Any = await self._client.run(_READ, names, (after,))
        if reply is None:
            return None
        about, holder, newest, dropped, over, lives, entries = reply
        return StreamSegment(
            about=about,
            events=tuple((int(id.partition(b"-")[0]), fields[1]) for id, fields in entries),
            newest=int(newest),
            over=bool(over),
            whole=after >= int(dropped),
            holder=unpack_text(holder),
            lives=bool(lives),
        )

    async def wait_for_events(self, session: str, stream: str, *, timeout: timedelta) -> None:
        await self._watch.wait(self._channel(session, stream), timeout)

    async def forget(self, session: str, stream: str) -> None:
        await self._client.do("DEL", *self._names(session, stream))

    async def close(self) -> None:
        """End every wait."""
        await self._watch.close()

    def _names(self, session: str, stream: str) -> tuple[str, str]:
        return self._keys.of("stream", session, stream), self._keys.of("events", session, stream)

    def _channel(self, session: str, stream: str) -> str:
        return self._keys.of("grown", session, stream)


def _milliseconds(span: timedelta) -> int:
    return max(1, round(span.total_seconds() * 1000))
