"""Tools of a modern server as one session knows them: `Catalogue`, read on demand.

A tool may require that `Mcp-Param-*` headers of its calls repeat some of their arguments; its entry
in the list has which (`ListedTool.header_paths`). `ModernSession` sends the requests for pages, and
forgets the catalogue when the server says that it changed.
"""

from collections.abc import Awaitable, Callable, Mapping
from logging import getLogger
from typing import Final

from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.discovery import ListedTool, ServerDescription, ToolPage
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import EncodedRequest
from taskgate.upstream.calls import Call
from taskgate.upstream.catalogue import read_catalogue
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.single import Abandoned, SingleFlight

MOST_NAMED: Final = 16
"""Tools of a page that are logged by name when they are left out; a faulty server may have very
many."""

log = getLogger("taskgate.upstream")


class Catalogue:
    """Tool list of one session: read on first use, kept until `forget`, read again by the next
    user.

    `open_` is awaited before each reading, so that the server is known. `ask` sends the request for
    one page and returns the answer.
    """

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        host: Peer | None,
        *,
        open_: Callable[[], Awaitable[ServerDescription]],
        ask: Callable[[Call, EncodedRequest], Awaitable[Response]],
    ) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._open = open_
        self._ask = ask
        self.tools = SingleFlight(self._read)
        """All tools by name. To read them raises UpstreamFailed."""
        self.forget = self.tools.forget
        """Have the next user read the list again."""

    def listed(self, tool: str) -> ListedTool | None:
        """Return the tool as it was last read, without reading."""
        known = self.tools.value
        return None if known is None else known.get(tool)

    async def read_for_call(self) -> Mapping[str, ListedTool]:
        """Read the list if it is unknown, and return it.

        Empty if it cannot be read: the call is sent, and the server refuses it if it lacks a header.
        """
        try:
            return await self.tools.get()
        except (UpstreamFailed, Abandoned):
            return {}

    async def _read(self) -> Mapping[str, ListedTool]:
        await self._open()
        return await read_catalogue(self._ask_for_page, self._read_page, self._upstream_context.settings.catalogue)

    def _ask_for_page(self, cursor: RawJson | None) -> Awaitable[Response]:
        upstream_context = self._upstream_context
        call = Call(next(upstream_context.ids), None, upstream_context.patience.of())
        return self._ask(call, upstream_context.dialect.list_tools(call.id, cursor, self._host))

    def _read_page(self, response: Response) -> ToolPage:
        upstream_context = self._upstream_context
        read = upstream_context.dialect.read_tools(response)
        for name in read.refused[:MOST_NAMED]:
            extra = {"upstream": upstream_context.settings.name, "tool": name}
            log.warning("a tool is not listed: its header annotations are invalid", extra=extra)
        return read.page
