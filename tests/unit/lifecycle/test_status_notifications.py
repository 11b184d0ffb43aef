"""What a GET stream is asked and told when the store forgot some of it, or cannot tell all of it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from helpers.records import OWNER, after, keep, new_call, new_input, new_peer, new_record
from helpers.unread_connection import UnreadConnection
from helpers.virtual_time import turns
from helpers.waiting import eventually
from taskgate.domain.events import Dispatched, InputRequested
from taskgate.domain.record import TaskRecord
from taskgate.domain.versions import Peer
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle import status_notifications as module
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.status_notifications import ACQUAINTANCE, StatusNotifier
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.stores.base import ChangeBatch, RecordChange, Store, Watch
from taskgate.stores.open import open_store
from taskgate.streams.event_stream import EventStream
from taskgate.telemetry.request_context import RequestContext, current, in_request
from unit.lifecycle.guarding import Guard
from unit.lifecycle.recorded_events import RecordedEvents

SESSION = "session-1"


class ToldStore:
    """A store whose news are what a test puts in `news`, and which cannot load what is in `unreadable`."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.news: asyncio.Queue[ChangeBatch] = asyncio.Queue()
        self.patience: list[timedelta] = []
        self.watched_in: list[RequestContext | None] = []
        self.unreadable: set[str] = set()

    async def changed(self, watch: Watch, *, timeout: timedelta) -> ChangeBatch:
        self.patience.append(timeout)
        self.watched_in.append(current())
        if timeout < module.PATIENCE and self.news.empty():
            await asyncio.sleep(0)
            return ChangeBatch(place=1)
        return await self.news.get()

    async def load(self, owner: Any, id: str, **more: Any) -> Any:
        if id in self.unreadable:
            raise StoreUnavailable("as the test wants")
        return await self._inner.load(owner, id, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass(eq=False)
class Session:
    """A host session, as far as news need one."""

    id: str = SESSION
    peer: Peer = field(default_factory=new_peer)
    has_tasks: bool = True


class Streams:
    """One GET stream, unless it is closed."""

    def __init__(self, session: Session, feed: EventStream) -> None:
        self._session, self._feed = session, feed

    def question_stream(self, origin: Any) -> tuple[EventStream, Session] | None:
        mine = origin.host_session == self._session.id and not self._feed.is_closed
        return (self._feed, self._session) if mine else None

    def session(self, origin: Any) -> Session | None:
        return self._session if origin.host_session == self._session.id else None

    def send_to_session(self, origin: Any, message: str) -> bool:
        return origin.host_session == self._session.id and self._feed.send(message)


class World:
    """A session that listens on one stream for the tasks in a store."""

    def __init__(self, store: ToldStore) -> None:
        self.store, self.clock, self.session, self.line = store, ManualClock(), Session(), UnreadConnection()
        dialect = LegacyDownstream("1")
        changes = Transitions(store=store, event_sink=RecordedEvents(), clock=self.clock)
        guard = Guard(store, self.clock, RecordedEvents())
        self.offers = InputDelivery(
            holder="here",
            store=store,  # type: ignore[arg-type]
            transitions=changes,
            access=guard.access,
            dialect=dialect,
            clock=self.clock,
        )
        streams = Streams(self.session, EventStream(self.line))
        self.news = StatusNotifier(
            store=store,
            streams=streams,  # type: ignore[arg-type]
            offers=self.offers,
            polls=guard.polls,
            dialect=dialect,
            clock=self.clock,
        )
        self.clock.advance(2 * ACQUAINTANCE)

    async def asking(self, session: str = SESSION) -> TaskRecord:
        """A task of a session that asks something."""
        request = InputRequested(request=new_input(params='{"message":"Go on?","requestedSchema":{}}'))
        record = after(new_record(call=new_call(host_session=session)), Dispatched(), request, by=timedelta())
        await keep(self.store, record)
        return record

    def asked(self, *records: TaskRecord) -> list[int]:
        """How often the host was asked for each of these tasks."""
        return [
            sum(b'"elicitation/create"' in piece and record.id.encode() in piece for piece in self.line.pieces)
            for record in records
        ]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(ToldStore(await open_store("memory", None)))
    world.news.attend(OWNER, world.session)  # type: ignore[arg-type]
    yield world
    await world.news.close()
    world.news.leave(OWNER, world.session)  # type: ignore[arg-type]
    await world.offers.close()


async def test_what_waits_is_asked_when_the_store_has_forgotten_what_changed(world: World) -> None:
    mine, foreign = await world.asking(), await world.asking("another")
    world.store.news.put_nowait(ChangeBatch(place=1, complete=False))
    await eventually(lambda: world.asked(mine) == [1])
    world.store.news.put_nowait(ChangeBatch(place=2, complete=False))
    await eventually(lambda: len(world.store.patience) == 3)
    await turns(20)
    assert world.asked(mine, foreign) == [1, 0]


async def test_what_cannot_be_read_is_looked_at_again_soon_and_keeps_nothing_else_back(world: World) -> None:
    damaged, whole = await world.asking(), await world.asking()
    world.store.unreadable = {damaged.id}
    world.store.news.put_nowait(ChangeBatch(place=1, changes=(RecordChange(damaged.id, 2), RecordChange(whole.id, 2))))
    await eventually(lambda: world.asked(damaged, whole) == [0, 1])
    await eventually(lambda: len(world.store.patience) > 3)
    assert world.store.patience[1:3] == [timedelta(seconds=module.RETRY)] * 2
    world.store.unreadable = set()
    await eventually(lambda: world.asked(damaged, whole) == [1, 1])
    await eventually(lambda: world.store.patience[-1] == module.PATIENCE)


async def test_catching_up_goes_through_all_pages_and_comes_back_for_what_could_not_be_read(world: World) -> None:
    damaged, *others = [await world.asking() for _ in range(2 * module.AT_ONCE + 1)]
    world.store.unreadable = {damaged.id}
    catching_up = asyncio.create_task(world.news.catch_up((OWNER,), world.session))  # type: ignore[arg-type]
    await asyncio.sleep(module.RETRY / 2)
    assert world.asked(damaged, *others) == [0] + [1] * len(others)
    world.store.unreadable = set()
    await asyncio.sleep(module.RETRY)
    assert catching_up.done()
    assert world.asked(damaged, *others) == [1] + [1] * len(others)


async def test_a_record_that_is_never_readable_is_given_up_some_time(world: World) -> None:
    record, loop = await world.asking(), asyncio.get_running_loop()
    world.store.unreadable = {record.id}
    began = loop.time()
    await world.news.catch_up((OWNER,), world.session)  # type: ignore[arg-type]
    assert round((loop.time() - began) / module.RETRY) == module.TRIES
    assert world.asked(record) == [0]


async def test_news_of_a_task_advise_how_soon_to_ask_for_it(world: World) -> None:
    # Two seconds, whatever the record was made with.
    record = await world.asking()
    world.store.news.put_nowait(ChangeBatch(place=1, changes=(RecordChange(id=record.id, revision=record.revision),)))
    await eventually(lambda: any(b'"pollInterval":2000' in piece for piece in world.line.pieces))


async def test_the_watch_of_an_owner_belongs_to_none_of_those_who_listen() -> None:
    world = World(ToldStore(await open_store("memory", None)))
    with in_request(RequestContext("v", "address", "GET", "/mcp")):
        world.news.attend(OWNER, world.session)  # type: ignore[arg-type]
    await eventually(lambda: world.store.watched_in)
    assert world.store.watched_in == [None]
    await world.news.close()
    world.news.leave(OWNER, world.session)  # type: ignore[arg-type]
