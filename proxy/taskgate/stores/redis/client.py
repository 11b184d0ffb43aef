"""The client of Redis or Valkey: `RedisClient` runs commands and scripts, each in one round trip.

It follows the server through failovers and outages. It raises only StoreUnavailable, with a text
that reveals nothing about the server. A command that may have run is never sent again.
`BlockingConnection` is for commands that wait at the server.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha1
from importlib import resources
from typing import Any, Final

from hiredis import pack_command
from redis import asyncio as redis
from redis.exceptions import MovedError, NoScriptError, RedisError, ResponseError

from taskgate.errors import StoreUnavailable
from taskgate.stores.redis.connector import RedisConnector
from taskgate.stores.redis.health import RedisHealth
from taskgate.stores.redis.pipeline import LIBRARY_ERRORS, SERVER_UNUSABLE, CommandPipeline, RedisPool

Value = str | bytes | int

_TRIES: Final = 3
"""Servers that a command goes to, if each one redirects it before running it."""


class Script:
    """A Lua script, which runs atomically."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()


def read_script(name: str) -> Script:
    """Read a script of this package by its file name."""
    return Script(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


class RedisClient:
    """The runner of commands, each in one round trip. It belongs to one event loop.

    `limit` is the number of connections, `wait` how long a command waits for one. `replicas` is how
    many replicas must confirm a durable command. `debug_only` is that of RedisHealth.
    """

    def __init__(
        self, connector: RedisConnector, *, limit: int, wait: timedelta, replicas: int = 0, debug_only: bool = False
    ) -> None:
        self._connector = connector
        self._pool = RedisPool(connector.make, limit=limit, wait=wait)
        self._replicas = replicas
        self.health = RedisHealth(connector.check, debug_only=debug_only)
        """The health of the server; the opener and subscribers also mark it down."""
        self._pipeline = CommandPipeline(self._pool, connector, self.health)

    async def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Value], *, durable: bool = False
    ) -> Any:
        """Run a script and return its result, with bytes as bytes. `durable` waits for the
        configured replicas.

        Raises StoreUnavailable; the script may have run then.
        """
        rest = (len(keys), *keys, *arguments)
        try:
            try:
                return await self._send(("EVALSHA", script.sha, *rest), script.sha, durable=durable)
            except NoScriptError:
                # Nothing ran: the server was restarted, or its script cache was flushed.
                return await self._send(("EVAL", script.text, *rest), script.sha, durable=durable)
        except LIBRARY_ERRORS as error:
            raise StoreUnavailable("The task store is not available") from error

    async def do(self, *command: Value, durable: bool = False) -> Any:
        """Run one command. Raises StoreUnavailable; the command may have run then."""
        try:
            return await self._send(command, str(command[0]), durable=durable)
        except LIBRARY_ERRORS as error:
            raise StoreUnavailable("The task store is not available") from error

    def pubsub(self) -> Any:
        """The library's PubSub with a connection of its own; the caller closes it.

        It raises the library's errors. It does not follow the server: after a failure, close it and
        make another.
        """
        return self._connector.pubsub()

    def blocking_connection(self) -> "BlockingConnection":
        """A connection for commands that wait at the server; the caller closes it."""
        return BlockingConnection(self._connector)

    async def close(self) -> None:
        """Close all connections; a second close does nothing."""
        await self.health.close()
        await self._pipeline.close()
        await self._pool.close()

    async def _send(self, command: Sequence[Value], what: str, *, durable: bool) -> Any:
        """Send a command, also to redirected servers.

        `what` groups commands that fail for the same reasons.
        """
        # Only a redirected command is sent again: the server that redirected it did not run it.
        for left in reversed(range(_TRIES)):
            self.health.check()
            try:
                answer = await self._exchange(command, what, durable=durable)
            except SERVER_UNUSABLE as error:
                await self._pool.drop_idle()
                if not left or not isinstance(error, MovedError):
                    self.health.mark_down(error)
                    raise
                continue
            except NoScriptError:
                raise
            except ResponseError as error:
                self.health.report_refusal(error, what)
                raise
            self.health.report_success(what)
            return answer
        raise AssertionError("the last try returns or raises")

    async def _exchange(self, command: Sequence[Value], what: str, *, durable: bool) -> Any:
        if not (durable and self._replicas):
            return await self._pipeline.send(_pack(command))
        async with self._pipeline.connection() as connection:
            return await self._send_durably(connection, command, what)

    async def _send_durably(self, connection: redis.Connection, command: Sequence[Value], what: str) -> Any:
        """The answer, after enough replicas confirmed the write."""
        within = self._connector.command_timeout
        patience = int(within * 1000 / 2)
        async with asyncio.timeout(within):
            await connection.send_packed_command(_pack(command) + _pack(("WAIT", self._replicas, patience)))
            refused: ResponseError | None = None
            answer: Any = None
            try:
                answer = await connection.read_response()
            except ResponseError as error:
                refused = error
            have = await connection.read_response()
        if refused is not None:
            try:
                raise refused
            finally:
                del refused
        if have < self._replicas:
            lacking = RedisError(f"NOREPLICAS {have} of {self._replicas} replicas confirmed the write")
            self.health.report_refusal(lacking, what)
            raise StoreUnavailable("The write may be lost: too few replicas of the task store confirmed it")
        return answer


class BlockingConnection:
    """One connection for commands that wait at the server, such as XREAD with BLOCK. For one caller
    at a time.
    """

    def __init__(self, connector: RedisConnector) -> None:
        self._connector = connector
        self._wire: redis.Connection | None = None

    async def do(self, *command: Value, patience: timedelta = timedelta(0)) -> Any:
        """Run one command that may wait for `patience`.

        Raises StoreUnavailable; the next one uses a new connection.
        """
        await self.is_open()
        connection = self._wire
        try:
            if connection is None:
                connection = self._connector.make()
                await self._connector.open(connection)
                self._wire = connection
            async with asyncio.timeout(self._connector.command_timeout + patience.total_seconds()):
                await connection.send_command(*command)
                return await connection.read_response()
        except LIBRARY_ERRORS as error:
            await self._fail(connection)
            raise StoreUnavailable("The task store is not available") from error
        except BaseException:
            # A late answer must not be taken for the answer to the next command.
            await self.close()
            raise

    async def is_open(self) -> bool:
        """Whether the connection of the last command is still open, so that no failover happened
        since.
        """
        if self._wire is None:
            return False
        # Unread data, or the end of the connection.
        if not self._wire.is_connected or await self._wire.can_read():
            await self.close()
        return self._wire is not None

    async def _fail(self, connection: redis.Connection | None) -> None:
        self._wire = None
        if connection is not None:
            await self._connector.drop(connection)

    async def close(self) -> None:
        """Close the connection."""
        connection, self._wire = self._wire, None
        if connection is not None:
            with suppress(*LIBRARY_ERRORS):
                await connection.disconnect(nowait=True)


def _pack(command: Sequence[Value]) -> bytes:
    """Encode a command.

    This costs a quarter of `send_command`, which matters for scripts with many arguments.
    """
    # The library's types allow only commands of one word.
    packed: bytes = pack_command(tuple(command))  # type: ignore[arg-type]
    return packed
