"""A server's catalogue of tools, page by page. Holds nothing; when it is read again is the session's business."""

from collections.abc import Awaitable, Callable
from typing import Final

from taskgate.dialects.base import ListedTool, ToolPage
from taskgate.mcp.jsonrpc import RawJson
from taskgate.upstream import failures

MAX_PAGES: Final = 200
"""More than any server has; a catalogue without an end is none."""


async def read_catalogue(read_page: Callable[[RawJson | None], Awaitable[ToolPage]]) -> dict[str, ListedTool]:
    """All pages as one. Raises UpstreamFailed for what `read_page` cannot read, or a catalogue that does not end."""
    tools: dict[str, ListedTool] = {}
    cursor: RawJson | None = None
    seen: set[RawJson] = set()
    while True:
        page = await read_page(cursor)
        tools.update(page.tools)
        cursor = page.cursor
        if cursor is None:
            return tools
        if cursor in seen or len(seen) + 1 >= MAX_PAGES:
            raise failures.malformed("its list of tools has no end")
        seen.add(cursor)
