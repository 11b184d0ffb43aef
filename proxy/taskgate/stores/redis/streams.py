"""The events of hosts' streams in Redis or Valkey, where every process finds them.

    stream:NAME     HASH    about, holder, newest, dropped (the newest event that is not there any more), size, over
    events:NAME     STREAM  events, each under its number
    grown:NAME      channel on which is said that there are more

A name is the digest of session and stream.
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
from taskgate.stores.redis.keys import KeyNames
from taskgate.stores.shared import StreamSegment
from taskgate.system.log_throttle import ThrottledLog

# --- news of streams -------------------------------------------------------------------------------------------------


_QUIET: Final = 1.5
"""Seconds without a message after which the connection is asked whether it still is one, and for its answer."""
_LINGER: Final = 10.0
"""Seconds for which a channel is listened to that nobody waits for: who read comes back."""
_PAUSE: Final = 0.5
"""Seconds that those are kept waiting who would listen to a server that is not there."""
_FAILURES: Final = (RedisError, OSError, TimeoutError)

log = getLogger("taskgate.stores")


class _Channel:
    """One that is listened to: how many wait, and since when nobody does."""

    __slots__ = ("since", "told", "waiting")

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.waiting = 0
        self.since = 0.0


class StreamWatch:
    """Listens to the channels that somebody waits for. Belongs to one event loop."""

    def __init__(self, open_pubsub: Callable[[], Any]) -> None:
        self._open = open_pubsub
        self._channels: dict[str, _Channel] = {}
        self._pubsub: Any | None = None
        self._listening: asyncio.Task[None] | None = None
        self._closed = False
        self._failed = ThrottledLog(log, "Listening for the growth of streams failed, and is begun anew")

    async def wait(self, name: str, timeout: timedelta) -> None:
        """Until something was said on a channel since the last wait, or it is begun to be listened to."""
        if self._closed:
            return
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = _Channel()
            await self._begin(name)
        channel.waiting += 1
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await channel.told.wait()
        except TimeoutError:
            pass
        finally:
            channel.told.clear()
            channel.waiting -= 1
            channel.since = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """End every wait, and let go of the connection."""
        self._closed = True
        task = self._listening
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        self._tell_all()

    async def _begin(self, name: str) -> None:
        if self._listening is None:
            # It is for all that come, and not for the request of the first.
            self._listening = asyncio.create_task(self._listen(), name="taskgate-stream-growth", context=Context())
        elif self._pubsub is not None:
            # Where it fails, who listens meets it, too.
            with suppress(*_FAILURES):
                await self._pubsub.subscribe(name)

    async def _listen(self) -> None:
        try:
            await self._hear_over(self._open())
        except _FAILURES:
            await asyncio.sleep(_PAUSE)
        except Exception as error:  # whatever it is, those who wait are let go, and the next one begins anew
            self._failed.emit(error=error)
            await asyncio.sleep(_PAUSE)
        finally:
            self._listening = None
            self._tell_all()

    async def _hear_over(self, pubsub: Any) -> None:
        try:
            async with asyncio.timeout(2 * _QUIET):
                await pubsub.subscribe(*self._channels)
            self._pubsub = pubsub
            await self._subscribe_late(pubsub)
            while self._channels:
                await self._hear(pubsub)
        finally:
            self._pubsub = None
            with suppress(Exception):
                await pubsub.aclose()

    async def _subscribe_late(self, pubsub: Any) -> None:
        """Those that came while there was no connection yet."""
        late = [name for name in self._channels if name.encode() not in pubsub.channels]
        if late:
            await pubsub.subscribe(*late)

    async def _hear(self, pubsub: Any) -> None:
        message = await pubsub.get_message(timeout=_QUIET)
        if message is None:
            await pubsub.ping()
            message = await pubsub.get_message(timeout=2 * _QUIET)
            if message is None:
                raise TimeoutError
        self._note(message)
        await self._drop_idle(pubsub)

    def _note(self, message: dict[str, Any]) -> None:
        if message["type"] in ("message", "subscribe"):
            channel = self._channels.get(message["channel"].decode())
            if channel is not None:
                channel.told.set()

    async def _drop_idle(self, pubsub: Any) -> None:
        now = asyncio.get_running_loop().time()
        idle = [name for name, each in self._channels.items() if not each.waiting and now - each.since > _LINGER]
        for name in idle:
            del self._channels[name]
        if idle and self._channels:
            await pubsub.unsubscribe(*idle)

    def _tell_all(self) -> None:
        """Whoever waits looks for himself; who waits again is listened for anew."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.told.set()


# --- the log ---------------------------------------------------------------------------------------------------------


_BEGIN: Final = read_script("stream_begin.lua")
_APPEND: Final = read_script("stream_append.lua")
_READ: Final = read_script("stream_read.lua")

MOST_EVENTS: Final = 2_048
MOST_BYTES: Final = 1024 * 1024
"""What is kept of a stream; its oldest events are dropped for newer ones, but never the newest."""


class RedisStreamLog:
    """See StreamLog."""

    def __init__(self, client: RedisClient, keys: KeyNames) -> None:
        self._client = client
        self._keys = keys
        self._watch = StreamWatch(client.pubsub)

    async def begin(self, session: str, stream: str, *, holder: str, about: bytes, keep: timedelta) -> None:
        """See StreamLog.begin."""
        said = (pack_text(holder), about, _milliseconds(keep))
        await self._client.run(_BEGIN, self._of(session, stream), said)

    async def append(
        self, session: str, stream: str, events: Sequence[tuple[int, bytes]], *, over: bool, keep: timedelta
    ) -> None:
        """See StreamLog.append. Events that are there are left as they are; a stream that is not is not begun."""
        added: list[Value] = [self._channel(session, stream), _milliseconds(keep), int(over), MOST_EVENTS, MOST_BYTES]
        for number, event in events:
            added += (number, event)
        await self._client.run(_APPEND, self._of(session, stream), added)

    async def read(self, session: str, stream: str, *, after: int) -> StreamSegment | None:
        """See StreamLog.read."""
        places = (*self._of(session, stream), self._keys.of("lives"))
        said: Any = await self._client.run(_READ, places, (after,))
        if said is None:
            return None
        about, holder, newest, dropped, over, lives, entries = said
        return StreamSegment(
            about=about,
            events=tuple((int(place.partition(b"-")[0]), fields[1]) for place, fields in entries),
            newest=int(newest),
            over=bool(over),
            whole=after >= int(dropped),
            holder=unpack_text(holder),
            lives=bool(lives),
        )

    async def wait_for_events(self, session: str, stream: str, *, timeout: timedelta) -> None:
        """See StreamLog.grown. Who asks for the first time is told at once: what came before was not listened to."""
        await self._watch.wait(self._channel(session, stream), timeout)

    async def forget(self, session: str, stream: str) -> None:
        """See StreamLog.forget."""
        await self._client.do("DEL", *self._of(session, stream))

    async def close(self) -> None:
        """End every wait."""
        await self._watch.close()

    def _of(self, session: str, stream: str) -> tuple[str, str]:
        return self._keys.of("stream", session, stream), self._keys.of("events", session, stream)

    def _channel(self, session: str, stream: str) -> str:
        return self._keys.of("grown", session, stream)


def _milliseconds(span: timedelta) -> int:
    return max(1, round(span.total_seconds() * 1000))
