"""The settings of the shared store, `RedisOptions`, and the names of its keys, `KeyNames`.

The module imports without the client library. All key names begin with the operator's prefix and
share one hash tag, so that a script may use any of them. A cluster only provides failover: all keys
of one deployment are in one slot. Parts that hosts or operators choose are digested, so that a key
name reveals nothing and no two names collide (T24).
"""

from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2s
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


class KeyNames:
    """The names of one deployment."""

    def __init__(self, prefix: str) -> None:
        self._root = f"{prefix}{{taskgate}}:"

    def of(self, kind: str, *parts: str) -> str:
        """The key of a kind, for one set of `parts` of any content."""
        return f"{self._root}{kind}:{digest(*parts)}" if parts else f"{self._root}{kind}"

    @property
    def every(self) -> str:
        """A pattern that matches all keys."""
        return f"{self._root}*"


def digest(*parts: str) -> str:
    """A digest of the parts, of 128 bits in hexadecimal."""
    hashed = blake2s(digest_size=16)
    for part in parts:
        text = part.encode(errors="surrogatepass")
        hashed.update(len(text).to_bytes(8, "big"))
        hashed.update(text)
    return hashed.hexdigest()
