"""The settings of the shared store: `RedisOptions`. It imports without the client library."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """The address of the store, the credentials, and the time limits.

    `host` and `port` are those of the server, or of any node of a cluster. With `mode` sentinel,
    the `sentinels` name the primary of `service`. `password` is never shown. `wait_replicas` is the
    number of replicas that must confirm a durable write.
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
