"""An upstream that shows something to its server, and sessions with it for whomever a test wants."""

from collections.abc import Callable
from typing import Any

import pytest

from helpers.exchange_server import ExchangeServer
from helpers.manual_clock import ManualClock
from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer
from helpers.waiting import bounded
from taskgate.clock import SystemEntropy
from taskgate.errors import UpstreamFailed
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Params
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import Principal, UpstreamCall
from taskgate.upstream.client import UpstreamClient, UpstreamObserver, UpstreamSettings
from taskgate.upstream.settings import GrantKind, GrantSettings

CALL = Params('{"name":"echo","arguments":{}}')


class Office:
    """The upstream; to be closed. `got` has whether a token came of each request for one. A look finds `found`, and is
    counted in `looks`.
    """

    def __init__(self, settings: UpstreamSettings) -> None:
        self.clock = ManualClock()
        self.got: list[bool] = []
        self.sessions: list[UpstreamSession] = []
        self.found: UpstreamSettings | None = None
        self.looks = 0
        observer = UpstreamObserver(
            answered=lambda *_: None,
            session_lost=lambda: None,
            stream_opened=lambda _: None,
            stream_ended=lambda _: None,
            credentials_got=lambda seconds, ok: self.got.append(ok),
        )
        dialects = {"dialect": LegacyUpstream("1", ExtensionPolicy()), "modern": ModernUpstream("1", ExtensionPolicy())}
        self.upstream = UpstreamClient(
            settings, **dialects, observer=observer, clock=self.clock, entropy=SystemEntropy(), look=self.look
        )

    async def look(self) -> None:
        self.looks += 1
        if self.found is not None:
            self.upstream.renew(self.found)

    def session(self, principal: Principal | Callable[[], Principal]) -> UpstreamSession:
        principal_source = principal if callable(principal) else lambda: principal
        self.sessions.append(self.upstream.session(RecordingListener(), principal_source))
        return self.sessions[-1]

    async def call(self, principal: Principal) -> None:
        """One call in a session of its own."""
        assert (await relay(self.session(principal))).error is None

    async def close(self) -> None:
        for session in self.sessions:
            await session.close()
        await self.upstream.close()


async def relay(session: UpstreamSession) -> Any:
    """One call in that session."""
    async with bounded():
        return await session.call(UpstreamCall("tools/call", CALL), RecordingListener())


async def failure(session: UpstreamSession) -> UpstreamFailed:
    """How a call in that session fails, of which the server heard nothing or wanted to know nothing."""
    with pytest.raises(UpstreamFailed) as failed:
        await relay(session)
    assert failed.value.dispatched is False
    assert failed.value.__suppress_context__ or failed.value.__context__ is None
    return failed.value


def somebody(name: str = "alice", *, turn: int = 1, **more: Any) -> Principal:
    """A caller with the token of that turn."""
    return Principal(
        context=f"context-of-{name}",
        subject=name,
        issuer="https://idp.example.com",
        token=f"token-{turn}-of-{name}",
        **more,
    )


def exchange(endpoint: ExchangeServer, kind: GrantKind = GrantKind.TOKEN_EXCHANGE, **changes: Any) -> GrantSettings:
    """As the endpoint wants it."""
    terms = endpoint.terms
    plain = {"resource": terms.resource, "audience": terms.audience, "scopes": terms.scopes}
    plain |= {"client_id": terms.client[0], "client_secret": terms.client[1], "token_url": endpoint.url}
    return GrantSettings(kind=kind, **(plain | changes))


def shown(server: ScriptedServer, name: str = "authorization") -> list[str | None]:
    """What every request had in a header, as far as they differ, in the order they came."""
    return list(dict.fromkeys(request.headers.get(name) for request in server.requests))
