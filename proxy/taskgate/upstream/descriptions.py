"""Descriptions that servers gave of themselves: the last welcomes (`LastWelcomes`), and lists of tools.

An answer to `initialize` or `server/discover` depends on what the host declares. It may depend on the
caller too, where the server can tell callers apart. So entries of `LastWelcomes` have a key of both.
They are for hosts that connect while the server is down. `LastWelcomes` is shared by the sessions with
a server; a `Welcome` uses it for one session. The cache is bounded in number and size; the entry that
was unused for the longest time is evicted.

`read_catalogue` joins all pages of a list of tools. A list beyond its limits is refused as a whole: a
part of it would look like all of it. A `Catalogue` has the tools of one session. The sessions of both
eras forget it when the server says that its list changed. They give it each response to `tools/list`
that goes to the host. A complete list replaces what is known, so that it need not be read again.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from math import inf
from sys import getsizeof
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.versions import Era, era_of
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import CatalogueBounds, ListedTool, ServerDescription, ToolList, ToolPage
from taskgate.protocol.messages import Params, Response
from taskgate.system.offload import offload
from taskgate.system.single_flight import Abandoned, SingleFlight
from taskgate.upstream import failures
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

    The session calls `met` after each handshake, and `describe` for each host that connects. `key`
    returns the cache key of the session in an era. `era` is that of the host, whose last welcome is
    looked for first. `heard` is called with the server's identity after each handshake. `is_down`
    returns whether the server is known to be down.
    """

    __slots__ = ("_eras", "_handshakes", "_heard", "_is_down", "_key", "_last")

    def __init__(
        self,
        last: LastWelcomes,
        key: Callable[[Era], bytes],
        *,
        era: Era,
        heard: Callable[[ServerDescription], None],
        is_down: Callable[[], bool],
    ) -> None:
        self._last = last
        self._key = key
        self._eras = (era, *(other for other in Era if other is not era))
        self._heard = heard
        self._is_down = is_down
        self._handshakes = 0

    def met(self, server: ServerDescription) -> None:
        """Store what the server said in a handshake, and pass it to `heard`."""
        self._handshakes += 1
        self._last.keep(self._key(era_of(server.peer.revision)), server)
        self._heard(server)

    async def describe(self, opened: Awaitable[ServerDescription]) -> ServerDescription:
        """Return the result of `opened`, the opening of the session.

        If it fails because the server is down, the last welcome is returned, marked stale. Raises
        UpstreamFailed without one, and for other failures.
        """
        before = self._handshakes
        try:
            server = await opened
        except UpstreamFailed as failure:
            last = self._find_last() if isinstance(failure, Down) else None
            if last is None:
                raise
            return replace(last, is_stale=True)
        # Without a new handshake, `opened` returned what an earlier one said, and the server may
        # have gone down since.
        return replace(server, is_stale=True) if before == self._handshakes and self._is_down() else server

    def _find_last(self) -> ServerDescription | None:
        return next(filter(None, (self._last.find(self._key(era)) for era in self._eras)), None)


def key_of(era: Era, *declared: str, caller: str | None) -> bytes:
    """Return the cache key of what a server said in an era, to what a host declares, and of `caller`.

    `caller` is None if the server cannot tell callers apart.
    """
    parts = (era, *declared, "" if caller is None else f"{caller}.")
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


MAX_EMPTY: Final = 16
"""Pages without a tool in one list; after them the list counts as complete."""


async def read_catalogue(
    ask: Callable[[RawJson | None], Awaitable[Response]],
    read: Callable[[Response], ToolPage],
    bounds: CatalogueBounds,
    cut: Callable[[], None],
) -> ToolList:
    """Return the tools of all pages. `ask` fetches the page at a cursor, `read` decodes it.

    A server may never say that its list ends. So it ends with a page that names a cursor again, or has
    only tools that are known, and after MAX_EMPTY pages without any. `cut` is called then. Raises
    UpstreamFailed for what `read` cannot decode, and for a list beyond its limits.
    """
    empty = 0
    tools: dict[str, ListedTool] = {}
    ttl = inf
    cursor: RawJson | None = None
    seen: set[RawJson] = set()
    while True:
        response = await ask(cursor)
        bounds = what_is_left(bounds, response)
        page = await offload(len(response.text), partial(read, response))
        has_news = not page.tools.keys() <= tools.keys()
        tools.update(page.tools)
        ttl = min(ttl, page.ttl)
        cursor = page.cursor
        if cursor is None:
            return ToolList(tools, ttl)
        empty += not page.tools
        if cursor in seen or empty >= MAX_EMPTY or (page.tools and not has_news):
            cut()
            return ToolList(tools, ttl)
        seen.add(cursor)


def what_is_left(bounds: CatalogueBounds, response: Response) -> CatalogueBounds:
    """Return the limits for the pages after the page `response`. Raises UpstreamFailed if that
    exceeds `bounds`."""
    left = bounds.after(response)
    if left is None:
        raise failures.large_catalogue()
    return left


READ_AGAIN: Final = 5.0
"""Seconds after which a list is read again for a tool that is not in it, at the earliest."""
LEAST_AGE: Final = 60.0
"""Seconds that a list is used at least, however shortly its server says that it may be cached."""
_CURSOR: Final = '"cursor"'


class Catalogue(SingleFlight[Mapping[str, ListedTool]]):
    """The tools of one session by name: read by `make` on first use, or from what a host got, and kept until `forget`.

    A server may list other tools than before and not say so. So a list that is older than `age` is
    read again in the background; None: it is not. A server may say how old its own may be.
    `clock` has the time between two readings. While the server is down, the list that was forgotten
    last is used. `read` decodes a page that a host got; no list may exceed `bounds`.
    """

    def __init__(
        self,
        make: Callable[[], Coroutine[Any, Any, ToolList]],
        clock: Clock,
        *,
        age: timedelta | None,
        read: Callable[[Response], ToolPage],
        bounds: CatalogueBounds,
    ) -> None:
        super().__init__(self._read)
        self._read_list = make
        self._read_page = read
        self._bounds = bounds
        self._elapsed = clock.elapsed
        self._age = inf if age is None else age.total_seconds()
        self.old_at = inf
        """The time by the clock from which on the list is to be read again."""
        self._again_at = -inf
        self.before: Mapping[str, ListedTool] | None = None
        """What is used while the list is read again for a tool that is not in it; None at other times."""
        # What was known at the last `forget`; None once the list was read again.
        self._forgotten: Mapping[str, ListedTool] | None = None
        # The hash of the list that went to the host last, if its tools were taken, and the seconds that it lasts.
        self._digest: int | None = None
        self._lasts = inf
        # How often the list was forgotten: one that was asked for before is not taken.
        self._forgets = 0

    def listed(self, tool: str) -> ListedTool | None:
        """Return the tool as it is known, without a wait; None if it is unknown."""
        known = self.value
        if known is None:
            return None if self.before is None else self.before.get(tool)
        if self._elapsed() >= self.old_at:
            self._renew_old()
        return known.get(tool)

    async def with_tool(self, wanted: str | None = None) -> Mapping[str, ListedTool]:
        """Return the tools. Read the list again, but not too often, if it is an earlier one without
        `wanted`; others get that meanwhile. If the server is down, return a forgotten list that has `wanted`. Raises
        UpstreamFailed, for a call that was not sent."""
        known, before = self.value, self.before
        if before is not None and not self.is_empty and known is None and (wanted is None or wanted in before):
            # The list is read again for another tool.
            return before
        if known is not None:
            now = self._elapsed()
            if wanted is None or wanted in known:
                if now >= self.old_at:
                    self._renew_old()
                return known
            if now - self._again_at >= READ_AGAIN:
                self._again_at, self.before = now, known
                super().forget()
        forgotten = self._forgotten
        try:
            found = await self.get()
        except UpstreamFailed as failure:
            # What was known is still the best that there is.
            if self.before is not None and self.is_empty:
                before, self.before = self.before, None
                self.put(before)
            if failures.is_down(failure) and forgotten is not None and (wanted is None or wanted in forgotten):
                return forgotten
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None
        self.before = None
        # It may have been forgotten while it was read.
        self._forgotten = found if self.value is None else None
        return found

    async def relayed(self, params: Params | None, asking: Awaitable[Response]) -> Response:
        """Await the answer to a `tools/list` of the host, whose parameters are `params`, and take its tools.

        Pages of a longer list, invalid lists, and the same list as before are ignored. Raises
        UpstreamFailed if the page exceeds the bounds, and what `asking` raises.
        """
        forgets, response = self._forgets, await asking
        if (result := response.result) is None:
            return response
        digest = hash(response.text[result.start : result.end])
        if digest == self._digest and 4 * len(response.text) <= self._bounds.max_bytes:
            # The list is often unchanged, and a character has four bytes at most.
            self.old_at = self._elapsed() + self._lasts
            return response
        what_is_left(self._bounds, response)
        if params is not None and _CURSOR in params.with_token(0):
            return response
        with suppress(UpstreamFailed):
            page = await offload(len(response.text), partial(self._read_page, response))
            if page.cursor is None and forgets == self._forgets:
                super().forget()
                self.before = self._forgotten = None
                self._digest = digest
                self.put(self._taken(page.tools, page.ttl))
        return response

    def forget(self) -> None:
        """Forget the list, because it may have changed."""
        self._forgets += 1
        self.before = self._digest = None
        self._forgotten = self._forgotten if self.value is None else self.value
        super().forget()

    async def _read(self) -> Mapping[str, ListedTool]:
        found = await self._read_list()
        self._digest = None
        return self._taken(found.tools, found.ttl)

    def _taken(self, tools: Mapping[str, ListedTool], ttl: float) -> Mapping[str, ListedTool]:
        """Return tools that the server listed now, for so many seconds; 0 if it does not say."""
        self._lasts = max(ttl, LEAST_AGE) if ttl and self._age < inf else self._age
        self.old_at = self._elapsed() + self._lasts
        return tools

    def _renew_old(self) -> None:
        """Read an old list again in the background, and use it until then."""
        self.old_at = self._elapsed() + self._age
        self.renew()
