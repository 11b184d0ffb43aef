"""Commands that are asked for in the same turn of the loop go together, over one connection, each with its own answer.

Hosts come many at a time, and nothing about a command takes as long as to send it by itself. What holds: nothing is
sent twice, nor for somebody who has given up by then; an answer that nobody waits for any more is read and left.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
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
from taskgate.stores.redis.connector import RedisConnector
from taskgate.stores.redis.health import RedisHealth

# --- the pool --------------------------------------------------------------------------------------------------------


_LONGEST_IDLE: Final = 45.0
"""Seconds: what lay unused for longer may have been forgotten by something on the way, without a word."""


class RedisPool:
    """Lends connections, the one that was used last first. Belongs to one event loop."""

    def __init__(self, make: Callable[[], redis.Connection], *, limit: int, wait: timedelta) -> None:
        self._make = make
        self._limit = limit
        self._wait = wait.total_seconds()
        self._free: list[tuple[redis.Connection, float]] = []
        self._lent: set[redis.Connection] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._promised = 0
        self._closed = False

    async def take(self) -> redis.Connection:
        """A connection that nobody else has: open and without a word in it, or still to be opened.

        Raises StoreUnavailable when none gets free in time.
        """
        if len(self._lent) + self._promised >= self._limit:
            await self._turn()
        if self._closed:
            raise StoreUnavailable("The task store is closed")
        since = asyncio.get_running_loop().time() - _LONGEST_IDLE
        while self._free:
            connection, given_back = self._free.pop()
            # Lent before anything is awaited: the bound holds.
            self._lent.add(connection)
            if given_back > since and await _is_silent(connection):
                return connection
            self._lent.discard(connection)
            await _hang_up(connection)
        connection = self._make()
        self._lent.add(connection)
        return connection

    def give(self, connection: redis.Connection) -> None:
        """Take a connection back; one that is not open is dropped."""
        if connection not in self._lent:
            return
        self._lent.discard(connection)
        if connection.is_connected:
            self._free.append((connection, asyncio.get_running_loop().time()))
        self._wake()

    async def drop_idle(self) -> None:
        """Close what nobody uses just now: it leads to where the server is no more."""
        idle, self._free = self._free, []
        for connection, _ in idle:
            await _hang_up(connection)

    async def close(self) -> None:
        """Close everything; whoever still waits for an answer has none."""
        self._closed = True
        while self._waiting:
            self._wake()
        lent, self._lent = self._lent, set()
        for connection in lent:
            await _hang_up(connection)
        await self.drop_idle()

    async def _turn(self) -> None:
        """Wait for a connection to be given back; whoever comes later does not get it first."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._wait):
                await turn
        except TimeoutError:
            self._decline(turn)
            raise StoreUnavailable("Too much is asked of the task store at once") from None
        except BaseException:
            self._decline(turn)
            raise
        self._promised -= 1

    def _decline(self, turn: "asyncio.Future[None]") -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif not turn.cancelled():
            self._promised -= 1
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._promised += 1
                return


async def _is_silent(connection: redis.Connection) -> bool:
    """Whether it is open, and nothing came over it that nobody asked for: its end, too, would be something."""
    try:
        return connection.is_connected and not await connection.can_read()
    except (RedisError, OSError):
        return False


async def _hang_up(connection: redis.Connection) -> None:
    with suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)


# --- the pipeline ----------------------------------------------------------------------------------------------------


UNUSABLE: Final = (AuthenticationError, BusyLoadingError, ClusterDownError, MasterDownError, ReadOnlyError, MovedError)
"""What a server says of itself, and not of the command."""
FOREIGN: Final = (RedisError, OSError, TimeoutError)
"""What the library raises."""

_MOST: Final = 16
"""Commands of a bundle: more would hardly save more, and what is under way at once is to stay little."""
_LARGE: Final = 64 * 1024
"""Bytes after which nothing is put into a bundle any more."""


class _PendingCommand(NamedTuple):
    packed: bytes
    answer: "asyncio.Future[Any]"


class CommandPipeline:
    """Sends what is asked over connections of a pool. Belongs to one event loop."""

    def __init__(self, pool: RedisPool, connector: RedisConnector, health: RedisHealth) -> None:
        self._pool = pool
        self._connector = connector
        self._health = health
        self._next: list[_PendingCommand] = []
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
        self._next.append(_PendingCommand(packed, answer))
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
        connection = await self._pool.take()
        try:
            if not connection.is_connected:
                await self._open(connection)
            yield connection
        except UNUSABLE as error:
            await self._connector.drop(connection)
            if isinstance(error, MovedError):
                self._connector.moved(connection, error)
            raise
        except ResponseError:
            raise
        except FOREIGN as error:
            await self._connector.drop(connection)
            if isinstance(error, TimeoutError):
                self._health.lose(error)
            raise
        except BaseException:
            # An answer that nobody reads must not be taken for the answer to something else.
            await connection.disconnect(nowait=True)
            raise
        finally:
            self._pool.give(connection)

    async def _open(self, connection: redis.Connection) -> None:
        try:
            await self._connector.open(connection)
        except FOREIGN as error:
            self._health.lose(error)
            raise

    async def _carry(self, commands: list[_PendingCommand]) -> None:
        if commands is self._next:
            # It is full: who comes now is in another.
            self._next = []
        try:
            async with self.lent() as connection:
                await self._exchange(connection, commands)
        except Exception as error:  # whatever it is, it is theirs
            _refuse(commands, error)
        except BaseException:
            _refuse(commands, ConnectionError("closed"))
            raise

    async def _exchange(self, connection: redis.Connection, commands: list[_PendingCommand]) -> None:
        """Raises what the server says of itself, once all have their answers."""
        # Whoever gave up while it waited does something about it: it must not be sent after that.
        wanted = [asked for asked in commands if not asked.answer.done()]
        if not wanted:
            return
        unusable: ResponseError | None = None
        async with asyncio.timeout(self._connector.within):
            await connection.send_packed_command(b"".join([asked.packed for asked in wanted]))
            for asked in wanted:
                try:
                    said = await connection.read_response()
                except ResponseError as error:
                    _refuse((asked,), error)
                    if isinstance(error, UNUSABLE):
                        unusable = error
                    if isinstance(error, MovedError):
                        # Known before any of them asks again.
                        self._connector.moved(connection, error)
                else:
                    if not asked.answer.done():
                        asked.answer.set_result(said)
        if unusable is not None:
            raise unusable


def _refuse(commands: Iterable[_PendingCommand], error: Exception) -> None:
    for asked in commands:
        if not asked.answer.done():
            asked.answer.set_exception(error)
