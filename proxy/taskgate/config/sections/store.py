"""Section `store`: the store of tasks and sessions, and the leases of replicas that share it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from taskgate.config.addresses import (
    DatabasePath,
    FilePath,
    Sentinel,
    StoreAddress,
    StoreUrl,
    read_sentinel,
    read_store_url,
)
from taskgate.config.fields import (
    GIB,
    HOUR,
    MIB,
    MINUTE,
    SECOND,
    UNIQUE,
    DurationIn,
    PositiveDuration,
    Secret,
    Section,
    SizeIn,
    Text,
    json_pattern,
)
from taskgate.config.problems import Conflict, Location, conflict_between, list_at, mapping_at, value_at
from taskgate.stores.open import RedisOptions, SqliteOptions

_REDIS: Final = ("store", "redis")
_URL: Final = (*_REDIS, "url")
_SENTINEL: Final = (*_REDIS, "sentinel")
_TLS: Final = (*_REDIS, "tls")
_HEARTBEAT: Final = ("store", "lease", "heartbeat")
_TTL: Final = ("store", "lease", "ttl")
_PREFIX: Final = r"^[A-Za-z0-9:._/-]{1,64}$"


def _check_prefix(text: str) -> str:
    if not re.fullmatch(_PREFIX, text):
        raise ValueError("must be 1 to 64 of A-Z a-z 0-9 : . _ / -")
    return text


# Requests of hosts wait for the store, so these bounds are short.
_StoreTimeout = Annotated[timedelta, DurationIn(most=MINUTE)]
_KeyPrefix = Annotated[str, AfterValidator(_check_prefix), json_pattern(_PREFIX)]


class SqliteSection(Section):
    """The embedded database."""

    path: DatabasePath | None = None
    """Its file; null means taskgate.db in the data directory."""
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
    """FULL: an acknowledged task outlives a power cut; NORMAL: only the end of the process."""
    # SQLite counts this in a C int of milliseconds.
    busy_timeout: Annotated[timedelta, DurationIn(least=timedelta(), most=HOUR)] = 5 * SECOND
    """How long a write waits for a locked file."""
    max_size: Annotated[int, SizeIn(least=MIB, most=2**10 * GIB)] = 4 * GIB
    """Largest size of the file; a task that does not fit is refused, and `/readyz` is 503 until
    there is room.
    """

    def to_options(self, data_directory: Path | None) -> SqliteOptions:
        """Return the options of the store; without `path` its file is in `data_directory`."""
        assert self.path or data_directory, "a store in a file needs a path or a data directory"
        return SqliteOptions(
            path=self.path or (data_directory or Path()) / "taskgate.db",
            synchronous=self.synchronous,
            busy_timeout=self.busy_timeout,
            max_size=self.max_size,
        )


class SentinelSection(Section):
    """Sentinels, which know where the primary is; with mode sentinel."""

    service: Text | None = None
    """The name of the service at the sentinels."""
    nodes: Annotated[tuple[Sentinel, ...], *UNIQUE] = ()
    """The sentinels: HOST or HOST:PORT; the default port is 26379."""


class RedisTlsSection(Section):
    """TLS to a server whose url is rediss://: the authorities that it trusts, and the gateway's
    client certificate.
    """

    ca_file: FilePath | None = None
    """The certificate authorities that are trusted, as PEM; null means those of the system."""
    cert_file: FilePath | None = None
    """The gateway's client certificate, as PEM; null means none."""
    key_file: FilePath | None = None
    """The key of that certificate, as PEM and without a password."""


class RedisPoolSection(Section):
    """Connections to the server."""

    max_connections: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 64
    """The most connections."""
    timeout: _StoreTimeout = 2 * SECOND
    """How long a request waits for a free connection."""


class RedisTimeoutsSection(Section):
    """Timeouts of the server, after which it counts as down."""

    connect: _StoreTimeout = 2 * SECOND
    """Until a connection is open."""
    command: _StoreTimeout = 2 * SECOND
    """Until a command is answered."""


class RedisSection(Section):
    """Redis or Valkey, 7.0 or later."""

    url: StoreUrl | None = None
    """redis://HOST:PORT/DATABASE, or rediss:// for TLS; required with backend redis.

    With mode sentinel it names no host, as in rediss:///0, and null means redis:///0; with mode
    cluster it is any node.
    """
    username: Text | None = None
    """The user of the server's access list; null means its default user."""
    password: Secret | None = Field(default=None, repr=False)
    """That user's password; null means that none is asked for."""
    key_prefix: _KeyPrefix = "taskgate:"
    """The prefix of every key and channel. Gateways with the same prefix share their data."""
    mode: Literal["standalone", "sentinel", "cluster"] = "standalone"
    """standalone: one server; sentinel: the primary that sentinels name; cluster: one slot of a
    cluster.
    """
    sentinel: SentinelSection = SentinelSection()
    tls: RedisTlsSection = RedisTlsSection()
    pool: RedisPoolSection = RedisPoolSection()
    timeouts: RedisTimeoutsSection = RedisTimeoutsSection()
    wait_replicas: Annotated[int, Field(strict=True, ge=0, le=16)] = 0
    """How many replicas of the server must confirm a write before the host is told that a task was
    created or how it ended.
    """

    def to_options(self) -> RedisOptions:
        """Return the options of the store."""
        address = StoreAddress(tls=False, server=None, database=0) if self.url is None else read_store_url(self.url)
        defaults = RedisOptions()
        return RedisOptions(
            mode=self.mode,
            host=address.server.host if address.server else defaults.host,
            port=address.server.port if address.server else defaults.port,
            database=address.database,
            username=self.username,
            password=self.password,
            key_prefix=self.key_prefix,
            service=self.sentinel.service,
            sentinels=tuple((node.host, node.port) for node in map(read_sentinel, self.sentinel.nodes)),
            tls=address.tls,
            ca_file=self.tls.ca_file,
            cert_file=self.tls.cert_file,
            key_file=self.tls.key_file,
            max_connections=self.pool.max_connections,
            pool_timeout=self.pool.timeout,
            connect_timeout=self.timeouts.connect,
            command_timeout=self.timeouts.command,
            wait_replicas=self.wait_replicas,
        )


class LeaseSection(Section):
    """Leases, which say who runs a call where several gateways share a store."""

    ttl: PositiveDuration = 15 * SECOND
    """How long after its last heartbeat another gateway takes over a gateway's calls."""
    heartbeat: PositiveDuration = 5 * SECOND
    """The interval of heartbeats; at most half of ttl."""


class StoreSection(Section):
    """The store of tasks and sessions."""

    backend: Literal["sqlite", "redis", "memory"] = "sqlite"
    """sqlite: one file; redis: Redis or Valkey, for several gateways; memory: everything is lost
    with the process.
    """
    sqlite: SqliteSection = SqliteSection()
    redis: RedisSection = RedisSection()
    lease: LeaseSection = LeaseSection()
    purge_interval: PositiveDuration = 2 * SECOND
    """How often expired tasks are removed."""


# --- rules between keys, with backend redis alone -------------------------------------------------------------------


def store_conflicts(raw: object, defaults: object) -> Iterator[Conflict]:
    """Find conflicts between keys of `store`, and keys that replicas must have in common."""
    if mapping_at(raw, "store").get("backend") != "redis":
        return
    redis = mapping_at(raw, *_REDIS)
    yield from _url_conflicts(redis)
    yield from _sentinel_conflicts(redis)
    yield from _tls_conflicts(redis)
    if redis.get("username") is not None and redis.get("password") is None:
        yield (*_REDIS, "username"), "must be null without a password"
    heartbeat = value_at((raw, defaults), _HEARTBEAT, DurationIn().read)
    ttl = value_at((raw, defaults), _TTL, DurationIn().read)
    if heartbeat is not None and ttl is not None and 2 * heartbeat > ttl:
        words = ("must be at most half of", "must be at least twice")
        yield conflict_between(raw, defaults, _HEARTBEAT, _TTL, words)
    yield from _missing_common_keys(raw)


def _url_conflicts(redis: Mapping[str, object]) -> Iterator[Conflict]:
    mode, url = redis.get("mode", "standalone"), redis.get("url")
    if url is None:
        if mode in ("standalone", "cluster"):
            yield _URL, "is required with store.backend redis"
        return
    address = _address(url)
    if address is None:
        return
    if mode == "sentinel" and address.server is not None:
        yield _URL, "must not name a host with mode sentinel, where sentinels do: write redis:///0 or rediss:///0"
    if mode in ("standalone", "cluster") and address.server is None:
        yield _URL, "must name a host, unless mode is sentinel"
    if mode == "cluster" and address.database:
        yield _URL, "must not name a database but 0 with mode cluster, which has no other"


def _sentinel_conflicts(redis: Mapping[str, object]) -> Iterator[Conflict]:
    mode, sentinel = redis.get("mode", "standalone"), mapping_at(redis, "sentinel")
    has_service, has_nodes = sentinel.get("service") is not None, bool(list_at(sentinel, "nodes"))
    if mode == "sentinel":
        if not has_service:
            yield (*_SENTINEL, "service"), "is required with mode sentinel"
        if not has_nodes and sentinel.get("nodes", []) == []:
            yield (*_SENTINEL, "nodes"), "must not be empty with mode sentinel"
    elif mode in ("standalone", "cluster"):
        if has_service:
            yield (*_SENTINEL, "service"), f"must be null with mode {mode}"
        if has_nodes:
            yield (*_SENTINEL, "nodes"), f"must be empty with mode {mode}"


def _tls_conflicts(redis: Mapping[str, object]) -> Iterator[Conflict]:
    tls = mapping_at(redis, "tls")
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if tls.get(one) is None and tls.get(other) is not None:
            yield (*_TLS, one), f"is required with {other}"
    address = _address(redis.get("url", "redis:///0") or "redis:///0")
    for key in ("ca_file", "cert_file", "key_file"):
        if address is not None and not address.tls and tls.get(key) is not None:
            yield (*_TLS, key), "must be null unless url is rediss://"


def _missing_common_keys(raw: object) -> Iterator[Conflict]:
    """Find absent keys for which each gateway would otherwise make a key of its own."""
    needed: list[tuple[Location, str]] = [(("auth", "context", "key_file"), "store.backend redis")]
    if mapping_at(raw, "audit").get("enabled", True) is True:
        needed.append((("audit", "hmac_key_file"), "store.backend redis, unless audit.enabled is false"))
    for where, when in needed:
        *above, last = map(str, where)
        if mapping_at(raw, *above).get(last) is None:
            yield where, f"is required with {when}: it has to be the same in every gateway"


def _address(url: object) -> StoreAddress | None:
    try:
        return read_store_url(url) if isinstance(url, str) else None
    except ValueError:
        return None
