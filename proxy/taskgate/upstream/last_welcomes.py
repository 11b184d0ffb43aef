"""Cache of what a server last said of itself, for hosts that connect while it is down.

`LastWelcomes` is shared by the sessions with a server; a `Welcome` uses it for one session. An
answer to `initialize` or `server/discover` depends on what the host declares. It may depend on the
caller too, where the server can tell callers apart. So entries have a key of both. The cache is
bounded in number and size; the entry that was unused for the longest time is evicted.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import sha256
from sys import getsizeof
from typing import Final

from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ServerDescription
from taskgate.upstream.failures import Down
from taskgate.upstream.settings import GrantKind, GrantSettings, IdentityHeaders, UpstreamSettings

MOST: Final = 1024
"""Entries per server."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of all entries together."""
_OF_A_TREE: Final = 25
"""Memory of parsed capabilities, as a multiple of the size of their text."""
_OF_ONE: Final = 2048
"""Bytes of an entry besides its texts, rounded up."""


class LastWelcomes:
    """The last welcomes of one server, by key (`key_of`)."""

    def __init__(self, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        # Least recently used first. A plain dict would have to search for its first entry.
        self._entries: OrderedDict[bytes, tuple[ServerDescription, int]] = OrderedDict()
        self._bytes = 0

    def keep(self, key: bytes, server: ServerDescription) -> None:
        """Store what the server said, unless it is larger than the whole cache."""
        _, size = self._entries.pop(key, (None, 0))
        self._bytes -= size
        size = _size(server)
        if size > self._most_bytes:
            return
        self._entries[key] = server, size
        self._bytes += size
        while len(self._entries) > self._most or self._bytes > self._most_bytes:
            _, (_, gone) = self._entries.popitem(last=False)
            self._bytes -= gone

    def find(self, key: bytes) -> ServerDescription | None:
        """Return what the server said last; None if unknown."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]


class Welcome:
    """Description of the server for the hosts of one session.

    The session calls `met` after each handshake, and `told` for each host that connects. `key`
    returns the cache key of the session. `heard` is called with the server's identity after each
    handshake. `is_down` returns whether the server is known to be down.
    """

    __slots__ = ("_handshakes", "_heard", "_is_down", "_key", "_last")

    def __init__(
        self,
        last: LastWelcomes,
        key: Callable[[], bytes],
        *,
        heard: Callable[[ServerDescription], None],
        is_down: Callable[[], bool],
    ) -> None:
        self._last = last
        self._key = key
        self._heard = heard
        self._is_down = is_down
        self._handshakes = 0

    def met(self, server: ServerDescription) -> None:
        """Store what the server said in a handshake, and pass it to `heard`."""
        self._handshakes += 1
        self._last.keep(self._key(), server)
        self._heard(server)

    async def told(self, opened: Awaitable[ServerDescription]) -> ServerDescription:
        """Return the result of `opened`, the opening of the session.

        If it fails because the server is down, the last welcome is returned, marked stale. Raises
        UpstreamFailed without one, and for other failures.
        """
        before = self._handshakes
        try:
            server = await opened
        except UpstreamFailed as failure:
            last = self._last.find(self._key()) if isinstance(failure, Down) else None
            if last is None:
                raise
            return replace(last, is_stale=True)
        # Without a new handshake, `opened` returned what an earlier one said, and the server may
        # have gone down since.
        return replace(server, is_stale=True) if before == self._handshakes and self._is_down() else server


def key_of(*declared: str, caller: str | None) -> bytes:
    """Return the cache key of what a host declares in either era, and of `caller`.

    `caller` is None if the server cannot tell callers apart.
    """
    parts = (*declared, "" if caller is None else f"{caller}.")
    return sha256("\0".join(map(ascii, parts)).encode()).digest()


def knows_callers(settings: UpstreamSettings) -> bool:
    """Whether the server can tell callers apart: by its credentials or headers, or as a program of
    one caller."""
    grant, stdio = settings.credentials, settings.stdio
    exchanges = isinstance(grant, GrantSettings) and grant.kind is GrantKind.TOKEN_EXCHANGE
    return exchanges or settings.identity != IdentityHeaders() or (stdio is not None and not stdio.shared)


def _size(server: ServerDescription) -> int:
    """Estimate the memory of one entry in bytes."""
    texts = sum(getsizeof(text) for text in (server.rest, server.info or "", server.instructions or ""))
    return _OF_ONE + texts + _OF_A_TREE * getsizeof(server.capabilities)
