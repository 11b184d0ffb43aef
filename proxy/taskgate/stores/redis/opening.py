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
from taskgate.stores.redis.connection import RedisConnection
from taskgate.stores.redis.keys import KeyNames
from taskgate.stores.redis.leases import LeasesInRedis
from taskgate.stores.redis.options import RedisOptions
from taskgate.stores.redis.post import PostInRedis
from taskgate.stores.redis.rates import RedisRateStore
from taskgate.stores.redis.records.news import Newsfeed
from taskgate.stores.redis.records.tasks import RedisStore
from taskgate.stores.redis.sessions import SessionsInRedis
from taskgate.stores.redis.streams import StreamsInRedis
from taskgate.stores.redis.wires.health import Unfit
from taskgate.stores.redis.wires.wire import Wires
from taskgate.stores.sharing import Leases, Shared

_APART = 2
"""Connections of another thread, which gives signs of life and does nothing else."""


async def open_redis(options: RedisOptions, clock: SharedClock | None = None) -> Shared:
    """See stores.open.open_shared."""
    _expect_files(options)
    wires = Wires(options, clock)
    connection = _connect(options, wires, limit=options.max_connections)
    keys = KeyNames(options.key_prefix)
    try:
        there = await _vet(connection, wires)
        return await _open(options, connection, keys, there=there)
    except BaseException:
        await connection.close()
        raise


async def _open(options: RedisOptions, connection: RedisConnection, keys: KeyNames, *, there: bool) -> Shared:
    origin = uuid4().hex
    post, streams = PostInRedis(connection, keys, origin=origin), StreamsInRedis(connection, keys)
    # Without news hosts would wait here for what others did long ago: a gateway that hears none is none to ask.
    health = connection.health
    news = Newsfeed(connection.pubsub, keys.of("news"), origin=origin, refused=health.lose, usable=health.recovered)

    async def let_go() -> None:
        await streams.close()
        await post.close()
        await connection.close()

    store = RedisStore(
        connection,
        keys,
        sessions=SessionsInRedis(connection, keys),
        news=news,
        let_go=let_go,
        # Who was not answered by then may have been told that nothing was done.
        within=options.command_timeout,
    )
    try:
        if there:
            await news.listening(timeout=options.connect_timeout)
            await _begin(post)
    except BaseException:
        await store.close()
        raise

    @asynccontextmanager
    async def apart() -> AsyncIterator[Leases]:
        own = _connect(options, Wires(options), limit=_APART, quiet=True)
        try:
            yield LeasesInRedis(own, keys)
        finally:
            await own.close()

    return Shared(
        store=store,
        rates=RedisRateStore(connection, keys),
        leases=LeasesInRedis(connection, keys),
        post=post,
        streams=streams,
        apart=apart,
    )


def _connect(options: RedisOptions, wires: Wires, *, limit: int, quiet: bool = False) -> RedisConnection:
    return RedisConnection(wires, limit=limit, wait=options.pool_timeout, replicas=options.wait_replicas, quiet=quiet)


async def _begin(post: PostInRedis) -> None:
    try:
        await post.begin()
    except StoreUnavailable:
        # It was there a moment ago. Words are heard from when it is there again.
        return


async def _vet(connection: RedisConnection, wires: Wires) -> bool:
    """Whether the server is there. Raises StoreUnavailable, for the operator, where it will not do."""
    try:
        await wires.vet()
    except Unfit as error:
        raise StoreUnavailable(f"The server at store.redis.url will not do: {error}") from error
    except AuthenticationError as error:
        raise StoreUnavailable("The server at store.redis.url does not accept the username or the password") from error
    except ResponseError as error:
        raise StoreUnavailable(f"The server at store.redis.url refuses what store.redis asks for: {error}") from error
    except (RedisError, OSError, TimeoutError) as error:
        _expect_trust(error)
        connection.health.lose(error)
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
