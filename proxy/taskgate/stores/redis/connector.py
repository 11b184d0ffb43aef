"""Making and opening connections to the server, wherever it is, and judging whether it is one to keep anything at.

What must not live here: what is kept there. What holds: nobody is connected to a replica, nor to a server that would
drop keys to make room.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

from redis import asyncio as redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, MovedError, NoPermissionError, ReadOnlyError

from taskgate.clock import SharedClock
from taskgate.stores.codec import unpack_time
from taskgate.stores.redis.health import UnfitServerError, log
from taskgate.stores.redis.keys import KeyNames
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.redis.topology import (
    ClusterTopology,
    SentinelTopology,
    ServerAddress,
    StandaloneTopology,
    Topology,
)

_OLDEST: Final = 7
"""The first version of Redis that has all that is used. Valkey says that it is a later one."""


class RedisConnector:
    """Connections to the server of one deployment. Belongs to one event loop.

    `clock` is told the server's time whenever that is vetted, and so before it is used.
    """

    def __init__(self, options: RedisOptions, clock: SharedClock | None = None) -> None:
        self._clock = clock
        self.within = options.command_timeout.total_seconds()
        self._options = options
        self._connecting = options.connect_timeout.total_seconds()
        keys = KeyNames(options.key_prefix)
        self._any = keys.of("any")
        self._channels = keys.of("news"), keys.of("grown", "any")
        self._warned = False
        self._class, self._kept = _arguments(options)
        self._topology = self._find_out()

    def make(self) -> redis.Connection:
        """A connection that is still to be opened."""
        return self._dial(ServerAddress("", 0))

    async def open(self, connection: redis.Connection) -> None:
        """Connect to where the server is now; what it raises is the library's."""
        connection.host, connection.port = await self._topology.find()
        try:
            async with asyncio.timeout(self._connecting):
                await connection.connect()  # type: ignore[no-untyped-call]
                if self._options.mode == "sentinel":
                    await _expect_primary(connection)
        except BaseException:
            await self.drop(connection)
            raise

    async def drop(self, connection: redis.Connection) -> None:
        """Close a connection over which something failed: the server may be elsewhere by now."""
        self._topology.leave(ServerAddress(connection.host, connection.port))
        await connection.disconnect(nowait=True)

    def moved(self, connection: redis.Connection, error: MovedError) -> None:
        """The server that was asked says who is to be asked instead."""
        self._topology.move(ServerAddress(error.host or connection.host, error.port))

    async def vet(self) -> None:
        """Whether the server is there, and fit to keep something; raises what the library does, or Unfit."""
        connection = self.make()
        try:
            await self.open(connection)
            async with asyncio.timeout(self.within):
                await self._judge(connection)
                await self._take_time(connection)
                # What a node says that does not have our slot, or whose cluster is not whole.
                await connection.send_command("EXISTS", self._any)
                await connection.read_response()
                await self._expect_channels(connection)
        except BaseException:
            await self.drop(connection)
            raise
        finally:
            await connection.disconnect(nowait=True)

    def pubsub(self) -> Any:
        """The library's listener, over a connection that is made for it."""
        return PubSub(_SubscriberPool(self))

    async def _judge(self, connection: redis.Connection) -> None:
        await connection.send_command("INFO")
        try:
            facts = _facts(await connection.read_response())
        except NoPermissionError:
            if not self._warned:
                log.warning("This user may not ask the task store for INFO: see to it that it evicts nothing")
            self._warned = True
            return
        if int(facts.get("redis_version", "7").partition(".")[0]) < _OLDEST:
            raise UnfitServerError(
                f"its version is {facts['redis_version']}, and {_OLDEST}.0 is the oldest that will do"
            )
        policy = facts.get("maxmemory_policy", "noeviction")
        if facts.get("maxmemory", "0") != "0" and policy != "noeviction":
            raise UnfitServerError(
                f"it drops keys when its memory is full (maxmemory-policy {policy}): set it to noeviction"
            )
        if facts.get("cluster_enabled") == "1" and self._options.mode != "cluster":
            raise UnfitServerError("it is a node of a cluster, and store.redis.mode is not cluster")
        if facts.get("role", "master") != "master":
            raise ReadOnlyError("it is a replica, to which nothing can be written")

    async def _take_time(self, connection: redis.Connection) -> None:
        # Scripts ask for it, too: a user who may not would find out at the first sign of life.
        asked = 0.0 if self._clock is None else self._clock.elapsed()
        await connection.send_command("TIME")
        seconds, more = await connection.read_response()
        if self._clock is not None:
            moment = unpack_time(int(seconds) * 1_000_000 + int(more))
            self._clock.align(moment, asked=asked, answered=self._clock.elapsed())

    async def _expect_channels(self, connection: redis.Connection) -> None:
        """The last that is asked over a connection: from then on it listens."""
        news, grown = self._channels
        # A word on one that nobody listens to; what is said on the other is read.
        for command in (("PUBLISH", grown, ""), ("SUBSCRIBE", news)):
            await connection.send_command(*command)
            try:
                await connection.read_response()
            except NoPermissionError as error:
                wanted = f"the channels under store.redis.key_prefix (&{self._options.key_prefix}* +@pubsub)"
                raise UnfitServerError(f"its user has to be given {wanted}: {error}") from error

    def _find_out(self) -> Topology:
        options = self._options
        place = ServerAddress(options.host, options.port)
        if options.mode == "standalone":
            return StandaloneTopology(place)
        if options.mode == "cluster":
            return ClusterTopology(place, self._any, self._dial, self._connecting)
        assert options.service is not None, "sentinels watch a service"
        return SentinelTopology(
            [ServerAddress(*each) for each in options.sentinels], options.service, self._dial, self._connecting
        )

    def _dial(self, place: ServerAddress, known: bool = True) -> redis.Connection:
        kept = self._kept if known else {**self._kept, "username": None, "password": None, "db": 0}
        return self._class(host=place.host, port=place.port, **kept)


class _SubscriberPool(redis.ConnectionPool):
    """What the library's listener asks for its connection: one each time, wherever the server is then."""

    def __init__(self, connector: RedisConnector) -> None:
        super().__init__()
        self._connector = connector

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> redis.Connection:
        """A connection that is open."""
        connection = self._connector.make()
        await self._connector.open(connection)
        # The listener would connect again by itself, to where the server was, and for as long as that takes.
        connection.redis_connect_func = _refuse
        return connection

    async def release(self, connection: Any) -> None:
        """It is not used again."""
        await connection.disconnect(nowait=True)


def _arguments(options: RedisOptions) -> tuple[type[redis.Connection], dict[str, Any]]:
    kept: dict[str, Any] = {
        "db": options.database,
        "username": options.username,
        "password": options.password,
        # Whatever is asked is bounded as a whole, by whoever asks it.
        "socket_timeout": None,
        "socket_connect_timeout": options.connect_timeout.total_seconds(),
        # What may have been done is not to be done again.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }
    if not options.tls:
        return redis.Connection, kept
    files = {"ca_certs": options.ca_file, "certfile": options.cert_file, "keyfile": options.key_file}
    kept |= {f"ssl_{name}": _text(file) for name, file in files.items()}
    return redis.SSLConnection, kept | {"ssl_cert_reqs": "required", "ssl_check_hostname": True}


def _text(file: Path | None) -> str | None:
    return None if file is None else str(file)


def _refuse(connection: Any) -> None:
    raise ConnectionError("a connection that is lost is not made again")


async def _expect_primary(connection: redis.Connection) -> None:
    """A sentinel may be behind: what it names may have been made a replica since."""
    await connection.send_command("ROLE")
    try:
        role = (await connection.read_response())[0]
    except NoPermissionError:
        return
    if role != b"master":
        raise ConnectionError("the server that the sentinel names is not the primary")


def _facts(said: bytes) -> dict[str, str]:
    lines = said.decode(errors="replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}
