"""The tasks that a stream tells of, where the store forgets, fails, or cannot read one of them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import FailingStore
from helpers.manual_clock import ManualClock
from helpers.records import OWNER, after, keep, new_record
from helpers.waiting import bounded, eventually
from taskgate.domain.events import CallSucceeded, Dispatched, Progressed
from taskgate.domain.record import TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.gateway.modern import task_watcher as module
from taskgate.gateway.modern.task_watcher import TaskWatcher
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.stores.base import ChangeBatch, OwnerWatch, RecordChange, Store, Watch
from taskgate.stores.open import open_store

DONE = CallSucceeded(result='{"content":[]}', tool_error=False, message=None)


class ToldStore:
    """A store whose news are what a test puts in `news`, and which cannot load what is in `unreadable`."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.news: asyncio.Queue[ChangeBatch | Exception] = asyncio.Queue()
        self.watches: list[tuple[Watch, timedelta]] = []
        self.unreadable: set[str] = set()

    async def changed(self, watch: Watch, *, timeout: timedelta) -> ChangeBatch:
        self.watches.append((watch, timeout))
        if timeout < module.PATIENCE and self.news.empty():
            await asyncio.sleep(0)
            return ChangeBatch(place=1)
        news = await self.news.get()
        if isinstance(news, Exception):
            raise news
        return news

    async def load(self, owner: Any, id: str, **more: Any) -> Any:
        if id in self.unreadable:
            raise StoreUnavailable("as the test wants")
        return await self._inner.load(owner, id, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class World:
    """Some tasks that are told of."""

    def __init__(self, store: Any) -> None:
        self.store, self.clock = store, ManualClock()
        self.told: list[tuple[str, str]] = []
        self.telling: asyncio.Task[None] | None = None

    async def begin(self, *records: TaskRecord) -> "asyncio.Task[None]":
        tasks = await TaskWatcher.begin(OWNER, store=self.store, dialect=ModernDownstream("1"), clock=self.clock)
        for record in records:
            tasks.add(record.id)
        self.telling = asyncio.create_task(tasks.watch(self._tell))
        return self.telling

    async def _tell(self, record: TaskRecord) -> None:
        self.told.append((record.id, record.status.value))

    async def swap(self, record: TaskRecord, *events: Any) -> None:
        assert await self.store.swap(after(record, *events), expected=record.revision)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World(ToldStore(await open_store("memory", None)))
    yield world
    if world.telling is not None:
        world.telling.cancel()
        await asyncio.wait([world.telling])


async def test_everything_is_looked_at_when_the_store_has_forgotten_what_changed(world: World) -> None:
    first, second = after(new_record(), Dispatched()), after(new_record(), Dispatched())
    await keep(world.store, first, second)
    await world.begin(first, second)
    await eventually(lambda: len(world.told) == 2)
    await world.swap(second, Progressed(message="3/10"))
    world.store.news.put_nowait(ChangeBatch(place=2, complete=False))
    await eventually(lambda: len(world.told) == 3)
    assert world.told[2] == (second.id, "working")


async def test_each_wait_goes_on_where_the_last_one_ended(world: World) -> None:
    record = new_record()
    await keep(world.store, record)
    await world.begin(record)
    world.store.news.put_nowait(ChangeBatch(place=17))
    await eventually(lambda: len(world.store.watches) == 3)
    places = [watch.since for watch, _ in world.store.watches if isinstance(watch, OwnerWatch)]
    assert places == [None, 1, 17]


async def test_what_cannot_be_read_is_looked_at_again_soon_and_keeps_nothing_else_back(world: World) -> None:
    damaged, whole = new_record(), new_record()
    await keep(world.store, damaged, whole)
    world.store.unreadable = {damaged.id}
    await world.begin(damaged, whole)
    await eventually(lambda: len(world.store.watches) > 3)
    assert world.told == [(whole.id, "working")]
    assert {patience for _, patience in world.store.watches[1:]} == {module.RETRY}
    world.store.unreadable = set()
    await eventually(lambda: len(world.told) == 2)
    await eventually(lambda: world.store.watches[-1][1] == module.PATIENCE)


async def test_changes_of_other_tasks_of_the_owner_are_not_looked_at(world: World) -> None:
    mine, other = new_record(), new_record()
    await keep(world.store, mine, other)
    await world.begin(mine)
    await eventually(lambda: world.told)
    world.store.unreadable = {other.id}
    world.store.news.put_nowait(ChangeBatch(place=2, changes=(RecordChange(other.id, 1),)))
    await eventually(lambda: len(world.store.watches) == 3)
    assert world.store.watches[-1][1] == module.PATIENCE


async def test_a_watch_that_fails_goes_on_after_a_pause(world: World) -> None:
    record = after(new_record(), Dispatched())
    await keep(world.store, record)
    telling = await world.begin(record)
    await eventually(lambda: world.told)
    await world.swap(record, DONE)
    world.store.news.put_nowait(StoreUnavailable("as the test wants"))
    world.store.news.put_nowait(ChangeBatch(place=2, changes=(RecordChange(record.id, 2),)))
    await asyncio.sleep(module.RETRY.total_seconds() / 2)
    assert len(world.told) == 1
    async with bounded():
        await telling
    assert world.told[1:] == [(record.id, "completed")]


async def test_where_no_task_is_left_nobody_waits_for_news(world: World) -> None:
    await (await world.begin())
    assert len(world.store.watches) == 1


async def test_a_store_that_is_not_there_from_the_beginning_is_an_error() -> None:
    store = FailingStore(await open_store("memory", None))
    store.failing = {"changed"}
    with pytest.raises(StoreUnavailable):
        await World(store).begin(new_record())
