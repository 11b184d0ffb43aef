"""The tools of a server of this era, as one session knows them: which there are, and what headers of calls repeat.

What must not live here: how a page is had in time (`session`).
"""

from collections.abc import Awaitable, Callable, Mapping
from logging import getLogger
from typing import Final

from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.base import ListedTool, Server, ToolPage
from taskgate.protocol.envelope import Response
from taskgate.protocol.modern_server import WrittenRequest
from taskgate.upstream.calls import Call
from taskgate.upstream.catalogue import read_catalogue
from taskgate.upstream.modern.context import ModernUpstreamContext
from taskgate.upstream.modern.rounds import Mirrored
from taskgate.upstream.single import Abandoned, SingleFlight

MOST_NAMED: Final = 16
"""Tools of a page that are left out and told of by name: a mad server has more of them than a log should."""

log = getLogger("taskgate.upstream")


class Catalogue:
    """Read when it is first wanted, and again after it was forgotten. `ask` has the answer to a written request."""

    def __init__(
        self,
        upstream_context: ModernUpstreamContext,
        host: Peer | None,
        *,
        open_: Callable[[], Awaitable[Server]],
        ask: Callable[[Call, WrittenRequest], Awaitable[Response]],
    ) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._open = open_
        self._ask = ask
        self._tools = SingleFlight(self._read)
        self.forget = self._tools.forget
        self.get = self._tools.get
        """All tools by name. Raises UpstreamFailed, or Abandoned where it was closed meanwhile."""
        self.close = self._tools.close

    @property
    def value(self) -> Mapping[str, ListedTool] | None:
        """What is there without waiting."""
        return self._tools.value

    def listed(self, tool: str) -> ListedTool | None:
        """The tool, as it was last read; no reason to read it."""
        known = self._tools.value
        return None if known is None else known.get(tool)

    async def mirrored(self, tool: str) -> Mirrored:
        """What headers of a call of that tool repeat; nothing where the catalogue cannot be had.

        Its server then refuses what it misses.
        """
        try:
            listed = (self.value or await self.get()).get(tool)
        except (UpstreamFailed, Abandoned):
            return {}
        return {} if listed is None else listed.mirrored

    async def mirrored_anew(self, tool: str) -> Mirrored:
        """The same by a catalogue that is read now."""
        self.forget()
        return await self.mirrored(tool)

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
