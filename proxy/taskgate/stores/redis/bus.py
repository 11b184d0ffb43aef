"""Words between the processes of a deployment, over one stream of Redis or Valkey that all of them read.

    post            STREAM  words, each with who said it
    parcel:NAME     TEXT    what one left for another

What must not live here: what words say, and whether they are to be believed.
"""

import asyncio
from datetime import timedelta
from logging import getLogger
from typing import Any, Final

from taskgate.errors import StoreUnavailable
from taskgate.stores.redis.client import BlockingConnection, RedisClient, read_script
from taskgate.stores.redis.keys import KeyNames
from taskgate.system.log_throttle import ThrottledLog

_SEND: Final = read_script("post_send.lua")

_MOST: Final = 16_384
"""Words that are kept for those that are away for a moment; an older one may be lost to them."""
_KEEP: Final = 24 * 3600 * 1000
"""Milliseconds after which a stream in which nobody speaks is gone."""
_AT_ONCE: Final = 512
_AT_A_TIME: Final = timedelta(seconds=5)
"""Of one wait at the server: soon after it is over it is known that the server is gone without a word."""
_PAUSE: Final = 0.25
"""Seconds that who waits is kept waiting where the server is not there."""
_BEFORE_ALL: Final = b"0-0"

log = getLogger("taskgate.stores")


class RedisMessageLog:
    """See MessageLog. `origin` is a mark that no other process has."""

    def __init__(self, client: RedisClient, keys: KeyNames, *, origin: str) -> None:
        self._client = client
        self._keys = keys
        self._stream = keys.of("post")
        self._origin = origin.encode()
        self._reader: BlockingConnection = client.blocking_connection()
        self._place: bytes | None = None
        self._is_sure = False
        self._unheard = ThrottledLog(
            log, "What is no word is passed over: somebody else writes to the words of the gateways"
        )
        self._dropped = ThrottledLog(
            log, "The words of the gateways begin anew: there was something that takes no more of them"
        )

    async def begin(self) -> None:
        """From now on every word is heard. Raises StoreUnavailable; then it is from the first time it is there on."""
        newest = await self._reader.do("XREVRANGE", self._stream, "+", "-", "COUNT", 1)
        last: bytes = newest[0][0] if newest else _BEFORE_ALL
        # What was forgotten by a server that took over is not waited for.
        self._place = last if self._place is None else min(last, self._place, key=_order)
        self._is_sure = True

    async def send(self, word: bytes) -> None:
        """See MessageLog.send."""
        if await self._client.run(_SEND, (self._stream,), (self._origin, word, _MOST, _KEEP)):
            self._dropped.emit()

    async def receive(self, *, timeout: timedelta) -> tuple[bytes, ...]:
        """See MessageLog.receive. Raises StoreUnavailable, after a moment; no word is lost by that."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout.total_seconds()
        while (left := end - loop.time()) > 0:
            try:
                words = await self._hear(min(timedelta(seconds=left), _AT_A_TIME))
            except StoreUnavailable:
                await asyncio.sleep(min(_PAUSE, left))
                raise
            if words:
                return words
        return ()

    async def leave(self, name: str, parcel: bytes, *, keep: timedelta) -> None:
        """See MessageLog.leave."""
        await self._client.do("SET", self._keys.of("parcel", name), parcel, "PX", _milliseconds(keep))

    async def fetch(self, name: str) -> bytes | None:
        """See MessageLog.fetch."""
        parcel: bytes | None = await self._client.do("GETDEL", self._keys.of("parcel", name))
        return parcel

    async def close(self) -> None:
        """Hear no more."""
        await self._reader.close()

    async def _hear(self, wait: timedelta) -> tuple[bytes, ...]:
        if self._place is None or not self._is_sure or not await self._reader.is_there():
            await self.begin()
            assert self._place is not None
        asked = ("XREAD", "COUNT", _AT_ONCE, "BLOCK", _milliseconds(wait), "STREAMS", self._stream, self._place)
        answer: Any = await self._reader.do(*asked, patience=wait)
        if answer is None:
            # The stream may have begun anew, below the last word that was heard.
            self._is_sure = False
            return ()
        ((_, entries),) = answer
        self._place = entries[-1][0]
        return tuple(word for _, fields in entries if (word := self._word(fields)) is not None)

    def _word(self, fields: list[bytes] | None) -> bytes | None:
        """What another one said."""
        said = dict(zip(fields[::2], fields[1::2], strict=True)) if fields is not None else {}
        by, word = said.get(b"by"), said.get(b"word")
        if by is None or word is None:
            self._unheard.emit()
            return None
        return word if by != self._origin else None


def _milliseconds(span: timedelta) -> int:
    """At least one: none is for ever."""
    return max(1, round(span.total_seconds() * 1000))


def _order(place: bytes) -> tuple[int, int]:
    time, _, number = place.partition(b"-")
    return int(time), int(number)
