"""Cache of the tools that the host was last told of: `ToldTools`, one per session.

`LegacySession` gives it each response to `tools/list` that goes to the host. So `LegacySession.listed`
knows the tools before the session has read the whole catalogue itself.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ListedTool
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Params, Response
from taskgate.system.offload import offload

_CURSOR: Final = '"cursor"'


class ToldTools:
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
