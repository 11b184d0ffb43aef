"""The connections to the server of one deployment: `RedisConnector` makes, opens and checks them.

`client` and `pipeline` open connections with it, `health` probes the server with `check`. It follows
the server through `topology`, and never stays connected to a replica. `check` refuses a server that
evicts keys.
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
from taskgate.stores.redis.options import KeyNames, RedisOptions
from taskgate.stores.redis.topology import (
    ClusterTopology,
    SentinelTopology,
    ServerAddress,
    StandaloneTopology,
    Topology,
)

_OLDEST: Final = 7
"""The oldest supported major version of Redis. Valkey reports a later one."""


class RedisConnector:
    """The maker of connections to the server of one deployment. It belongs to one event loop.

    Each check of the server aligns `clock` with the server's clock, so it is aligned before the
    server is used.
    """

    def __init__(self, options: RedisOptions, clock: SharedClock | None = None) -> None:
        self._clock = clock
        self.command_timeout = options.command_timeout.total_seconds()
        self._options = options
        self._connecting = options.connect_timeout.total_seconds()
        keys = KeyNames(options.key_prefix)
        self._slot_key = keys.of("any")
        self._channels = keys.of("news"), keys.of("grown", "any")
        self._warned = False
        self._class, self._arguments = _connection_arguments(options)
        self._topology = self._make_topology()

    def make(self) -> redis.Connection:
        """Make a connection that is not open yet; `open` gives it its address."""
        return self._dial(ServerAddress("", 0))

    async def open(self, connection: redis.Connection) -> None:
        """Connect to the current server. Raises the library's errors."""
        connection.host, connection.port = await self._topology.locate()
        try:
            async with asyncio.timeout(self._connecting):
                await connection.connect()  # type: ignore[no-untyped-call]
                if self._options.mode == "sentinel":
                    await _expect_primary(connection)
        except BaseException:
            await self.drop(connection)
            raise

    async def drop(self, connection: redis.Connection) -> None:
        """Close a connection after a failure: the server may have moved."""
        self._topology.forget(ServerAddress(connection.host, connection.port))
        await connection.disconnect(nowait=True)

    def redirect(self, connection: redis.Connection, error: MovedError) -> None:
        """Use the server that a MOVED error names."""
        self._topology.redirect(ServerAddress(error.host or connection.host, error.port))

    async def check(self) -> None:
        """Check that the server answers and is fit to store data.

        Raises the library's errors, or UnfitServerError.
        """
        connection = self.make()
        try:
            await self.open(connection)
            async with asyncio.timeout(self.command_timeout):
                await self._check_fitness(connection)
                await self._align_clock(connection)
                # Fails at a node that does not serve our slot, or whose cluster is incomplete.
                await connection.send_command("EXISTS", self._slot_key)
                await connection.read_response()
                await self._check_channels(connection)
        except BaseException:
            await self.drop(connection)
            raise
        finally:
            await connection.disconnect(nowait=True)

    def pubsub(self) -> Any:
        """The library's PubSub, over a connection of its own."""
        return PubSub(_SubscriberPool(self))

    async def _check_fitness(self, connection: redis.Connection) -> None:
        await connection.send_command("INFO")
        try:
            facts = _facts(await connection.read_response())
        except NoPermissionError:
            if not self._warned:
                log.warning(
                    "The Redis user may not run INFO: make sure that the server's maxmemory-policy is noeviction"
                )
            self._warned = True
            return
        if int(facts.get("redis_version", "7").partition(".")[0]) < _OLDEST:
            raise UnfitServerError(f"its version is {facts['redis_version']}; {_OLDEST}.0 or later is required")
        policy = facts.get("maxmemory_policy", "noeviction")
        if facts.get("maxmemory", "0") != "0" and policy != "noeviction":
            raise UnfitServerError(
                f"it evicts keys when its memory is full (maxmemory-policy {policy}): set it to noeviction"
            )
        if facts.get("cluster_enabled") == "1" and self._options.mode != "cluster":
            raise UnfitServerError("it is a node of a cluster: set store.redis.mode to cluster")
        if facts.get("role", "master") != "master":
            raise ReadOnlyError("it is a replica, which does not accept writes")

    async def _align_clock(self, connection: redis.Connection) -> None:
        # Scripts need TIME too: a missing permission shows here and not at the first heartbeat.
        asked = 0.0 if self._clock is None else self._clock.elapsed()
        await connection.send_command("TIME")
        seconds, more = await connection.read_response()
        if self._clock is not None:
            moment = unpack_time(int(seconds) * 1_000_000 + int(more))
            self._clock.align(moment, asked=asked, answered=self._clock.elapsed())

    async def _check_channels(self, connection: redis.Connection) -> None:
        """Check the permissions for the channels; comes last, because the connection then is in
        subscriber mode.
        """
        news, grown = self._channels
        # Publish to a channel without subscribers, and subscribe to the other one.
        for command in (("PUBLISH", grown, ""), ("SUBSCRIBE", news)):
            await connection.send_command(*command)
            try:
                await connection.read_response()
            except NoPermissionError as error:
                wanted = f"the channels under store.redis.key_prefix (&{self._options.key_prefix}* +@pubsub)"
                raise UnfitServerError(f"its user needs access to {wanted}: {error}") from error

    def _make_topology(self) -> Topology:
        options = self._options
        place = ServerAddress(options.host, options.port)
        if options.mode == "standalone":
            return StandaloneTopology(place)
        if options.mode == "cluster":
            return ClusterTopology(place, self._slot_key, self._dial, self._connecting)
        assert options.service is not None, "mode sentinel needs a service"
        return SentinelTopology(
            [ServerAddress(*each) for each in options.sentinels], options.service, self._dial, self._connecting
        )

    def _dial(self, address: ServerAddress, known: bool = True) -> redis.Connection:
        arguments = self._arguments if known else {**self._arguments, "username": None, "password": None, "db": 0}
        return self._class(host=address.host, port=address.port, **arguments)


class _SubscriberPool(redis.ConnectionPool):
    """The connection pool of the library's PubSub: a new connection to the current server each
    time.
    """

    def __init__(self, connector: RedisConnector) -> None:
        super().__init__()
        self._connector = connector

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> redis.Connection:
        """An open connection."""
        connection = self._connector.make()
        await self._connector.open(connection)
        # PubSub would reconnect by itself, to the old server, without a bound.
        connection.redis_connect_func = _refuse
        return connection

    async def release(self, connection: Any) -> None:
        """Close the connection; it is not used again."""
        await connection.disconnect(nowait=True)


def _connection_arguments(options: RedisOptions) -> tuple[type[redis.Connection], dict[str, Any]]:
    arguments: dict[str, Any] = {
        "db": options.database,
        "username": options.username,
        "password": options.password,
        # The callers bound each operation as a whole.
        "socket_timeout": None,
        "socket_connect_timeout": options.connect_timeout.total_seconds(),
        # A command that may have run must not run again.
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "driver_info": None,
    }
    if not options.tls:
        return redis.Connection, arguments
    files = {"ca_certs": options.ca_file, "certfile": options.cert_file, "keyfile": options.key_file}
    arguments |= {f"ssl_{name}": _text(file) for name, file in files.items()}
    return redis.SSLConnection, arguments | {"ssl_cert_reqs": "required", "ssl_check_hostname": True}


def _text(file: Path | None) -> str | None:
    return None if file is None else str(file)


def _refuse(connection: Any) -> None:
    raise ConnectionError("a lost connection is not reopened")


async def _expect_primary(connection: redis.Connection) -> None:
    """Check the role: a sentinel may be outdated, and the server it names a replica by now."""
    await connection.send_command("ROLE")
    try:
        role = (await connection.read_response())[0]
    except NoPermissionError:
        return
    if role != b"master":
        raise ConnectionError("the server named by the sentinel is not the primary")


def _facts(said: bytes) -> dict[str, str]:
    lines = said.decode(errors="replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}
