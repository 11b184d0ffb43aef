"""What the parts of a running gateway make of `server`, `store` and questions: the configuration as values of theirs.

What lives here: that translation and nothing else. What must not: opening or reading what the values name.
"""

from __future__ import annotations

from pathlib import Path

from taskgate.admission.rules import QuestionBounds
from taskgate.config.models import GatewayConfig
from taskgate.config.store_addresses import StoreAddress, node_of, place_of
from taskgate.config.tls import TlsSection
from taskgate.listener.connection_limits import ConnectionBounds
from taskgate.listener.listener import ListenerSettings
from taskgate.listener.names import allowed_hosts, allowed_origins
from taskgate.listener.tls import TlsSettings
from taskgate.stores.open import RedisOptions, SqliteOptions


def listener_settings(config: GatewayConfig, port: int) -> ListenerSettings:
    """The public listener's, where that is bound to `port`."""
    server = config.server
    hosts = allowed_hosts(server.public_url, server.listen.host, port, server.allowed_hosts)
    return ListenerSettings(
        allowed_hosts=hosts,
        allowed_origins=allowed_origins(hosts, server.allowed_origins),
        max_body=server.max_body,
        max_header=server.max_header,
        read_timeout=server.read_timeout,
        idle_timeout=server.idle_timeout,
        sse_keepalive=server.sse_keepalive,
        trusted_proxies=server.trusted_proxies,
        forwarded_header=server.forwarded_header,
        tls=_tls(server.tls),
    )


def connection_bounds(config: GatewayConfig) -> ConnectionBounds:
    """How many connections hosts may have."""
    server = config.server
    return ConnectionBounds(
        total=server.max_connections, per_address=server.max_connections_per_address, exempt=server.trusted_proxies
    )


def question_bounds(config: GatewayConfig) -> QuestionBounds:
    """How long questions of servers wait for hosts, and how many at once."""
    asking = config.tasks.input_required
    return QuestionBounds(asking.max_wait, asking.max_outstanding)


def sqlite_options(config: GatewayConfig, data_directory: Path | None) -> SqliteOptions:
    """Those of the store in a file; one without a configured path lives in the data directory."""
    section = config.store.sqlite
    assert section.path or data_directory, "a store in a file needs a place"
    return SqliteOptions(
        path=section.path or (data_directory or Path()) / "taskgate.db",
        synchronous=section.synchronous,
        busy_timeout=section.busy_timeout,
        max_size=section.max_size,
    )


def redis_options(config: GatewayConfig) -> RedisOptions:
    """Those of the store that several gateways share, where `store.backend` is redis."""
    section = config.store.redis
    place = StoreAddress(tls=False, server=None, database=0) if section.url is None else place_of(section.url)
    usual = RedisOptions()
    return RedisOptions(
        mode=section.mode,
        host=place.server.host if place.server else usual.host,
        port=place.server.port if place.server else usual.port,
        database=place.database,
        username=section.username,
        password=section.password,
        key_prefix=section.key_prefix,
        service=section.sentinel.service,
        sentinels=tuple((node.host, node.port) for node in map(node_of, section.sentinel.nodes)),
        tls=place.tls,
        ca_file=section.tls.ca_file,
        cert_file=section.tls.cert_file,
        key_file=section.tls.key_file,
        max_connections=section.pool.max_connections,
        pool_timeout=section.pool.timeout,
        connect_timeout=section.timeouts.connect,
        command_timeout=section.timeouts.command,
        wait_replicas=section.wait_replicas,
    )


def _tls(section: TlsSection) -> TlsSettings | None:
    """None where the listener speaks plain HTTP."""
    if section.cert_file is None or section.key_file is None:
        return None
    return TlsSettings(
        cert_file=section.cert_file,
        key_file=section.key_file,
        min_version=section.min_version,
        client_auth=section.client_auth,
        client_ca_file=section.client_ca_file,
    )
