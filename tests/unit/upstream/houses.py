"""Everybody who speaks to one server over one transport, in the words of the tests: sessions of either era.

What they are made of is put together by hand, so that any transport can be tried, and anybody can have a session.
"""

import asyncio
from dataclasses import dataclass
from itertools import count
from typing import Any

from helpers.recording_listener import RecordingListener
from helpers.welcomes import unheard_welcome
from taskgate.clock import SystemClock
from taskgate.domain.versions import Peer
from taskgate.protocol.extensions import ExtensionPolicy
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
    """One session, and all that it tells."""

    session: UpstreamSession
    heard: Heard

    async def call(
        self, tool: str = "echo", *, progress: bool = False, ear: RecordingListener | None = None
    ) -> Response:
        """Relay a `tools/call`."""
        params, listener = call_params(tool, progress=progress), ear or self.heard.of_calls
        return await self.session.call(UpstreamCall("tools/call", params, tool=tool), listener)

    def calling(self, tool: str = "echo", **more: Any) -> "asyncio.Task[Response]":
        """The same, in the background."""
        return asyncio.create_task(self.call(tool, **more))

    async def ask(self, method: str, params: Any = None) -> Response:
        """Relay any other request."""
        return await self.session.call(UpstreamCall(method, params), self.heard.of_calls)

    def ask_later(self, method: str, params: str) -> "asyncio.Task[Response]":
        """The same, in the background."""
        return asyncio.create_task(self.ask(method, Params(params)))


class House:
    """Everybody who speaks to one server, over one transport, which is closed with it; with the credentials, if any."""

    def __init__(self, transport: Transport, settings: UpstreamSettings) -> None:
        self.transport = transport
        self._settings = settings
        self._credentials: Credentials | None = None
        if settings.credentials is not None:
            self._credentials = Credentials(settings, observer=Heard().observer(), clock=SystemClock())
        self._alarms = TimerWheel(20.0)
        self._ids = count(1)
        self.guests: list[Guest] = []

    def guest(self, principal: str | Principal = "alice", host: Peer | None = None) -> Guest:
        """A session with a server of the legacy era, for somebody or for a context."""
        return self._made(principal, host, modern=False)

    def modern(self, principal: str | Principal = "alice", host: Peer | None = None) -> Guest:
        """A session with a server of the other."""
        return self._made(principal, host, modern=True)

    def of_any_era(self, finder: EraFinder, principal: str = "alice") -> Guest:
        """A session with a server whose era `finder` finds."""
        legacy, modern = self.guest(principal), self.modern(principal)
        assert isinstance(legacy.session, LegacySession)
        makers = Makers(legacy=lambda _: legacy.session, modern=lambda _: modern.session)  # type: ignore[arg-type,return-value]
        upstream_context = legacy.session._upstream_context
        session = ServerSession(
            None,
            finder,
            host=None,
            upstream_context=upstream_context,
            makers=makers,
            welcome=unheard_welcome(),
            usage=SessionUsage("reports"),
        )
        self.guests.append(Guest(session, legacy.heard))
        return self.guests[-1]

    async def close(self) -> None:
        for guest in reversed(self.guests):
            await guest.session.close()
        await self.transport.close()
        if self._credentials is not None:
            await self._credentials.close()
        self._alarms.close()

    def _made(self, principal: str | Principal, host: Peer | None, *, modern: bool) -> Guest:
        heard = Heard()
        somebody = Principal(context=principal) if isinstance(principal, str) else principal
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
        rest: dict[str, Any] = {
            "listener": heard.of_session,
            "host": host,
            "clock": SystemClock(),
            "lasting": Lasting(),
        }
        rest["welcome"] = unheard_welcome()
        session: UpstreamSession
        if modern:
            upstream_context = ModernUpstreamContext(
                dialect=ModernUpstream("1.0", ExtensionPolicy()), era_lost=_nothing, **shared
            )
            session = ModernSession(upstream_context, **rest)
        else:
            session = LegacySession(
                UpstreamContext(dialect=LegacyUpstream("1.0", ExtensionPolicy()), **shared), unwelcome=_nothing, **rest
            )
        guest = Guest(session, heard)
        self.guests.append(guest)
        return guest


def _nothing() -> None:
    """Nobody wants to know."""
