"""Opening a deployment's part of Redis or Valkey: all that is shared, over connections of this process.

What must not live here: what is kept, and how. What holds: a server that is not there is no reason not to open; one
that refuses us, or that would not keep what it is given, is.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from taskgate.clock import SharedClock
from taskgate.errors import StoreUnavailable
from taskgate.stores.redis.bus import RedisMessageLog
from taskgate.stores.redis.client import RedisClient
from taskgate.stores.redis.connector import RedisConnector
from taskgate.stores.redis.health import UnfitServerError
from taskgate.stores.redis.keys import KeyNames
from taskgate.stores.redis.leases import RedisLeaseStore
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.redis.rates import RedisRateStore
from taskgate.stores.redis.records.change_subscriber import ChangeSubscriber
from taskgate.stores.redis.records.store import RedisStore
from taskgate.stores.redis.sessions import RedisSessionStore
from taskgate.stores.redis.streams import RedisStreamLog
from taskgate.stores.shared import LeaseStore, SharedBackend

_APART = 2
"""Connections of another thread, which gives signs of life and does nothing else."""


async def open_redis(options: RedisOptions, clock: SharedClock | None = None) -> SharedBackend:
    """See stores.open.open_shared."""
    _expect_files(options)
    connector = RedisConnector(options, clock)
    client = _connect(options, connector, limit=options.max_connections)
    keys = KeyNames(options.key_prefix)
    try:
        there = await _vet(client, connector)
        return await _open(options, client, keys, there=there)
    except BaseException:
        await client.close()
        raise


async def _open(options: RedisOptions, client: RedisClient, keys: KeyNames, *, there: bool) -> SharedBackend:
    origin = uuid4().hex
    bus, streams = RedisMessageLog(client, keys, origin=origin), RedisStreamLog(client, keys)
    # Without news hosts would wait here for what others did long ago: a gateway that hears none is none to ask.
    health = client.health
    changes = ChangeSubscriber(
        client.pubsub, keys.of("news"), origin=origin, refused=health.lose, usable=health.recovered
    )

    async def on_close() -> None:
        await streams.close()
        await bus.close()
        await client.close()

    store = RedisStore(
        client,
        keys,
        sessions=RedisSessionStore(client, keys),
        changes=changes,
        on_close=on_close,
        # Who was not answered by then may have been told that nothing was done.
        within=options.command_timeout,
    )
    try:
        if there:
            await changes.listening(timeout=options.connect_timeout)
            await _begin(bus)
    except BaseException:
        await store.close()
        raise

    @asynccontextmanager
    async def open_leases() -> AsyncIterator[LeaseStore]:
        own = _connect(options, RedisConnector(options), limit=_APART, quiet=True)
        try:
            yield RedisLeaseStore(own, keys)
        finally:
            await own.close()

    return SharedBackend(
        store=store,
        rates=RedisRateStore(client, keys),
        leases=RedisLeaseStore(client, keys),
        bus=bus,
        streams=streams,
        open_leases=open_leases,
    )


def _connect(options: RedisOptions, connector: RedisConnector, *, limit: int, quiet: bool = False) -> RedisClient:
    return RedisClient(connector, limit=limit, wait=options.pool_timeout, replicas=options.wait_replicas, quiet=quiet)


async def _begin(bus: RedisMessageLog) -> None:
    try:
        await bus.begin()
    except StoreUnavailable:
        # It was there a moment ago. Words are heard from when it is there again.
        return


async def _vet(client: RedisClient, connector: RedisConnector) -> bool:
    """Whether the server is there. Raises StoreUnavailable, for the operator, where it will not do."""
    try:
        await connector.vet()
    except UnfitServerError as error:
        raise StoreUnavailable(f"The server at store.redis.url will not do: {error}") from error
    except AuthenticationError as error:
        raise StoreUnavailable("The server at store.redis.url does not accept the username or the password") from error
    except ResponseError as error:
        raise StoreUnavailable(f"The server at store.redis.url refuses what store.redis asks for: {error}") from error
    except (RedisError, OSError, TimeoutError) as error:
        _expect_trust(error)
        client.health.lose(error)
        return False
    return True


def _expect_files(options: RedisOptions) -> None:
    """Raises StoreUnavailable where the library would find out at every attempt to connect."""
    if not options.tls:
        return
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file is not None:
            # Nobody is there to be asked for a passphrase.
            context.load_cert_chain(options.cert_file, options.key_file, password=lambda: "")
    except OSError as error:
        raise StoreUnavailable(
            "The files of store.redis.tls cannot be used: are they there, readable, a pair?"
        ) from error


def _expect_trust(error: BaseException) -> None:
    """Raises StoreUnavailable where the server is not the one that is meant: no waiting would help."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise StoreUnavailable(f"The certificate of the store's server is not accepted: {cause.verify_message}")
        cause = cause.__cause__ or cause.__context__
