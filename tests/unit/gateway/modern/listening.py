"""Hosts that listen, as far as the engine sees them, and a server that can be subscribed to."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from helpers.manual_clock import ManualClock
from helpers.records import OWNER, keep, new_peer
from helpers.unread_connection import UnreadConnection
from helpers.waiting import bounded, eventually
from taskgate.admission.concurrency import Bulkhead, BulkheadSettings
from taskgate.auth.authorization import AccessRule
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.domain.events import CallSucceeded
from taskgate.domain.record import TaskRecord
from taskgate.domain.versions import Era, Revision
from taskgate.errors import UpstreamFailed
from taskgate.gateway.modern.subscriptions import Subscriptions
from taskgate.lifecycle.retrievals import Retrievals
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.extensions import ExtensionPolicy
from taskgate.protocol.host_requests import Listen, Subscription
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.sessions.session_pool import SharedSession
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import HttpReply
from taskgate.upstream.calls import UpstreamCall
from unit.lifecycle.asked import Asked
from unit.lifecycle.guarding import Guard
from unit.lifecycle.recorded_events import RecordedEvents

EVERYTHING = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}
USUAL = ExtensionPolicy()
ID = "sub-7"
RESULT = '{"content":[{"type":"text","text":"done"}]}'
DONE = CallSucceeded(result=RESULT, tool_error=False, message=None)


@dataclass
class Listener(Asked):
    """A host that asked to listen; `wire` is its connection."""

    wire: UnreadConnection | None = None
    feed: EventStream | None = None
    serving: "asyncio.Task[HttpReply] | None" = None
    has_left: bool = False
    leaving: list[Callable[[], None]] = field(default_factory=list)

    def stream(self) -> EventStream:
        if self.feed is None:
            self.wire = UnreadConnection()
            self.feed = EventStream(self.wire)
            if self.has_left:
                self.feed.close()
        return self.feed

    @property
    def is_streaming(self) -> bool:
        return self.feed is not None

    def on_disconnect(self, forget: Callable[[], None]) -> None:
        if self.has_left:
            forget()
        else:
            self.leaving.append(forget)

    def leave(self) -> None:
        """The host drops its connection."""
        self.has_left = True
        if self.feed is not None:
            self.feed.close()
        for forget in self.leaving:
            forget()

    @property
    def heard(self) -> list[dict[str, Any]]:
        """What is on its way to the host, all of it."""
        if self.wire is None:
            return []
        return [json.loads(piece.decode().partition("data: ")[2]) for piece in self.wire.pieces]

    @property
    def told(self) -> list[tuple[str, str]]:
        """Which tasks it was told of, and how they were."""
        tasks = [message["params"] for message in self.heard if message["method"] == "notifications/tasks"]
        return [(task["taskId"], task["status"]) for task in tasks]

    async def hears(self, count: int) -> list[dict[str, Any]]:
        """Its messages, once there are so many."""
        await eventually(lambda: len(self.heard) >= count)
        return self.heard

    async def end(self) -> HttpReply:
        """What its request was answered in the end."""
        assert self.serving is not None
        async with bounded():
            return await self.serving


class Counterpart:
    """A server that agrees to every subscription but of what is in `refused`; `gate` closed, it does not answer.

    Of list changes that it does not declare, and of what extensions have to tell, it grants what is in `granted`.
    """

    def __init__(self) -> None:
        self.capabilities: dict[str, Any] = EVERYTHING
        self.era = Era.MODERN
        self.granted: frozenset[str] = frozenset()
        self.filters: list[frozenset[str]] = []
        self.changes: list[frozenset[str]] = []
        self.refused: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.spoke_for: list[Any] = []
        self.failure: UpstreamFailed | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens right before a request is answered."""
        self.gate = asyncio.Event()
        self.gate.set()
        settings = BulkheadSettings(concurrency=2, queue=1, max_wait=timedelta(minutes=5), is_shared=False)
        self.bulkhead = Bulkhead(OWNER.mount, settings, event_sink=RecordedEvents())

    async def open(self) -> ServerDescription:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        peer = new_peer(capabilities=self.capabilities)
        return ServerDescription(peer=peer, capabilities=json.dumps(self.capabilities), instructions=None)

    async def listen_for(self, changes: frozenset[str]) -> frozenset[str]:
        self.changes.append(changes)
        await self.gate.wait()
        return self.granted & changes

    def grants(self, filters: frozenset[str]) -> frozenset[str]:
        self.filters.append(filters)
        return self.granted & filters

    async def call(self, call: UpstreamCall, listener: Any) -> Response:
        assert call.params is not None
        uri = json.loads(call.params.with_token(""))["uri"]
        self.asked.append((call.method, uri))
        self.spoke_for.append(call.principal)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.meanwhile()
        answer = b'"error":{"code":-32602,"message":"no"}' if uri in self.refused else b'"result":{}'
        message = parse(b'{"jsonrpc":"2.0","id":1,' + answer + b"}", max_depth=9)
        assert isinstance(message, Response)
        return message


def new_line(
    server: Counterpart, clock: ManualClock, caller: AuthContext = ANONYMOUS, extensions: ExtensionPolicy = USUAL
) -> SharedSession:
    """A line to that server."""
    upstream = SimpleNamespace(session=lambda *_: server)
    mount: Any = SimpleNamespace(
        name=OWNER.mount, upstream=upstream, info=None, extensions=extensions, bulkhead=server.bulkhead
    )
    return SharedSession(mount, caller, new_peer(revision=Revision.R2026_07_28), clock)


def said(method: str, **params: Any) -> Notification:
    """A notification of a server."""
    text = json.dumps({"jsonrpc": "2.0", "method": method, "params": params})
    message = parse(text.encode(), max_depth=9)
    assert isinstance(message, Notification)
    return message


class World:
    """Subscriptions over a store, a line to a server, and what changes the tasks."""

    def __init__(self, store: Any, *rules: AccessRule, threshold: int | None = None) -> None:
        self.store, self.clock, self.emitted, self.server = store, ManualClock(), RecordedEvents(), Counterpart()
        guard = Guard(store, self.clock, self.emitted, *rules, threshold=threshold)
        self.lookups, self.polled, self.polls = guard.lookups, guard.polled, guard.polls
        self.changes = Transitions(store=store, event_sink=self.emitted, clock=self.clock)
        self.retrievals = Retrievals(transitions=self.changes, event_sink=self.emitted, clock=self.clock)
        self.subscriptions = Subscriptions(
            dialect=ModernDownstream("1"),
            store=store,
            lookups=guard.lookups,
            access=guard.access,
            polls=guard.polls,
            retrievals=self.retrievals,
            clock=self.clock,
        )
        self.line = new_line(self.server, self.clock)
        self.listeners: list[Listener] = []

    def listen(
        self,
        caller: AuthContext = ANONYMOUS,
        *,
        listener: Listener | None = None,
        id: str | int = ID,
        line: SharedSession | None = None,
        **wants: Any,
    ) -> Listener:
        """A host listens."""
        listener = listener or Listener()
        intent = Listen(id=id, wants=Subscription(**wants))
        serving = self.subscriptions.serve(listener, caller, line or self.line, intent)
        listener.serving = asyncio.get_running_loop().create_task(serving)
        self.listeners.append(listener)
        return listener

    async def change(self, record: TaskRecord, *events: Any, by: timedelta = timedelta(seconds=1)) -> None:
        """Let these happen to a task, one after another, each a while after the last."""
        for event in events:
            self.clock.advance(by)
            assert await self.changes.make(record.owner, record.id, lambda _, event=event: event) is not None

    async def keep(self, *records: TaskRecord) -> None:
        await keep(self.store, *records)

    async def close(self) -> None:
        """Everybody leaves."""
        for listener in self.listeners:
            listener.leave()
            if listener.serving is not None:
                await asyncio.wait([listener.serving])
        await self.subscriptions.close()


def only_json() -> Listener:
    """A host that takes no stream."""
    return Listener(head=replace(Listener().head, accepts_stream=False))


def waiters(world: World) -> int:
    """How many wait for news of the store."""
    count: int = world.store.running["changed"]
    return count


async def told_all(world: World, listener: Listener, count: int) -> list[tuple[str, str]]:
    """What the listener was told of tasks, once there is so much of it and nothing else is on its way."""
    for _ in range(20):
        await asyncio.sleep(0)
    await eventually(lambda: len(listener.told) >= count and waiters(world) == 1)
    return listener.told
