"""Everybody who speaks to one server over one transport, in the words of the tests: sessions of either era.

What they are made of is put together by hand, so that any transport can be tried, and anybody can have a session.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any

from helpers.recording_listener import RecordingListener
from helpers.upstream_calls import task_call
from helpers.welcomes import unheard_welcome
from taskgate.clock import Clock, SystemClock, SystemEntropy
from taskgate.domain.versions import Peer
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.base import Transport, UpstreamSession
from taskgate.upstream.calls import Principal, UpstreamCall
from taskgate.upstream.context import Lasting, ModernUpstreamContext, Patience, UpstreamContext
from taskgate.upstream.credentials.speaking import Credentials
from taskgate.upstream.era import EraFinder
from taskgate.upstream.legacy.session import LegacySession
from taskgate.upstream.modern.session import ModernSession
from taskgate.upstream.session import Makers, ServerSession, SessionTransport, SessionUsage
from taskgate.upstream.settings import UpstreamSettings
from unit.upstream.conftest import Heard, call_params


@dataclass
class Guest:
    """One session, all that it tells, and what it is made of."""

    session: UpstreamSession
    heard: Heard
    upstream_context: Any
    transport: Any
    lasting: Lasting

    async def call(
        self,
        tool: str = "echo",
        arguments: str = "{}",
        *,
        progress: bool = False,
        ear: RecordingListener | None = None,
        **more: Any,
    ) -> Response:
        """Relay a `tools/call`."""
        params = call_params(tool, arguments, progress=progress)
        return await self.session.call(
            UpstreamCall("tools/call", params, tool=tool, **more), ear or self.heard.of_calls
        )

    def calling(self, tool: str = "echo", **more: Any) -> "asyncio.Task[Response]":
        """The same, in the background."""
        return asyncio.create_task(self.call(tool, **more))

    async def run(
        self, tool: str = "echo", *, within: float = 60, ear: RecordingListener | None = None, **more: Any
    ) -> Response:
        """Run a `tools/call` as a task does."""
        call = task_call(tool, call_params(tool).head, timedelta(seconds=within), **more)
        return await self.session.call(call, ear or self.heard.of_calls)

    async def ask(self, method: str, params: str | None = None, **more: Any) -> Response:
        """Relay any other request."""
        found = None if params is None else Params(params)
        return await self.session.call(UpstreamCall(method, found, **more), self.heard.of_calls)

    def ask_later(self, method: str, params: str) -> "asyncio.Task[Response]":
        """The same, in the background."""
        return asyncio.create_task(self.ask(method, params))


class House:
    """Everybody who speaks to one server, over one transport, which is closed with it; with the credentials, if any.

    Where it is `direct`, sessions use the transport as it is, without principals and credentials.
    """

    def __init__(self, transport: Transport, settings: UpstreamSettings, *, direct: bool = False) -> None:
        self.transport, self._is_direct = transport, direct
        self._settings = settings
        self._credentials: Credentials | None = None
        if settings.credentials is not None:
            self._credentials = Credentials(
                settings, observer=Heard().observer(), clock=SystemClock(), entropy=SystemEntropy()
            )
        self._alarms = TimerWheel(20.0)
        self._ids = count(1)
        self.guests: list[Guest] = []

    def guest(self, principal: str | Principal = "alice", host: Peer | None = None) -> Guest:
        """A session with a server of the legacy era, for somebody or for a context."""
        return self._made(principal, host, modern=False)

    def modern(
        self, principal: str | Principal = "alice", host: Peer | None = None, clock: Clock | None = None
    ) -> Guest:
        """A session with a server of the other."""
        return self._made(principal, host, clock, modern=True)

    def of_any_era(self, finder: EraFinder, principal: str = "alice") -> Guest:
        """A session with a server whose era `finder` finds."""
        legacy, modern = self.guest(principal), self.modern(principal)
        assert isinstance(legacy.session, LegacySession)
        makers = Makers(legacy=lambda _: legacy.session, modern=lambda _: modern.session)  # type: ignore[arg-type,return-value]
        session = ServerSession(
            None,
            finder,
            host=None,
            upstream_context=legacy.upstream_context,
            makers=makers,
            welcome=unheard_welcome(),
            usage=SessionUsage("reports"),
        )
        self.guests.append(replace(legacy, session=session))
        return self.guests[-1]

    async def close(self) -> None:
        for guest in reversed(self.guests):
            await guest.session.close()
        await self.transport.close()
        if self._credentials is not None:
            await self._credentials.close()
        self._alarms.close()

    def _made(
        self, principal: str | Principal, host: Peer | None, clock: Clock | None = None, *, modern: bool
    ) -> Guest:
        heard = Heard()
        somebody = Principal(context=principal) if isinstance(principal, str) else principal
        transport: Any = self.transport
        if not self._is_direct:
            transport = SessionTransport(
                self.transport, None, lambda: somebody, asks_whose=True, credentials=self._credentials
            )
        shared: dict[str, Any] = {
            "transport": transport,
            "settings": self._settings,
            "observer": heard.observer(),
            "ids": self._ids,
            "alarms": self._alarms,
            "patience": Patience(self._settings),
        }
        lasting = Lasting()
        rest: dict[str, Any] = {
            "listener": heard.of_session,
            "host": host,
            "clock": clock or SystemClock(),
            "lasting": lasting,
            "welcome": unheard_welcome(),
        }
        upstream_context: Any
        session: UpstreamSession
        if modern:
            dialect = ModernUpstream("1.0", self._settings.extensions)
            upstream_context = ModernUpstreamContext(dialect=dialect, era_lost=heard.lose_era, **shared)
            session = ModernSession(upstream_context, **rest)
        else:
            upstream_context = UpstreamContext(dialect=LegacyUpstream("1.0", self._settings.extensions), **shared)
            session = LegacySession(upstream_context, unwelcome=_nothing, **rest)
        self.guests.append(Guest(session, heard, upstream_context, transport, lasting))
        return self.guests[-1]


def _nothing() -> None:
    """Nobody wants to know."""
