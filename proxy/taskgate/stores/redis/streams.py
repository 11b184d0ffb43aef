"""The events of hosts' streams in Redis or Valkey, where every process finds them.

    stream:NAME     HASH    about, holder, newest, dropped (the newest event that is not there any more), size, over
    events:NAME     STREAM  events, each under its number
    grown:NAME      channel on which is said that there are more

A name is the digest of session and stream. What must not live here: what an event says, and who may have it.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from taskgate.stores.codec import pack_text, unpack_text
from taskgate.stores.redis.connection import RedisConnection, Value, read_script
from taskgate.stores.redis.growth import Growth
from taskgate.stores.redis.keys import KeyNames
from taskgate.stores.sharing import StreamSegment

_BEGIN: Final = read_script("stream_begin.lua")
_APPEND: Final = read_script("stream_append.lua")
_READ: Final = read_script("stream_read.lua")

MOST_EVENTS: Final = 2_048
MOST_BYTES: Final = 1024 * 1024
"""What is kept of a stream; its oldest events are dropped for newer ones, but never the newest."""


class StreamsInRedis:
    """See StreamLog."""

    def __init__(self, connection: RedisConnection, keys: KeyNames) -> None:
        self._connection = connection
        self._keys = keys
        self._growth = Growth(connection.pubsub)

    async def begin(self, session: str, stream: str, *, holder: str, about: bytes, keep: timedelta) -> None:
        """See StreamLog.begin."""
        said = (pack_text(holder), about, _milliseconds(keep))
        await self._connection.run(_BEGIN, self._of(session, stream), said)

    async def append(
        self, session: str, stream: str, events: Sequence[tuple[int, bytes]], *, over: bool, keep: timedelta
    ) -> None:
        """See StreamLog.append. Events that are there are left as they are; a stream that is not is not begun."""
        added: list[Value] = [self._channel(session, stream), _milliseconds(keep), int(over), MOST_EVENTS, MOST_BYTES]
        for number, event in events:
            added += (number, event)
        await self._connection.run(_APPEND, self._of(session, stream), added)

    async def read(self, session: str, stream: str, *, after: int) -> StreamSegment | None:
        """See StreamLog.read."""
        places = (*self._of(session, stream), self._keys.of("lives"))
        said: Any = await self._connection.run(_READ, places, (after,))
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

    async def grown(self, session: str, stream: str, *, timeout: timedelta) -> None:
        """See StreamLog.grown. Who asks for the first time is told at once: what came before was not listened to."""
        await self._growth.wait(self._channel(session, stream), timeout)

    async def forget(self, session: str, stream: str) -> None:
        """See StreamLog.forget."""
        await self._connection.do("DEL", *self._of(session, stream))

    async def close(self) -> None:
        """End every wait."""
        await self._growth.close()

    def _of(self, session: str, stream: str) -> tuple[str, str]:
        return self._keys.of("stream", session, stream), self._keys.of("events", session, stream)

    def _channel(self, session: str, stream: str) -> str:
        return self._keys.of("grown", session, stream)


def _milliseconds(span: timedelta) -> int:
    return max(1, round(span.total_seconds() * 1000))
