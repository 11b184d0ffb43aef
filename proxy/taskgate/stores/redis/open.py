"""The opener of a shared deployment in Redis or Valkey: `open_redis` builds the SharedBackend of
one process.

An unreachable server does not stop it: the backend works once the server answers. A server that
refuses the gateway, or might drop data, raises StoreUnavailable.
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
from taskgate.stores.redis.leases import RedisLeaseStore
from taskgate.stores.redis.options import KeyNames, RedisOptions
from taskgate.stores.redis.rates import RedisRateStore
from taskgate.stores.redis.records.change_subscriber import ChangeSubscriber
from taskgate.stores.redis.records.store import RedisStore
from taskgate.stores.redis.streams import RedisStreamLog
from taskgate.stores.references import ReferenceOf, plain_reference
from taskgate.stores.shared import LeaseStore, SharedBackend
from taskgate.system.secret_files import ADVICE, is_exposed

_KEY_FILE = "store.redis.tls.key_file"
_HEARTBEAT_CONNECTIONS = 2
"""Connections of the heartbeat thread, which does nothing else."""


async def open_redis(
    options: RedisOptions, clock: SharedClock | None = None, reference_of: ReferenceOf = plain_reference
) -> SharedBackend:
    """Open the backend; `stores.open.open_shared` has the contract."""
    expect_tls_files(options)
    connector = RedisConnector(options, clock)
    client = _connect(options, connector, limit=options.max_connections)
    keys = KeyNames(options.key_prefix)
    try:
        is_up = await _check(client, connector)
        return await _open(options, client, keys, reference_of, is_up=is_up)
    except BaseException:
        await client.close()
        raise


async def expect_server(options: RedisOptions) -> None:
    """Ask the server once whether it is up and fit; nothing is opened.

    Raises StoreUnavailable if it is not. The wait is bounded by the timeouts of the options.
    """
    expect_tls_files(options)
    connector = RedisConnector(options)
    client = _connect(options, connector, limit=1, debug_only=True)
    try:
        if not await _check(client, connector):
            raise StoreUnavailable("The server at store.redis.url does not answer: check its address and the network")
    finally:
        await client.close()


async def _open(
    options: RedisOptions, client: RedisClient, keys: KeyNames, reference_of: ReferenceOf, *, is_up: bool
) -> SharedBackend:
    origin = uuid4().hex
    bus, streams = RedisMessageLog(client, keys, origin=origin), RedisStreamLog(client, keys)
    # Without changes from others, hosts would wait too long: a gateway that cannot subscribe counts
    # as without a store.
    health = client.health
    changes = ChangeSubscriber(
        client.pubsub,
        keys.of("news"),
        origin=origin,
        on_refused=health.mark_down,
        wait_until_usable=health.wait_until_up,
    )

    async def on_close() -> None:
        await streams.close()
        await bus.close()
        await client.close()

    store = RedisStore(
        client,
        keys,
        changes=changes,
        on_close=on_close,
        # After that time the caller may have been told that the insert failed.
        within=options.command_timeout,
        reference_of=reference_of,
    )
    try:
        if is_up:
            await changes.wait_until_subscribed(timeout=options.connect_timeout)
            await _begin_receiving(bus)
    except BaseException:
        await store.close()
        raise

    @asynccontextmanager
    async def open_leases() -> AsyncIterator[LeaseStore]:
        own = _connect(options, RedisConnector(options), limit=_HEARTBEAT_CONNECTIONS, debug_only=True)
        try:
            yield RedisLeaseStore(own, keys, reference_of)
        finally:
            await own.close()

    return SharedBackend(
        store=store,
        rates=RedisRateStore(client, keys),
        leases=RedisLeaseStore(client, keys, reference_of),
        bus=bus,
        streams=streams,
        open_leases=open_leases,
    )


def _connect(options: RedisOptions, connector: RedisConnector, *, limit: int, debug_only: bool = False) -> RedisClient:
    return RedisClient(
        connector, limit=limit, wait=options.pool_timeout, replicas=options.wait_replicas, debug_only=debug_only
    )


async def _begin_receiving(bus: RedisMessageLog) -> None:
    try:
        await bus.begin()
    except StoreUnavailable:
        # It was up a moment ago. Messages are received once it is up again.
        return


async def _check(client: RedisClient, connector: RedisConnector) -> bool:
    """Whether the server is up.

    Raises StoreUnavailable, for the operator, if the server is unfit.
    """
    try:
        await connector.check()
    except UnfitServerError as error:
        raise StoreUnavailable(f"The server at store.redis.url cannot be used: {error}") from error
    except AuthenticationError as error:
        raise StoreUnavailable("The server at store.redis.url does not accept the username or the password") from error
    except ResponseError as error:
        raise StoreUnavailable(
            f"The server at store.redis.url refuses a command that taskgate needs: {error}"
        ) from error
    except (RedisError, OSError, TimeoutError) as error:
        _raise_if_untrusted(error)
        client.health.mark_down(error)
        return False
    return True


def expect_tls_files(options: RedisOptions) -> None:
    """Raises StoreUnavailable if the TLS files are unusable, or if every user of the machine may
    read the key. The library would fail at each connect.
    """
    if not options.tls:
        return
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file is not None:
            # There is no operator to ask for a passphrase.
            context.load_cert_chain(options.cert_file, options.key_file, password=lambda: "")
        key = options.key_file
        is_open = key is not None and is_exposed(key, key.stat().st_mode, _KEY_FILE)
    except OSError as error:
        raise StoreUnavailable(
            "The files of store.redis.tls cannot be used: check that they exist, are readable, and match"
        ) from error
    if is_open:
        raise StoreUnavailable(f"{_KEY_FILE}: {options.key_file} {ADVICE}")


def _raise_if_untrusted(error: BaseException) -> None:
    """Raises StoreUnavailable if the server's certificate is not accepted: waiting would not help."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise StoreUnavailable(f"The certificate of the store's server is not accepted: {cause.verify_message}")
        cause = cause.__cause__ or cause.__context__
