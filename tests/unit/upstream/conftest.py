"""A scripted server, and a session with it that hears everything."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from helpers.exchange_server import ExchangeServer
from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer
from helpers.server.legacy_tasks import LegacyTasks
from helpers.upstream_calls import task_call
from taskgate.clock import Clock, SystemClock, SystemEntropy
from taskgate.domain.versions import Peer, Revision
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Notification, Params, Response
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import Principal, UpstreamCall
from taskgate.upstream.client import HttpTransport, UpstreamClient, UpstreamObserver, UpstreamSettings
from unit.upstream.offices import Office


@dataclass
class Heard:
    """All that a session tells its users and its observer."""

    of_session: RecordingListener = field(default_factory=RecordingListener)
    of_calls: RecordingListener = field(default_factory=RecordingListener)
    answered: list[tuple[str, str | None]] = field(default_factory=list)
    lost: int = 0
    eras_lost: int = 0
    streams: list[str] = field(default_factory=list)
    begun: int = 0
    retried: list[str] = field(default_factory=list)
    circuit: list[str] = field(default_factory=list)
    health: list[tuple[bool, bool | None]] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    """The causes of failed checks."""
    circuit_causes: list[str | None] = field(default_factory=list)
    """The latest cause at each change of the circuit."""

    @property
    def session(self) -> list[Notification]:
        """The notifications that belong to no call."""
        return self.of_session.notifications

    @property
    def call(self) -> list[Notification]:
        """The notifications that belong to a call."""
        return self.of_calls.notifications

    def lose_era(self) -> None:
        """Count that the server is no longer known to speak its era."""
        self.eras_lost += 1

    def observer(self) -> UpstreamObserver:
        def lose() -> None:
            self.lost += 1

        def begin() -> None:
            self.begun += 1

        def note_circuit(state: str, cause: str | None, is_for_all: bool) -> None:
            self.circuit.append(state)
            self.circuit_causes.append(cause if is_for_all else f"{cause}, one caller")

        def note_health(ok: bool, up: bool | None, cause: str | None) -> None:
            self.health.append((ok, up))
            self.causes += () if cause is None else (cause,)

        return UpstreamObserver(
            answered=lambda method, seconds, error, is_own: self.answered.append((method, error)),
            session_lost=lose,
            stream_opened=lambda kind: self.streams.append(f"{kind} opened"),
            stream_ended=lambda kind: self.streams.append(f"{kind} ended"),
            begun=begin,
            retried=self.retried.append,
            circuit=note_circuit,
            health=note_health,
        )


@dataclass
class Caller:
    """An upstream and one session with it, in the words of the tests."""

    upstream: UpstreamClient
    session: UpstreamSession
    heard: Heard

    async def call(
        self, tool: str = "echo", *, progress: bool = False, ear: RecordingListener | None = None
    ) -> Response:
        """Relay a `tools/call`; `progress` asks to hear of it, and `ear` hears instead of the one of all calls."""
        params, listener = call_params(tool, progress=progress), ear or self.heard.of_calls
        return await self.session.call(UpstreamCall("tools/call", params, tool=tool), listener)

    async def run(self, tool: str = "echo", *, within: float = 60, ear: RecordingListener | None = None) -> Any:
        """Run a `tools/call` as a task does, for what it means."""
        params, listener = call_params(tool).head, ear or self.heard.of_calls
        response = await self.session.call(task_call(tool, params, timedelta(seconds=within)), listener)
        return self.session.outcome(response)

    async def close(self) -> None:
        await self.session.close()
        await self.upstream.close()


def call_params(tool: str, arguments: str = "{}", *, progress: bool = False) -> Params:
    """Parameters of a call, with a place for a token where progress is wanted."""
    if progress:
        return Params(f'{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":', "}}")
    return Params(f'{{"name":"{tool}","arguments":{arguments}}}')


def speaks_for_anybody() -> Principal:
    """For whom sessions speak where it does not matter."""
    return Principal(context="anybody")


EVERYTHING = Peer(
    revision=Revision.R2025_11_25,
    capabilities={
        "roots": {"listChanged": True},
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "tasks": {"list": {}, "cancel": {}, "requests": {"elicitation": {"create": {}}}},
    },
    info={},
)
"""A host that can be asked whatever there is."""


def settings_for(url: str, **changes: Any) -> UpstreamSettings:
    """Patient settings for a server of 2025-11-25, as changed as the test says."""
    seconds = timedelta(seconds=20)
    plain: dict[str, Any] = {
        "connect": seconds,
        "first_byte": seconds,
        "idle": None,
        "call": seconds,
        "max_result": 64 * 1024,
    }
    plain["revision"] = Revision.R2025_11_25
    return UpstreamSettings(**({"name": "reports", "url": url} | plain | changes))


def new_caller(url: str, host: Peer | None = None, *, clock: Clock | None = None, **changes: Any) -> Caller:
    """A caller of whatever is at that address, for a host; to be closed."""
    heard = Heard()
    upstream = UpstreamClient(
        settings_for(url, **changes),
        dialect=LegacyUpstream("1.0", ExtensionPolicy()),
        modern=ModernUpstream("1.0", ExtensionPolicy()),
        observer=heard.observer(),
        clock=clock or SystemClock(),
        entropy=SystemEntropy(),
    )
    return Caller(upstream, upstream.session(heard.of_session, speaks_for_anybody, host), heard)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server that keeps its promises until it is told otherwise."""
    async with ScriptedServer() as server:
        yield server


@pytest.fixture
async def caller(server: ScriptedServer) -> AsyncIterator[Caller]:
    """Somebody with a session at that server, not yet opened."""
    caller = new_caller(server.url)
    yield caller
    await caller.close()


@pytest.fixture
async def asked(server: ScriptedServer) -> AsyncIterator[Caller]:
    """Somebody whose host can be asked whatever there is."""
    caller = new_caller(server.url, EVERYTHING)
    yield caller
    await caller.close()


@pytest.fixture
def tasks(server: ScriptedServer) -> LegacyTasks:
    """The tasks that the server makes of calls itself: of `research` of all, of `index` where it is asked to."""
    return LegacyTasks(server, required=("research",), optional=("index",))


@pytest.fixture
def far(tasks: LegacyTasks) -> LegacyTasks:
    """The same of a server that wants to be looked at as good as never again."""
    tasks.poll = 300_000
    return tasks


@pytest.fixture
async def new_caller_of() -> AsyncIterator[Callable[..., Caller]]:
    """Makes callers of an address, with settings as the test wants them."""
    callers: list[Caller] = []

    def make(url: str, **changes: Any) -> Caller:
        callers.append(new_caller(url, **changes))
        return callers[-1]

    yield make
    for caller in callers:
        await caller.close()


@pytest.fixture
def anew(new_caller_of: Callable[..., Any], server: ScriptedServer) -> Callable[..., Any]:
    """Makes callers of the server who do not know what it speaks, each with an upstream of its own."""
    return lambda **changes: new_caller_of(server.url, **({"revision": None} | changes))


@pytest.fixture
async def plain(server: ScriptedServer) -> ScriptedServer:
    """The server, without sessions, so that any request reaches its methods."""
    server.sessions = False
    return server


@pytest.fixture
def new_settings() -> Callable[..., UpstreamSettings]:
    """Makes settings for an address."""
    return settings_for


@pytest.fixture
async def transport_to(new_settings: Callable[..., Any]) -> AsyncIterator[Callable[..., HttpTransport]]:
    """Makes transports, which are closed in the end."""
    transports: list[HttpTransport] = []

    def make(url: str, *, retried: Callable[[str], None] = lambda reason: None, **changes: Any) -> HttpTransport:
        transports.append(HttpTransport(new_settings(url, **changes), retried))
        return transports[-1]

    yield make
    for transport in transports:
        await transport.close()


@pytest.fixture
async def endpoint() -> AsyncIterator[ExchangeServer]:
    """A token endpoint that knows three tokens each of alice and bob."""
    async with ExchangeServer() as endpoint:
        for name in ("alice", "bob"):
            endpoint.subjects |= {f"token-{turn}-of-{name}": name for turn in range(1, 4)}
        yield endpoint


@pytest.fixture
async def office(server: ScriptedServer) -> AsyncIterator[Callable[..., Office]]:
    """Makes offices in front of the server, with what they show to it; they are closed in the end."""
    offices: list[Office] = []

    def make(credentials: Any = None, **changes: Any) -> Office:
        offices.append(Office(settings_for(server.url, credentials=credentials, **changes)))
        return offices[-1]

    yield make
    for each in offices:
        await each.close()
