"""Cache of tools that the host was last told of: `ToldTools`, one per session.

`HttpSession.listed` uses it until the session has read the whole catalogue itself.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from taskgate.errors import UpstreamFailed
from taskgate.protocol.dialects import LegacyUpstreamDialect
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.messages import Params, Response
from taskgate.system.offload import offload

_CURSOR: Final = '"cursor"'


class ToldTools:
    """Tools of the last list that the host got complete, on one page."""

    __slots__ = ("_dialect", "_mark", "_tools")

    def __init__(self, dialect: LegacyUpstreamDialect) -> None:
        self._dialect = dialect
        self._mark: int | None = None
        self._tools: Mapping[str, ListedTool] = {}

    async def note(self, params: Params | None, response: Response) -> None:
        """Store the tools in a response to the host; `params` are those of its request. Invalid
        lists are ignored."""
        result = response.result
        if result is None or (params is not None and _CURSOR in params.with_token(0)):
            return
        mark = hash(response.text[result.start : result.end])
        if mark == self._mark:
            # The list is often unchanged.
            return
        with suppress(UpstreamFailed):
            page = await offload(len(response.text), partial(self._dialect.read_tools, response))
            if page.cursor is None:
                self._mark, self._tools = mark, page.tools

    def get(self, tool: str) -> ListedTool | None:
        """Return a tool of that list."""
        return self._tools.get(tool)

    def forget(self) -> None:
        """Empty the cache: the server's tools may have changed."""
        self._mark, self._tools = None, {}
