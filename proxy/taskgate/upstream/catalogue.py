"""A server's catalogue of tools, page by page, and its bounds. Holds nothing; when it is read again decides a session.

A catalogue beyond its bounds is refused as a whole: a part of it would look like all of it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from taskgate.jsontext.spans import RawJson
from taskgate.protocol.base import ListedTool, ToolPage
from taskgate.protocol.catalogue import CatalogueBounds
from taskgate.protocol.envelope import Response
from taskgate.system.offload import offloaded
from taskgate.upstream import failures

MAX_PAGES: Final = 200
"""More than any server has; a catalogue without an end is none."""


async def read_catalogue(
    ask: Callable[[RawJson | None], Awaitable[Response]],
    read: Callable[[Response], ToolPage],
    bounds: CatalogueBounds,
) -> dict[str, ListedTool]:
    """All pages as one: `ask` has the answer for a cursor, `read` what it says.

    Raises UpstreamFailed for what `read` cannot read, a catalogue beyond its bounds, or one that does not end.
    """
    tools: dict[str, ListedTool] = {}
    cursor: RawJson | None = None
    seen: set[RawJson] = set()
    while True:
        response = await ask(cursor)
        bounds = what_is_left(bounds, response)
        page = await offloaded(len(response.text), partial(read, response))
        tools.update(page.tools)
        cursor = page.cursor
        if cursor is None:
            return tools
        if cursor in seen or len(seen) + 1 >= MAX_PAGES:
            raise failures.malformed("its list of tools never ends")
        seen.add(cursor)


def what_is_left(bounds: CatalogueBounds, response: Response) -> CatalogueBounds:
    """The bounds of the pages after that one. Raises UpstreamFailed where it is beyond them."""
    left = bounds.less(response)
    if left is None:
        raise failures.large_catalogue()
    return left
