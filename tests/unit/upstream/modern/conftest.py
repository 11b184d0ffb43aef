"""A scripted server of the modern era, and sessions with it that hear everything.

Whatever the sessions say in a test is judged at its end, by the schema and against its headers.
"""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from helpers import modern_schema
from helpers.modern_requests import check_client_message
from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer
from helpers.upstream_calls import task_call
from helpers.welcomes import unheard_welcome
from taskgate.clock import SystemClock
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.system.timer_wheel import TimerWheel
from taskgate.upstream.calls import Principal, UpstreamCall
from taskgate.upstream.client import HttpTransport
from taskgate.upstream.context import Lasting, ModernUpstreamContext, Patience
from taskgate.upstream.modern.session import ModernSession
from taskgate.upstream.settings import UpstreamObserver, UpstreamSettings

LEGACY_HOST = Peer(
    revision=Revision.R2025_11_25,
    capabilities={"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}, "tasks": {"list": {}}},
    info={"name": "host", "version": "1"},
)
"""A host of the legacy era that can be asked whatever there is but for pages to visit."""


class Guest:
    """Somebody with a session at the server, and all that it tells."""

    def __init__(self, url: str, host: Peer | None, clock: Any, **changes: Any) -> None:
        seconds = timedelta(seconds=20)
        plain = {"connect": seconds, "first_byte": seconds, "idle": None, "call": seconds, "max_result": 64 * 1024}
        settings = UpstreamSettings(**({"name": "reports", "url": url} | plain | changes))
        self.answered: list[tuple[str, str | None]] = []
        self.streams: list[str] = []
        self.eras_lost = 0
        self.ear, self.aside = RecordingListener(), RecordingListener()
        self.alarms = TimerWheel(20.0)
        self.transport = HttpTransport(settings)
        self.upstream_context = self._upstream_context(settings)
        self.lasting = Lasting()
        self.session = ModernSession(
            self.upstream_context,
            listener=self.aside,
            host=host,
            clock=clock,
            lasting=self.lasting,
            welcome=unheard_welcome(),
        )

    def _upstream_context(self, settings: UpstreamSettings) -> ModernUpstreamContext:
        def lose() -> None:
            self.eras_lost += 1

        observer = UpstreamObserver(
            answered=lambda method, seconds, error: self.answered.append((method, error)),
            session_lost=lambda: None,
            stream_opened=lambda kind: self.streams.append(f"{kind} opened"),
            stream_ended=lambda kind: self.streams.append(f"{kind} ended"),
        )
        return ModernUpstreamContext(
            transport=self.transport,
            settings=settings,
            dialect=ModernUpstream("1.0", settings.extensions),
            observer=observer,
            ids=count(1),
            alarms=self.alarms,
            patience=Patience(settings),
            era_lost=lose,
        )

    async def call(
        self, tool: str = "echo", arguments: str = "{}", *, ear: RecordingListener | None = None, **more: Any
    ) -> Response:
        """Relay a `tools/call` that wants no progress."""
        params = Params(f'{{"name":"{tool}","arguments":{arguments}}}')
        return await self.session.call(UpstreamCall("tools/call", params, tool=tool, **more), ear or self.ear)

    async def run(
        self, tool: str = "echo", *, within: float = 60, ear: RecordingListener | None = None, **more: Any
    ) -> Response:
        """Run a `tools/call` as a task does."""
        span = timedelta(seconds=within)
        params = f'{{"name":"{tool}","arguments":{{}}}}'
        return await self.session.call(task_call(tool, params, span, **more), ear or self.ear)

    async def ask(self, method: str, params: str | None = None, **more: Any) -> Response:
        """Relay any other request."""
        found = None if params is None else Params(params)
        return await self.session.call(UpstreamCall(method, found, **more), self.ear)

    async def close(self) -> None:
        await self.session.close()
        await self.transport.close()
        self.alarms.close()


NewGuest = Callable[..., Guest]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server that does as the protocol says until it is told otherwise; what it was sent is judged in the end."""
    async with ScriptedServer("modern") as server:
        server.capabilities = {"tools": {}}
        yield server
        if modern_schema.available():
            for request in server.requests:
                check_client_message(request.message, serves_tasks=server.serves_tasks)
        assert "mcp-session-id" not in {name for request in server.requests for name in request.headers}


@pytest.fixture
async def new_guest(server: ScriptedServer) -> AsyncIterator[NewGuest]:
    """Makes sessions with the server; they are closed in the end."""
    guests: list[Guest] = []

    def make(host: Peer | None = LEGACY_HOST, clock: Any = None, **changes: Any) -> Guest:
        guests.append(Guest(server.url, host, clock or SystemClock(), **changes))
        return guests[-1]

    yield make
    for guest in guests:
        await guest.close()


@pytest.fixture
def guest(new_guest: NewGuest) -> Guest:
    """A session of a host of the legacy era that can be asked things."""
    return new_guest()


def somebody(name: str) -> Principal:
    """Somebody to speak for."""
    return Principal(context=name, subject=name)
