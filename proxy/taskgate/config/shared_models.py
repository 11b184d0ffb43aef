"""The configuration of a store that several gateways share: Redis or Valkey, and who runs which call.

What must not live here: what the keys say together (shared_coherence), and what the store is told (parts).
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from taskgate.config.addresses import FilePath
from taskgate.config.credential_models import Secret
from taskgate.config.fields import MINUTE, ONCE_EACH, SECOND, Positive, Section, Text
from taskgate.config.store_addresses import Node, StoreUrl
from taskgate.config.units import DurationIn

_PREFIX: Final = r"^[A-Za-z0-9:._/-]{1,64}$"


def _prefix(written: str) -> str:
    if not re.fullmatch(_PREFIX, written):
        raise ValueError("must be 1 to 64 of A-Z a-z 0-9 : . _ / -")
    return written


# Whoever waits for the store has a host that waits, too.
_Bound = Annotated[timedelta, DurationIn(most=MINUTE)]
_Prefix = Annotated[str, AfterValidator(_prefix), WithJsonSchema({"type": "string", "pattern": _PREFIX})]


class LeaseSection(Section):
    """Who runs a call, where several gateways share a store."""

    ttl: Positive = 15 * SECOND
    """How long after its last sign of life a gateway's calls are taken over by another."""
    heartbeat: Positive = 5 * SECOND
    """How often a gateway gives a sign of life; at most half of ttl."""


class SentinelSection(Section):
    """Who knows where the primary is, with mode sentinel."""

    service: Text | None = None
    """What the sentinels call it."""
    nodes: Annotated[tuple[Node, ...], *ONCE_EACH] = ()
    """The sentinels: HOST or HOST:PORT, without a port 26379."""


class RedisTlsSection(Section):
    """How a server whose url is rediss:// is recognised, and what the gateway shows of itself."""

    ca_file: FilePath | None = None
    """The authorities that it must be certified by, as PEM; null means those of the system."""
    cert_file: FilePath | None = None
    """The certificate that the gateway shows, as PEM; null shows none."""
    key_file: FilePath | None = None
    """The key of that certificate, as PEM and without a password."""


class RedisPoolSection(Section):
    """Connections to the server."""

    max_connections: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 64
    """How many there may be."""
    timeout: _Bound = 2 * SECOND
    """How long a request waits for one that is free."""


class RedisTimeoutsSection(Section):
    """How long the server may take; after that it counts as down."""

    connect: _Bound = 2 * SECOND
    """Until a connection stands."""
    command: _Bound = 2 * SECOND
    """Until a command is answered."""


class RedisSection(Section):
    """Redis or Valkey, 7.0 or later."""

    url: StoreUrl | None = None
    """redis://HOST:PORT/DATABASE, or rediss:// for TLS; required with backend redis.

    With mode sentinel it names no host, as in rediss:///0, and null means redis:///0; with mode cluster it is any node.
    """
    username: Text | None = None
    """The user of the server's access list; null means its default user."""
    password: Secret | None = Field(default=None, repr=False)
    """That user's password; null means that none is asked for."""
    key_prefix: _Prefix = "taskgate:"
    """What every key and channel begins with: gateways share what they keep if it is the same."""
    mode: Literal["standalone", "sentinel", "cluster"] = "standalone"
    """standalone: one server; sentinel: the primary that sentinels name; cluster: one slot of a cluster."""
    sentinel: SentinelSection = SentinelSection()
    tls: RedisTlsSection = RedisTlsSection()
    pool: RedisPoolSection = RedisPoolSection()
    timeouts: RedisTimeoutsSection = RedisTimeoutsSection()
    wait_replicas: Annotated[int, Field(strict=True, ge=0, le=16)] = 0
    """How many replicas of the server must have a task before its host is told that it was created, and its outcome."""
