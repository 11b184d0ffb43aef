"""Redis or Valkey, as those see it who keep something there: commands and scripts, each in one round trip.

It follows the server: to whoever takes over from it, and back when it answers again. What must not live here: what is
kept. What holds: no error of the library leaves it, only StoreUnavailable, whose text says nothing of the server; and
what may have been done is never done a second time.
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
from taskgate.stores.redis.pipeline import FOREIGN, UNUSABLE, CommandPipeline, RedisPool

Value = str | bytes | int

_TRIES: Final = 3
"""How many servers a command goes to, where each says, before it does anything, that another one is to be asked."""


class Script:
    """A Lua script that runs in one step; `keys` before arguments, as EVAL has them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()


def read_script(name: str) -> Script:
    """A script of this package, by the name of its file."""
    return Script(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


class RedisClient:
    """Commands, each one round trip. Belongs to one event loop."""

    def __init__(
        self, connector: RedisConnector, *, limit: int, wait: timedelta, replicas: int = 0, quiet: bool = False
    ) -> None:
        self._connector = connector
        self._pool = RedisPool(connector.make, limit=limit, wait=wait)
        self._replicas = replicas
        self.health = RedisHealth(connector.vet, quiet=quiet)
        """Whether it can be used; whoever opens it may close it for a failure that he met."""
        self._pipeline = CommandPipeline(self._pool, connector, self.health)

    async def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Value], *, durable: bool = False
    ) -> Any:
        """What a script returns, bytes left as bytes; `durable` waits for as many replicas as are configured.

        Raises StoreUnavailable; it may have run then.
        """
        rest = (len(keys), *keys, *arguments)
        try:
            try:
                return await self._follow(("EVALSHA", script.sha, *rest), script.sha, durable=durable)
            except NoScriptError:
                # Said before anything of it ran: the server was started, or told to forget, since it ran last.
                return await self._follow(("EVAL", script.text, *rest), script.sha, durable=durable)
        except FOREIGN as error:
            raise StoreUnavailable("The task store is not available") from error

    async def do(self, *command: Value, durable: bool = False) -> Any:
        """What one command returns. Raises StoreUnavailable; it may have been done then."""
        try:
            return await self._follow(command, str(command[0]), durable=durable)
        except FOREIGN as error:
            raise StoreUnavailable("The task store is not available") from error

    def pubsub(self) -> Any:
        """The library's own PubSub, with a connection of its own: whoever has it closes it.

        What it raises is the library's. It does not follow the server: one that fails is closed, and another made.
        """
        return self._connector.pubsub()

    def blocking_connection(self) -> "BlockingConnection":
        """A connection of its own for one who waits for an answer: whoever has it closes it."""
        return BlockingConnection(self._connector)

    async def close(self) -> None:
        """Let go of it; a second time does nothing."""
        await self.health.close()
        await self._pipeline.close()
        await self._pool.close()

    async def _follow(self, command: Sequence[Value], what: str, *, durable: bool) -> Any:
        """`what` is the same for commands that are refused, or done, for the same reasons."""
        for left in reversed(range(_TRIES)):
            self.health.expect()
            try:
                answer = await self._exchange(command, what, durable=durable)
            except UNUSABLE as error:
                await self._pool.drop_idle()
                if not left or not isinstance(error, MovedError):
                    self.health.lose(error)
                    raise
                continue
            except NoScriptError:
                raise
            except ResponseError as error:
                self.health.complain(error, what)
                raise
            self.health.done(what)
            return answer
        raise AssertionError("the last try returns or raises")

    async def _exchange(self, command: Sequence[Value], what: str, *, durable: bool) -> Any:
        if not (durable and self._replicas):
            return await self._pipeline.ask(_pack(command))
        async with self._pipeline.lent() as connection:
            return await self._lasting(connection, command, what)

    async def _lasting(self, connection: redis.Connection, command: Sequence[Value], what: str) -> Any:
        """The answer, once enough replicas have what was written before it."""
        within = self._connector.within
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
            raise refused
        if have < self._replicas:
            lacking = RedisError(f"NOREPLICAS {have} of {self._replicas} replicas have what was written")
            self.health.complain(lacking, what)
            raise StoreUnavailable("What was written may be lost: too few replicas of the task store have it")
        return answer


class BlockingConnection:
    """One connection, for commands that wait at the server; for one caller at a time."""

    def __init__(self, connector: RedisConnector) -> None:
        self._connector = connector
        self._wire: redis.Connection | None = None

    async def do(self, *command: Value, patience: timedelta = timedelta(0)) -> Any:
        """What one command returns that may wait so long. Raises StoreUnavailable; the next one is asked anew."""
        await self.is_there()
        connection = self._wire
        try:
            if connection is None:
                connection = self._connector.make()
                await self._connector.open(connection)
                self._wire = connection
            async with asyncio.timeout(self._connector.within + patience.total_seconds()):
                await connection.send_command(*command)
                return await connection.read_response()
        except FOREIGN as error:
            await self._fail(connection)
            raise StoreUnavailable("The task store is not available") from error
        except BaseException:
            # Whatever it still answers is not the answer to what is asked next.
            await self.close()
            raise

    async def is_there(self) -> bool:
        """Whether the connection of the last command still stands: what was said of it still holds."""
        if self._wire is None:
            return False
        # What nobody asked for, or the end of the connection.
        if not self._wire.is_connected or await self._wire.can_read():
            await self.close()
        return self._wire is not None

    async def _fail(self, connection: redis.Connection | None) -> None:
        self._wire = None
        if connection is not None:
            await self._connector.drop(connection)

    async def close(self) -> None:
        """Let go of it."""
        connection, self._wire = self._wire, None
        if connection is not None:
            with suppress(*FOREIGN):
                await connection.disconnect(nowait=True)


def _pack(command: Sequence[Value]) -> bytes:
    """A command as it is sent: a quarter of what `send_command` takes for it, which is most where a script has much."""
    # Its types know commands of one word alone.
    packed: bytes = pack_command(tuple(command))  # type: ignore[arg-type]
    return packed
