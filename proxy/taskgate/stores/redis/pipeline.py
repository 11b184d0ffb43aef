"""The pipelining of commands over pooled connections: `CommandPipeline`, with the connections of
`RedisPool`.

Commands of one turn of the event loop go together over one connection, and each gets its own
answer. Many hosts come at the same time, and sending a command alone is its largest cost. No
command is sent twice, or after its caller gave up. The answer to a cancelled caller is read and
dropped.
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
from taskgate.system.background import cancel_and_wait

# --- the pool --------------------------------------------------------------------------------------------------------


_LONGEST_IDLE: Final = 45.0
"""Seconds that a connection may be idle: a middlebox may drop a longer one silently."""


class RedisPool:
    """A bounded pool of connections, the most recently used first. It belongs to one event loop.

    `_free` are the idle connections, each with the time of its release. `_reserved` counts waiters
    that were woken for a free place and have not taken it yet.
    """

    def __init__(self, make: Callable[[], redis.Connection], *, limit: int, wait: timedelta) -> None:
        self._make = make
        self._limit = limit
        self._wait = wait.total_seconds()
        self._free: list[tuple[redis.Connection, float]] = []
        self._in_use: set[redis.Connection] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._reserved = 0
        self._closed = False

    async def acquire(self) -> redis.Connection:
        """An exclusive connection: open and without unread data, or not open yet.

        Raises StoreUnavailable if none becomes free in time.
        """
        if len(self._in_use) + self._reserved >= self._limit:
            await self._wait_for_free()
        if self._closed:
            raise StoreUnavailable("The task store is closed")
        since = asyncio.get_running_loop().time() - _LONGEST_IDLE
        while self._free:
            connection, released_at = self._free.pop()
            # In use before the first await, so that the bound holds.
            self._in_use.add(connection)
            if released_at > since and await _is_clean(connection):
                return connection
            self._in_use.discard(connection)
            await _disconnect(connection)
        connection = self._make()
        self._in_use.add(connection)
        return connection

    def release(self, connection: redis.Connection) -> None:
        """Take a connection back; a closed one is dropped."""
        if connection not in self._in_use:
            return
        self._in_use.discard(connection)
        if connection.is_connected:
            self._free.append((connection, asyncio.get_running_loop().time()))
        self._wake()

    async def drop_idle(self) -> None:
        """Close the idle connections: they lead to a server that moved."""
        idle, self._free = self._free, []
        for connection, _ in idle:
            await _disconnect(connection)

    async def close(self) -> None:
        """Close all connections, also those in use."""
        self._closed = True
        while self._waiting:
            self._wake()
        in_use, self._in_use = self._in_use, set()
        for connection in in_use:
            await _disconnect(connection)
        await self.drop_idle()

    async def _wait_for_free(self) -> None:
        """Wait for a released connection, in order of arrival."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._wait):
                await waiter
        except TimeoutError:
            self._cancel_wait(waiter)
            raise StoreUnavailable("The task store is overloaded: no connection became free in time") from None
        except BaseException:
            self._cancel_wait(waiter)
            raise
        self._reserved -= 1

    def _cancel_wait(self, waiter: "asyncio.Future[None]") -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        elif not waiter.cancelled():
            self._reserved -= 1
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._reserved += 1
                return


async def _is_clean(connection: redis.Connection) -> bool:
    """Whether it is open and has no unread data, which includes its end."""
    try:
        return connection.is_connected and not await connection.can_read()
    except (RedisError, OSError):
        return False


async def _disconnect(connection: redis.Connection) -> None:
    with suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)


# --- the pipeline ----------------------------------------------------------------------------------------------------


SERVER_UNUSABLE: Final = (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    ReadOnlyError,
    MovedError,
)
"""Errors about the server, not about the command."""
LIBRARY_ERRORS: Final = (RedisError, OSError, TimeoutError)
"""All errors that the library raises."""

_MOST: Final = 16
"""Commands of a batch: more would save little, and few commands should be in flight at once."""
_LARGE: Final = 64 * 1024
"""Bytes after which a batch takes no more commands."""


class _PendingCommand(NamedTuple):
    packed: bytes
    answer: "asyncio.Future[Any]"


class CommandPipeline:
    """The sender of commands, in batches over the connections of a pool. It belongs to one event loop."""

    def __init__(self, pool: RedisPool, connector: RedisConnector, health: RedisHealth) -> None:
        self._pool = pool
        self._connector = connector
        self._health = health
        self._next: list[_PendingCommand] = []
        self._size = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False

    async def send(self, packed: bytes) -> Any:
        """The answer to a packed command.

        Raises the library's errors or StoreUnavailable; the command may have run then.
        """
        if self._closed:
            raise StoreUnavailable("The task store is closed")
        loop = asyncio.get_running_loop()
        if not self._next or len(self._next) >= _MOST or self._size >= _LARGE:
            self._next, self._size = [], 0
            # The task starts after the other callers of this turn of the loop.
            sending = loop.create_task(self._send_batch(self._next), name="taskgate-store-bundle")
            self._under_way.add(sending)
            sending.add_done_callback(self._under_way.discard)
        answer: asyncio.Future[Any] = loop.create_future()
        self._next.append(_PendingCommand(packed, answer))
        self._size += len(packed)
        try:
            return await answer
        finally:
            del answer

    async def close(self) -> None:
        """Cancel the batches; their callers and later ones get an error."""
        self._closed = True
        await cancel_and_wait(*self._under_way)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[redis.Connection]:
        """An open connection.

        If the block fails it is closed, and the server is located again if that may help.
        """
        connection = await self._pool.acquire()
        try:
            if not connection.is_connected:
                await self._open(connection)
            yield connection
        except SERVER_UNUSABLE as error:
            await self._connector.drop(connection)
            if isinstance(error, MovedError):
                self._connector.redirect(connection, error)
            raise
        except ResponseError:
            # An error reply to one command: the connection stays usable.
            raise
        except LIBRARY_ERRORS as error:
            await self._connector.drop(connection)
            if isinstance(error, TimeoutError):
                self._health.mark_down(error)
            raise
        except BaseException:
            # An unread answer must not be taken for the answer to another command.
            await connection.disconnect(nowait=True)
            raise
        finally:
            self._pool.release(connection)

    async def _open(self, connection: redis.Connection) -> None:
        try:
            await self._connector.open(connection)
        except LIBRARY_ERRORS as error:
            self._health.mark_down(error)
            raise

    async def _send_batch(self, commands: list[_PendingCommand]) -> None:
        if commands is self._next:
            # Commands from now on go into another batch.
            self._next = []
        try:
            async with self.connection() as connection:
                await self._exchange(connection, commands)
        except Exception as error:  # the callers get any error
            _refuse(commands, error)
        except BaseException:
            _refuse(commands, ConnectionError("closed"))
            raise

    async def _exchange(self, connection: redis.Connection, commands: list[_PendingCommand]) -> None:
        """Send a batch and read its answers.

        Raises an error about the server, after all callers have their answers.
        """
        # A caller that gave up already handles that: its command must not be sent.
        wanted = [command for command in commands if not command.answer.done()]
        if not wanted:
            return
        unusable: ResponseError | None = None
        async with asyncio.timeout(self._connector.command_timeout):
            await connection.send_packed_command(b"".join([command.packed for command in wanted]))
            for command in wanted:
                try:
                    said = await connection.read_response()
                except ResponseError as error:
                    _refuse((command,), error)
                    if isinstance(error, SERVER_UNUSABLE):
                        unusable = error
                    if isinstance(error, MovedError):
                        # Redirect before a caller tries again.
                        self._connector.redirect(connection, error)
                else:
                    if not command.answer.done():
                        command.answer.set_result(said)
        if unusable is not None:
            try:
                raise unusable
            finally:
                del unusable


def _refuse(commands: Iterable[_PendingCommand], error: Exception) -> None:
    for command in commands:
        if not command.answer.done():
            command.answer.set_exception(error)
