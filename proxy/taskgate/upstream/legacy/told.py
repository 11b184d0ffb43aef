"""What a session knows of its server's tools before it has read the catalogue itself: what its host was told of them.

What must not live here: the catalogue (`upstream.catalogue`), which is read for whatever must be certain of all tools.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from taskgate.errors import UpstreamFailed
from taskgate.protocol.base import ListedTool, Params, UpstreamDialect
from taskgate.protocol.envelope import Response
from taskgate.system.offload import offloaded

_CURSOR: Final = '"cursor"'


class ToldTools:
    """The tools of the last list that the host was told whole, on one page."""

    __slots__ = ("_dialect", "_mark", "_tools")

    def __init__(self, dialect: UpstreamDialect) -> None:
        self._dialect = dialect
        self._mark: int | None = None
        self._tools: Mapping[str, ListedTool] = {}

    async def note(self, params: Params | None, response: Response) -> None:
        """The host asked for a list with these parameters, and has this result. What is no list is passed over."""
        result = response.result
        if result is None or (params is not None and _CURSOR in params.with_token(0)):
            return
        mark = hash(response.text[result.start : result.end])
        if mark == self._mark:
            # Servers say the same again and again.
            return
        with suppress(UpstreamFailed):
            page = await offloaded(len(response.text), partial(self._dialect.read_tools, response))
            if page.cursor is None:
                self._mark, self._tools = mark, page.tools

    def get(self, tool: str) -> ListedTool | None:
        """A tool of that list."""
        return self._tools.get(tool)

    def forget(self) -> None:
        """The server may have others now."""
        self._mark, self._tools = None, {}
