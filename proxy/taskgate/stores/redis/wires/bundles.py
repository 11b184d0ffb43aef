"""Commands that are asked for in the same turn of the loop go together, over one connection, each with its own answer.

Hosts come many at a time, and nothing about a command takes as long as to send it by itself. What must not live here:
what commands say, and what is done about a server that cannot be used (`connection`). What holds: nothing is sent
twice, nor for somebody who has given up by then; an answer that nobody waits for any more is read and left.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from redis import asyncio as redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from taskgate.errors import StoreUnavailable
from taskgate.stores.redis.wires.health import RedisHealth
from taskgate.stores.redis.wires.pool import RedisPool
from taskgate.stores.redis.wires.wire import Wires

UNUSABLE: Final = (AuthenticationError, BusyLoadingError, ClusterDownError, MasterDownError, ReadOnlyError, MovedError)
"""What a server says of itself, and not of the command."""
FOREIGN: Final = (RedisError, OSError, TimeoutError)
"""What the library raises."""

_MOST: Final = 16
"""Commands of a bundle: more would hardly save more, and what is under way at once is to stay little."""
_LARGE: Final = 64 * 1024
"""Bytes after which nothing is put into a bundle any more."""


class _Asked(NamedTuple):
    packed: bytes
    answer: "asyncio.Future[Any]"


class Bundles:
    """Sends what is asked over connections of a pool. Belongs to one event loop."""

    def __init__(self, pool: RedisPool, wires: Wires, health: RedisHealth) -> None:
        self._pool = pool
        self._wires = wires
        self._health = health
        self._next: list[_Asked] = []
        self._size = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False

    async def ask(self, packed: bytes) -> Any:
        """The answer to a command; raises what the library does, or StoreUnavailable. It may have been done then."""
        if self._closed:
            raise StoreUnavailable("The task store is closed")
        loop = asyncio.get_running_loop()
        if not self._next or len(self._next) >= _MOST or self._size >= _LARGE:
            self._next, self._size = [], 0
            # It begins once everybody else had a turn.
            leaving = loop.create_task(self._carry(self._next), name="taskgate-store-bundle")
            self._under_way.add(leaving)
            leaving.add_done_callback(self._under_way.discard)
        answer: asyncio.Future[Any] = loop.create_future()
        self._next.append(_Asked(packed, answer))
        self._size += len(packed)
        return await answer

    async def close(self) -> None:
        """Whoever still waits has no answer, nor has one who asks again for that."""
        self._closed = True
        if self._under_way:
            for leaving in self._under_way:
                leaving.cancel()
            await asyncio.wait(tuple(self._under_way))

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[redis.Connection]:
        """A connection, open; where the block fails it is closed, and the server looked for anew if that may help."""
        wire = await self._pool.take()
        try:
            if not wire.is_connected:
                await self._open(wire)
            yield wire
        except UNUSABLE as error:
            await self._wires.drop(wire)
            if isinstance(error, MovedError):
                self._wires.moved(wire, error)
            raise
        except ResponseError:
            raise
        except FOREIGN as error:
            await self._wires.drop(wire)
            if isinstance(error, TimeoutError):
                self._health.lose(error)
            raise
        except BaseException:
            # An answer that nobody reads must not be taken for the answer to something else.
            await wire.disconnect(nowait=True)
            raise
        finally:
            self._pool.give(wire)

    async def _open(self, wire: redis.Connection) -> None:
        try:
            await self._wires.open(wire)
        except FOREIGN as error:
            self._health.lose(error)
            raise

    async def _carry(self, bundle: list[_Asked]) -> None:
        if bundle is self._next:
            # It is full: who comes now is in another.
            self._next = []
        try:
            async with self.lent() as wire:
                await self._exchange(wire, bundle)
        except Exception as error:  # whatever it is, it is theirs
            _refuse(bundle, error)
        except BaseException:
            _refuse(bundle, ConnectionError("closed"))
            raise

    async def _exchange(self, wire: redis.Connection, bundle: list[_Asked]) -> None:
        """Raises what the server says of itself, once all have their answers."""
        # Whoever gave up while it waited does something about it: it must not be sent after that.
        wanted = [asked for asked in bundle if not asked.answer.done()]
        if not wanted:
            return
        unusable: ResponseError | None = None
        async with asyncio.timeout(self._wires.within):
            await wire.send_packed_command(b"".join([asked.packed for asked in wanted]))
            for asked in wanted:
                try:
                    said = await wire.read_response()
                except ResponseError as error:
                    _refuse((asked,), error)
                    if isinstance(error, UNUSABLE):
                        unusable = error
                    if isinstance(error, MovedError):
                        # Known before any of them asks again.
                        self._wires.moved(wire, error)
                else:
                    if not asked.answer.done():
                        asked.answer.set_result(said)
        if unusable is not None:
            raise unusable


def _refuse(bundle: Iterable[_Asked], error: Exception) -> None:
    for asked in bundle:
        if not asked.answer.done():
            asked.answer.set_exception(error)
