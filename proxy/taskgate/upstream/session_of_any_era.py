"""Session with a server whose era is not configured: `EraSession` finds the era, then delegates.

`era.EraFinder` finds it on first use, and `Makers` create the legacy or modern session that does
the work. Once the era is known, a call costs only the delegation. If the server stops answering in
its era, the era is found again. `http` creates it for servers without `protocol_version`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import Era, find_revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ListedTool, ServerDescription
from taskgate.protocol.messages import Notification, Response
from taskgate.upstream import failures
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.calls import UpstreamCall
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.era import EraFinder, EraProbe
from taskgate.upstream.last_welcomes import Welcome
from taskgate.upstream.legacy.session import LegacySession
from taskgate.upstream.resume_points import Resumed, ResumePoint
from taskgate.upstream.single import Abandoned, SingleFlight


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """Makers of the session of either era.

    Their argument is a callback. The session calls it when the server may have left that era.
    """

    legacy: Callable[[Callable[[], None]], LegacySession]
    modern: Callable[[Callable[[], None]], UpstreamSession]


class EraSession:
    """An `UpstreamSession` that delegates to a session of the server's era.

    When the server leaves its era, the call that notices fails, and the next one detects the era
    again. Calls that still run in the other era may complete.
    """

    def __init__(
        self,
        finder: EraFinder,
        *,
        upstream_context: UpstreamContext,
        makers: Makers,
        welcome: Welcome,
    ) -> None:
        self._finder = finder
        self._welcome = welcome
        self._upstream_context = upstream_context
        self._makers = makers
        self._finding = SingleFlight(self._find)
        self._closed = False
        # The session of the era before, which stays open so that its calls may complete.
        self._retired: UpstreamSession | None = None
        self.era = finder.era or Era.LEGACY
        """The era of the server, legacy until it is known."""
        # `_inner` is the session for new calls, None while the era is unknown. `_bound` is the last
        # session that took calls; it stays while the era is found again.
        self._bound = self._inner = None if finder.era is None else self._new_session(finder.era)

    async def open(self) -> ServerDescription:
        return await (self._inner or await self._found_session()).open()

    async def welcome(self) -> ServerDescription:
        return await self._welcome.told(self.open())

    async def call(self, call: UpstreamCall, listener: CallListener) -> Response:
        inner = self._inner
        if inner is None:
            inner = await self._session_for(call)
        return await inner.call(call, listener)

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        assert self._bound is not None, "a response belongs to a session"
        return self._bound.outcome(response)

    def tell(self, notification: Notification) -> None:
        if self._inner is not None:
            self._inner.tell(notification)

    def tools(self) -> Coroutine[Any, Any, Mapping[str, ListedTool]]:
        return self._find_tools() if self._inner is None else self._inner.tools()

    def listed(self, tool: str) -> ListedTool | None:
        return None if self._inner is None else self._inner.listed(tool)

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        return frozenset() if self._inner is None else self._inner.grants(filters)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._finding.close()
        sessions = [session for session in (self._bound, self._retired) if session is not None]
        await asyncio.gather(*(session.close() for session in sessions))

    async def _session_for(self, call: UpstreamCall) -> UpstreamSession:
        """Return the session for a call whose server's era is unknown; the search takes of its time."""
        if self._bound is None and isinstance(call.resumes, Resumed):
            # The era is that in which the server took the call; no detection is needed. For other
            # calls the era is still to be found, so `_inner` is not set.
            self._bound = bound = self._new_session(_era_of(call.resumes.resume_point))
            self.era = bound.era
            return bound
        bounds = self._upstream_context.patience.of(call.tool)
        if call.within is None:
            return (await self._found_within(bounds.first))[0]
        inner, spent = await self._found_within(bounds.within(call.within).first)
        call.within -= spent
        return inner

    async def _found_session(self) -> UpstreamSession:
        """Return the session of the server's era, after finding the era. Raises UpstreamFailed."""
        if self._closed:
            raise failures.let_go(dispatched=False)
        try:
            return await self._finding.get()
        except UpstreamFailed as failure:
            # The call itself was not sent.
            raise failures.unsent(failure) from None
        except Abandoned:
            raise failures.let_go(dispatched=False) from None

    async def _find_tools(self) -> Mapping[str, ListedTool]:
        return await (await self._found_session()).tools()

    async def _found_within(self, within: float) -> tuple[UpstreamSession, timedelta]:
        """Return the session, and the time that finding it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(within):
                inner = await self._found_session()
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None
        return inner, timedelta(seconds=loop.time() - began)

    async def _find(self) -> UpstreamSession:
        """Find the era, and make its session the one for new calls, in one flight for all calls."""
        lost = partial(self._lose_era, Era.LEGACY)
        found = await self._finder.find(
            EraProbe(upstream_context=self._upstream_context, open=partial(self._makers.legacy, lost))
        )
        bound = self._bound
        inner: UpstreamSession
        if found.session is not None:
            inner = found.session
        elif bound is not None and bound.era is found.era:
            inner = bound
        else:
            inner = self._new_session(found.era)
        self._inner = self._bound = inner
        self.era = inner.era
        # Of the sessions with running calls only one is kept: the one before this.
        if bound is not None and bound is not inner:
            retired, self._retired = self._retired, bound
            if retired is not None:
                await retired.close()
        return inner

    def _new_session(self, era: Era) -> UpstreamSession:
        """Return a session of that era, not yet opened."""
        make = self._makers.modern if era is Era.MODERN else self._makers.legacy
        return make(partial(self._lose_era, era))

    def _lose_era(self, era: Era) -> None:
        """Forget the era, so that the next call finds it again. Sessions of that era call this."""
        self._finder.forget(era)
        if self._inner is not None and self._inner.era is era:
            self._inner = None
            self._finding.forget()


def _era_of(resume_point: ResumePoint) -> Era:
    """Return the era of a resume point: modern unless its revision is a legacy one."""
    return Era.MODERN if find_revision(resume_point.revision) is None else Era.LEGACY
