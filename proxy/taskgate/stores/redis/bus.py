"""The message log of the cluster bus, over one stream of Redis or Valkey that all processes read:
`RedisMessageLog`.

    post            STREAM  messages, each with its sender
    parcel:NAME     TEXT    data that one process stores for another, until that fetches it

Each process reads the stream from its own position, over a connection of its own, and skips its own
messages. The position is set at the opening (`begin`). It is checked again after a new connection
and after a wait without messages, because the server may have changed. `cluster` encodes the messages
and verifies them.
"""

import asyncio
from datetime import timedelta
from logging import getLogger
from typing import Any, Final

from taskgate.errors import StoreUnavailable
from taskgate.stores.redis.client import BlockingConnection, RedisClient, read_script
from taskgate.stores.redis.options import KeyNames
from taskgate.system.log_throttle import ThrottledLog

_SEND: Final = read_script("post_send.lua")

_MOST: Final = 16_384
"""Messages in the stream, at most. A process that did not read for so many loses the older ones."""
_EXPIRY: Final = 24 * 3600 * 1000
"""Milliseconds after the last message, after which the stream expires."""
_BATCH: Final = 512
"""Messages that one read returns, at most."""
_LONGEST_WAIT: Final = timedelta(seconds=5)
"""The longest wait at the server: bounds how late a silent loss of the server shows."""
_PAUSE: Final = 0.25
"""Seconds of pause after a failure of the server."""
_BEFORE_ALL: Final = b"0-0"

log = getLogger("taskgate.stores")


class RedisMessageLog:
    """A MessageLog; `origin` identifies this process, which ignores its own messages.

    `_place` is the stream entry after which it reads. `_is_position_valid` is false when the server
    may have changed since, so that the next read checks the position first.
    """

    def __init__(self, client: RedisClient, keys: KeyNames, *, origin: str) -> None:
        self._client = client
        self._keys = keys
        self._stream = keys.of("post")
        self._origin = origin.encode()
        self._reader: BlockingConnection = client.blocking_connection()
        self._place: bytes | None = None
        self._is_position_valid = False
        self._foreign_log = ThrottledLog(
            log,
            "An entry of the cluster bus that no gateway wrote was ignored: find the program that writes to its stream",
        )
        self._replaced_log = ThrottledLog(
            log, "The stream of the cluster bus was replaced, because it accepted no more messages"
        )

    async def begin(self) -> None:
        """Set the position to the end of the stream, so that all messages from now on are received.

        A position that is known already only moves back. If this raises StoreUnavailable, `receive`
        does it once the server is up.
        """
        newest = await self._reader.do("XREVRANGE", self._stream, "+", "-", "COUNT", 1)
        last: bytes = newest[0][0] if newest else _BEFORE_ALL
        # After a failover the new primary may lack the newest messages: continue from its end.
        self._place = last if self._place is None else min(last, self._place, key=_order)
        self._is_position_valid = True

    async def send(self, message: bytes) -> None:
        if await self._client.run(_SEND, (self._stream,), (self._origin, message, _MOST, _EXPIRY)):
            self._replaced_log.emit()

    async def receive(self, *, timeout: timedelta) -> tuple[bytes, ...]:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout.total_seconds()
        while (left := end - loop.time()) > 0:
            try:
                messages = await self._read(min(timedelta(seconds=left), _LONGEST_WAIT))
            except StoreUnavailable:
                await asyncio.sleep(min(_PAUSE, left))
                raise
            if messages:
                return messages
        return ()

    async def leave(self, name: str, parcel: bytes, *, keep: timedelta) -> None:
        await self._client.do("SET", self._keys.of("parcel", name), parcel, "PX", _milliseconds(keep))

    async def fetch(self, name: str) -> bytes | None:
        parcel: bytes | None = await self._client.do("GETDEL", self._keys.of("parcel", name))
        return parcel

    async def close(self) -> None:
        """Close the connection."""
        await self._reader.close()

    async def _read(self, wait: timedelta) -> tuple[bytes, ...]:
        """Read the messages after the position, and move it; wait if there are none."""
        if self._place is None or not self._is_position_valid or not await self._reader.is_open():
            await self.begin()
            assert self._place is not None
        command = ("XREAD", "COUNT", _BATCH, "BLOCK", _milliseconds(wait), "STREAMS", self._stream, self._place)
        answer: Any = await self._reader.do(*command, patience=wait)
        if answer is None:
            # The stream may have been replaced, with numbers below the last one.
            self._is_position_valid = False
            return ()
        ((_, entries),) = answer
        self._place = entries[-1][0]
        return tuple(message for _, fields in entries if (message := self._message_of(fields)) is not None)

    def _message_of(self, fields: list[bytes] | None) -> bytes | None:
        """The message of another process; None for an own or a foreign entry."""
        values = dict(zip(fields[::2], fields[1::2], strict=True)) if fields is not None else {}
        by, message = values.get(b"by"), values.get(b"word")
        if by is None or message is None:
            self._foreign_log.emit()
            return None
        return message if by != self._origin else None


def _milliseconds(span: timedelta) -> int:
    """Milliseconds, at least one: zero would mean forever."""
    return max(1, round(span.total_seconds() * 1000))


def _order(place: bytes) -> tuple[int, int]:
    """The id of a stream entry as numbers, which sort in the order of the entries."""
    time, _, number = place.partition(b"-")
    return int(time), int(number)
