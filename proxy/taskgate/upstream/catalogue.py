"""Tool lists of servers: `read_catalogue` joins all pages, `RelayedTools` has the list that a host got.

The sessions of both eras decide when the list is read again. A list beyond its limits is refused as a
whole: a part of it would look like all of it. `LegacySession` gives `RelayedTools` each response to
`tools/list` that goes to the host. So it knows the tools before it has read the whole list itself.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from taskgate.errors import UpstreamFailed
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import CatalogueBounds, ListedTool, ToolPage
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Params, Response
from taskgate.system.offload import offload
from taskgate.upstream import failures

MAX_PAGES: Final = 200
"""Pages of a list, more than any server has; beyond them the list is taken to be endless."""


async def read_catalogue(
    ask: Callable[[RawJson | None], Awaitable[Response]],
    read: Callable[[Response], ToolPage],
    bounds: CatalogueBounds,
) -> dict[str, ListedTool]:
    """Return the tools of all pages by name. `ask` fetches the page at a cursor, `read` decodes it.

    Raises UpstreamFailed for what `read` cannot decode, a list beyond its limits, or one that does
    not end.
    """
    tools: dict[str, ListedTool] = {}
    cursor: RawJson | None = None
    seen: set[RawJson] = set()
    while True:
        response = await ask(cursor)
        bounds = what_is_left(bounds, response)
        page = await offload(len(response.text), partial(read, response))
        tools.update(page.tools)
        cursor = page.cursor
        if cursor is None:
            return tools
        if cursor in seen or len(seen) + 1 >= MAX_PAGES:
            raise protocol_violation("its list of tools never ends")
        seen.add(cursor)


def what_is_left(bounds: CatalogueBounds, response: Response) -> CatalogueBounds:
    """Return the limits for the pages after the page `response`. Raises UpstreamFailed if that
    exceeds `bounds`."""
    left = bounds.after(response)
    if left is None:
        raise failures.large_catalogue()
    return left


_CURSOR: Final = '"cursor"'


class RelayedTools:
    """The tools of the last list that went to the host, if that was complete on one page."""

    __slots__ = ("_dialect", "_digest", "tools")

    def __init__(self, dialect: LegacyUpstream) -> None:
        self._dialect = dialect
        # The hash of the list whose tools are stored.
        self._digest: int | None = None
        self.tools: Mapping[str, ListedTool] = {}
        """The tools of that list by name; none without one."""

    async def note(self, params: Params | None, response: Response) -> None:
        """Store the tools in a response to the host; `params` are those of its request.

        Pages of a longer list and invalid lists are ignored.
        """
        result = response.result
        if result is None or (params is not None and _CURSOR in params.with_token(0)):
            return
        digest = hash(response.text[result.start : result.end])
        if digest == self._digest:
            # The list is often unchanged.
            return
        with suppress(UpstreamFailed):
            page = await offload(len(response.text), partial(self._dialect.read_tools, response))
            if page.cursor is None:
                self._digest, self.tools = digest, page.tools

    def forget(self) -> None:
        """Empty the cache, because the server's tools may have changed."""
        self._digest, self.tools = None, {}
