"""How Redis or Valkey is reached. Values only, readable without the library that speaks to it."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """Where the store is, who asks, and how long anything may take.

    `host` and `port` are of the server, or of any node of a cluster; with `mode` sentinel the `sentinels` know where
    the primary of `service` is. `password` is never shown. `wait_replicas` is how many replicas have to have a write
    before it counts as durable.
    """

    mode: Literal["standalone", "sentinel", "cluster"] = "standalone"
    host: str = "127.0.0.1"
    port: int = 6379
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    key_prefix: str = "taskgate:"
    service: str | None = None
    sentinels: tuple[tuple[str, int], ...] = ()
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    max_connections: int = 64
    pool_timeout: timedelta = timedelta(seconds=2)
    connect_timeout: timedelta = timedelta(seconds=2)
    command_timeout: timedelta = timedelta(seconds=2)
    wait_replicas: int = 0
