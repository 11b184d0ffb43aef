"""What a server said last of itself, for hosts that come while it is down.

What a server says may depend on who asks: on what a host declares, always, and on the caller where the server is told
of that, or runs for one caller alone. What must not live here: when a server is down (`failures`), and when it is asked
(the sessions). What holds: what is kept is bounded in number and in size, and what was asked for the longest ago goes.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import sha256
from sys import getsizeof
from typing import Final

from taskgate.errors import UpstreamFailed
from taskgate.protocol.base import Server
from taskgate.upstream.failures import Down
from taskgate.upstream.settings import GrantKind, GrantSettings, IdentityHeaders, UpstreamSettings

MOST: Final = 1024
"""Welcomes of one server that are kept."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes that they take together."""
_OF_A_TREE: Final = 25
"""Times the size of its text that capabilities take once they are read."""
_OF_ONE: Final = 2048
"""Bytes that one takes beside its texts, and little more."""


class LastWelcomes:
    """The last welcomes of one server, each by whom it is for."""

    def __init__(self, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        # The one that was not asked for the longest in front. A plain dict would have to search for its front.
        self._kept: OrderedDict[bytes, tuple[Server, int]] = OrderedDict()
        self._bytes = 0

    def keep(self, key: bytes, server: Server) -> None:
        """The server said that last; what is too large for all is not kept."""
        _, size = self._kept.pop(key, (None, 0))
        self._bytes -= size
        size = _size(server)
        if size > self._most_bytes:
            return
        self._kept[key] = server, size
        self._bytes += size
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= gone

    def find(self, key: bytes) -> Server | None:
        """What it said last; None where that is not known."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]


class Welcome:
    """What the hosts of one session are told of its server. `key` is asked for when it is needed.

    `heard` hears who the server says that it is; `is_down` tells whether it is known to be down.
    """

    __slots__ = ("_heard", "_is_down", "_key", "_last", "_times")

    def __init__(
        self,
        last: LastWelcomes,
        key: Callable[[], bytes],
        *,
        heard: Callable[[Server], None],
        is_down: Callable[[], bool],
    ) -> None:
        self._last = last
        self._key = key
        self._heard = heard
        self._is_down = is_down
        self._times = 0

    def met(self, server: Server) -> None:
        """The server said that in a handshake."""
        self._times += 1
        self._last.keep(self._key(), server)
        self._heard(server)

    async def told(self, opened: Awaitable[Server]) -> Server:
        """What the server says, as `opened`; while it is down what it said last, marked. Raises UpstreamFailed."""
        before = self._times
        try:
            server = await opened
        except UpstreamFailed as failure:
            last = self._last.find(self._key()) if isinstance(failure, Down) else None
            if last is None:
                raise
            return replace(last, is_stale=True)
        # A session that stands tells what it heard when it was opened.
        return replace(server, is_stale=True) if before == self._times and self._is_down() else server


def key_of(*declared: str, caller: str | None) -> bytes:
    """By what a host declares, as the server is told in either era, and by `caller` where it may tell callers apart."""
    parts = (*declared, "" if caller is None else f"{caller}.")
    return sha256("\0".join(map(ascii, parts)).encode()).digest()


def knows_callers(settings: UpstreamSettings) -> bool:
    """Whether the server may tell callers apart: by what is shown to it, or as a program that runs for one alone."""
    grant, stdio = settings.credentials, settings.stdio
    exchanges = isinstance(grant, GrantSettings) and grant.kind is GrantKind.TOKEN_EXCHANGE
    return exchanges or settings.identity != IdentityHeaders() or (stdio is not None and not stdio.shared)


def _size(server: Server) -> int:
    """About the bytes that one takes."""
    texts = sum(getsizeof(text) for text in (server.rest, server.info or "", server.instructions or ""))
    return _OF_ONE + texts + _OF_A_TREE * getsizeof(server.capabilities)
