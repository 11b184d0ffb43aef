"""Reading of a server's tool list: `read_catalogue` joins all pages, within size limits.

Used by the sessions of both eras, which decide when the list is read again. A list beyond its
limits is refused as a whole: a part of it would look like all of it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import CatalogueBounds, ListedTool, ToolPage
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.messages import Response
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
