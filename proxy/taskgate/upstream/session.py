"""One session with one server as the gateway holds it: `ServerSession`, whatever the era of the server.

Its `call` counts and traces the call, and finds the era of the server if it is unknown. It goes on in
the session of that era (`legacy.session`, `modern.session`). `era.EraFinder` finds the era on first
use, and again if the server stops answering in it. `client` creates it. Each session has a
`SessionUsage`: it counts in the `RequestCounter`, for a metric and for a drain, and traces by the
`CallTracer`. `sessions.upstream_usage` makes the usage of a session.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.versions import Era, find_revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ListedTool, ServerDescription
from taskgate.protocol.messages import Notification, Response
from taskgate.system.single_flight import Abandoned, SingleFlight
from taskgate.upstream import failures
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import CallListener, Resumed, ResumePoint, UpstreamCall
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.descriptions import Welcome
from taskgate.upstream.era import EraFinder, EraProbe
from taskgate.upstream.legacy.session import LegacySession


class RequestCounter:
    """The requests of hosts and calls of tasks in flight, by the name of their upstream.

    A replaced server and its successor have the same name, so they count together.
    """

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()
        """The counts, kept by the sessions. A request ends when it is answered, fails, or is
        cancelled."""
        self.ended: asyncio.Event | None = None
        """Set by a session at the end of each request; None until a drain waits."""

    def read(self) -> dict[tuple[str], int]:
        """Present counts by name, as label values of a metric; idle upstreams may be missing."""
        return {(name,): count for name, count in self.in_flight.items()}

    async def wait_idle(self) -> None:
        """Wait until no request is in flight, at any upstream; used by a drain."""
        self.ended = ended = self.ended or asyncio.Event()
        while self.in_flight.total():
            ended.clear()
            await ended.wait()


class CallTracer(Protocol):
    """Tracing of the calls to one server."""

    def traced(
        self,
        call: UpstreamCall,
        listed: Callable[[str], ListedTool | None],
        send: Callable[[UpstreamCall], Coroutine[Any, Any, Response]],
    ) -> Coroutine[Any, Any, Response]:
        """Send a call by `send`, with a span and its trace context, and return the response.

        `listed` returns a tool that the server lists.
        """
        ...


def _ignore() -> None:
    """Do nothing: the open sessions are not counted."""


@dataclass(slots=True)
class SessionUsage:
    """Counter and tracer of the calls of one session.

    `name` is that of its upstream. `tracer` is None without tracing. `closed` is called once, when
    the session is closed.
    """

    name: str
    requests: RequestCounter = field(default_factory=RequestCounter)
    tracer: CallTracer | None = None
    closed: Callable[[], None] = _ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """Makers of the session of either era.

    Their argument is a callback. The session calls it when the server may have left that era.
    """

    legacy: Callable[[Callable[[], None]], LegacySession]
    modern: Callable[[Callable[[], None]], UpstreamSession]


class ServerSession:
    """An `UpstreamSession` that counts and traces its calls, in the session of the server's era.

    `era` is the configured era; None if `finder` has to find it. When the server then leaves its era,
    the call that notices fails, and the next one detects the era again. Calls that still run in the
    other era may complete.
    """

    __slots__ = (
        "_bound",
        "_closed",
        "_finder",
        "_finding",
        "_makers",
        "_retired",
        "_upstream_context",
        "_usage",
        "_welcome",
        "era",
        "era_session",
    )

    def __init__(
        self,
        era: Era | None,
        finder: EraFinder,
        *,
        upstream_context: UpstreamContext,
        makers: Makers,
        welcome: Welcome,
        usage: SessionUsage,
    ) -> None:
        self._finder = finder
        self._welcome = welcome
        self._upstream_context = upstream_context
        self._makers = makers
        self._usage = usage
        self._finding = SingleFlight(self._find)
        self._closed = False
        # The session of the era before, which stays open so that its calls may complete.
        self._retired: UpstreamSession | None = None
        found = era or finder.era
        self.era = found or Era.LEGACY
        """The era of the server, legacy until it is known."""
        self.era_session: UpstreamSession | None = None
        """The session for new calls, in the server's era; None while the era is unknown."""
        if era is not None:
            make = makers.modern if era is Era.MODERN else makers.legacy
            self.era_session = make(_keep_era)
        elif found is not None:
            self.era_session = self._new_session(found)
        # The last session that took calls; it stays while the era is found again.
        self._bound = self.era_session

    async def call(self, call: UpstreamCall, listener: CallListener) -> Response:
        usage = self._usage
        requests, name = usage.requests, usage.name
        requests.in_flight[name] += 1
        try:
            if usage.tracer is not None:
                return await usage.tracer.traced(call, self.listed, partial(self._send, listener))
            session = self.era_session
            if session is None:
                session = await self._session_for(call)
            return await session.call(call, listener)
        finally:
            requests.in_flight[name] -= 1
            if requests.ended is not None:
                requests.ended.set()

    async def _send(self, listener: CallListener, call: UpstreamCall) -> Response:
        return await (self.era_session or await self._session_for(call)).call(call, listener)

    async def open(self) -> ServerDescription:
        return await (self.era_session or await self._found_session()).open()

    async def welcome(self) -> ServerDescription:
        return await self._welcome.describe(self.open())

    def outcome(self, response: Response) -> CallSucceeded | CallFaulted:
        assert self._bound is not None, "a response belongs to a session"
        return self._bound.outcome(response)

    def tell(self, notification: Notification) -> None:
        if self.era_session is not None:
            self.era_session.tell(notification)

    async def tools(self) -> Mapping[str, ListedTool]:
        return await (self.era_session or await self._found_session()).tools()

    def listed(self, tool: str) -> ListedTool | None:
        return None if self.era_session is None else self.era_session.listed(tool)

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        return frozenset() if self.era_session is None else self.era_session.grants(filters)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._finding.close()
            sessions = [session for session in (self._bound, self._retired) if session is not None]
            await asyncio.gather(*(session.close() for session in sessions))
        finally:
            self._usage.closed()

    # --- the era of the server ----------------------------------------------------------------------------------------

    async def _session_for(self, call: UpstreamCall) -> UpstreamSession:
        """Return the session for a call whose server's era is unknown; the search takes of its time."""
        if self._bound is None and isinstance(call.resumes, Resumed):
            # The era is that in which the server took the call; no detection is needed. For other
            # calls the era is still to be found, so `era_session` is not set.
            self._bound = bound = self._new_session(_era_of(call.resumes.resume_point))
            self.era = bound.era
            return bound
        bounds = self._upstream_context.patience.of(call.tool)
        if call.within is None:
            return (await self._found_within(bounds.first))[0]
        session, spent = await self._found_within(bounds.within(call.within).first)
        call.within -= spent
        return session

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

    async def _found_within(self, within: float) -> tuple[UpstreamSession, timedelta]:
        """Return the session, and the time that finding it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(within):
                session = await self._found_session()
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None
        return session, timedelta(seconds=loop.time() - began)

    async def _find(self) -> UpstreamSession:
        """Find the era, and make its session the one for new calls, in one flight for all calls."""
        lost = partial(self._lose_era, Era.LEGACY)
        found = await self._finder.find(
            EraProbe(upstream_context=self._upstream_context, open=partial(self._makers.legacy, lost))
        )
        bound = self._bound
        session: UpstreamSession
        if found.session is not None:
            session = found.session
        elif bound is not None and bound.era is found.era:
            session = bound
        else:
            session = self._new_session(found.era)
        self.era_session = self._bound = session
        self.era = session.era
        # Of the sessions with running calls only one is kept: the one before this.
        if bound is not None and bound is not session:
            retired, self._retired = self._retired, bound
            if retired is not None:
                await retired.close()
        return session

    def _new_session(self, era: Era) -> UpstreamSession:
        """Return a session of that era, not yet opened."""
        make = self._makers.modern if era is Era.MODERN else self._makers.legacy
        return make(partial(self._lose_era, era))

    def _lose_era(self, era: Era) -> None:
        """Forget the era, so that the next call finds it again. Sessions of that era call this."""
        self._finder.forget(era)
        if self.era_session is not None and self.era_session.era is era:
            self.era_session = None
            self._finding.forget()


def _era_of(resume_point: ResumePoint) -> Era:
    """Return the era of a resume point: modern unless its revision is a legacy one."""
    return Era.MODERN if find_revision(resume_point.revision) is None else Era.LEGACY


def _keep_era() -> None:
    """Do nothing: a configured era stays, whatever the server answers."""
