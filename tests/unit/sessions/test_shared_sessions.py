"""Sessions that several replicas serve: idle time counts over all of them, and an end reaches each."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import FailingStore
from helpers.manual_clock import ManualClock
from helpers.waiting import eventually
from taskgate.cluster import messages
from taskgate.errors import StoreUnavailable
from taskgate.sessions.registry import CHECK_AFTER, ENDED_REMEMBERED, TOUCH_SLACK
from taskgate.stores.memory import MemoryStore
from unit.cluster.recording_bus import A, B
from unit.lifecycle.replicated import IDLE, Replica

ROUND = timedelta(seconds=30)


@pytest.fixture
def store() -> FailingStore:
    return FailingStore(MemoryStore())


@pytest.fixture
async def here(store: FailingStore, clock: ManualClock) -> AsyncIterator[Replica]:
    replica = Replica(store, clock)
    yield replica
    await replica.sessions.close()


@pytest.fixture
async def there(store: FailingStore, clock: ManualClock) -> AsyncIterator[Replica]:
    replica = Replica(store, clock, B)
    yield replica
    await replica.sessions.close()


# --- idle -------------------------------------------------------------------------------------------------------------


async def test_a_session_is_unloaded_where_it_is_idle_and_lives_on_where_it_is_used(
    here: Replica, there: Replica, clock: ManualClock
) -> None:
    upstream: Any = (mine := await here.opened()).upstream
    for _ in range(int(IDLE / ROUND) + 1):
        await there.found(mine.id)
        clock.advance(ROUND)
        for replica in (here, there):
            await replica.sessions.sweep()
    assert here.sessions.get(mine.id) is None
    await eventually(lambda: upstream.closes)
    assert await here.knows(mine.id), "it is loaded again"


async def test_an_unused_session_expires_within_the_slack_after_its_idle_time(
    here: Replica, there: Replica, clock: ManualClock
) -> None:
    id_ = (await here.opened()).id
    clock.advance(IDLE + TOUCH_SLACK - timedelta(seconds=1))
    assert await there.knows(id_)
    clock.advance(IDLE + TOUCH_SLACK)
    assert not await there.knows(id_)


async def test_a_session_used_just_before_it_expires_is_extended_by_the_next_sweep(
    here: Replica, there: Replica, clock: ManualClock
) -> None:
    id_ = (await here.opened()).id
    clock.advance(IDLE - timedelta(seconds=1))
    await there.found(id_)
    clock.advance(ROUND)
    await there.sessions.sweep()
    clock.advance(IDLE - timedelta(seconds=1))
    await there.sessions.sweep()
    assert await there.knows(id_)


async def test_a_session_in_memory_without_use_expires(here: Replica, there: Replica, clock: ManualClock) -> None:
    id_ = (await here.opened()).id
    await there.found(id_)
    for _ in range(int((IDLE + 2 * TOUCH_SLACK) / ROUND)):
        clock.advance(ROUND)
        await there.sessions.sweep()
    assert not await here.knows(id_)


async def test_a_sweep_that_fails_is_made_up_for_by_the_next(
    here: Replica, there: Replica, store: FailingStore, clock: ManualClock
) -> None:
    id_ = (await here.opened()).id
    clock.advance(IDLE)
    await here.found(id_)
    clock.advance(ROUND)
    store.failing.add("touch")
    with pytest.raises(StoreUnavailable):
        await here.sessions.sweep()
    store.failing.clear()
    clock.advance(ROUND)
    await here.sessions.sweep()
    clock.advance(IDLE - ROUND)
    assert await there.knows(id_)


async def test_without_other_replicas_an_idle_session_is_ended(store: FailingStore, clock: ManualClock) -> None:
    alone = Replica(store, clock, alone=True)
    id_ = (await alone.opened()).id
    clock.advance(IDLE)
    await alone.sessions.sweep()
    assert not await alone.knows(id_)
    assert alone.said.take_sent() == []
    await alone.sessions.close()


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_the_end_of_a_session_is_sent_to_the_other_replicas(here: Replica, there: Replica) -> None:
    mine = await here.opened()
    await there.found(mine.id)
    await here.sessions.end(mine)
    assert here.said.take_sent() == [(messages.SessionEnded(mine.id), None)]
    there.said.receive(messages.SessionEnded(mine.id), A)
    assert not await there.knows(mine.id)
    assert not await here.knows(mine.id)


async def test_a_session_read_from_the_store_just_before_it_ended_is_not_loaded(
    here: Replica, there: Replica, store: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = await here.opened()
    find = store.find

    async def find_late(*arguments: Any, **more: Any) -> Any:
        found = await find(*arguments, **more)
        there.said.receive(messages.SessionEnded(mine.id), A)
        return found

    monkeypatch.setattr(store, "find", find_late, raising=False)
    assert not await there.knows(mine.id)
    assert there.sessions.get(mine.id) is None


async def test_an_end_whose_message_is_lost_is_found_in_the_store_at_the_next_check(
    here: Replica, there: Replica, clock: ManualClock
) -> None:
    mine = await here.opened()
    await there.found(mine.id)
    await here.sessions.end(mine)
    assert await there.knows(mine.id)
    clock.advance(timedelta(seconds=CHECK_AFTER))
    assert not await there.knows(mine.id)
    assert there.sessions.get(mine.id) is None


async def test_a_session_in_memory_is_usable_while_the_store_is_down(
    here: Replica, store: FailingStore, clock: ManualClock
) -> None:
    id_ = (await here.opened()).id
    store.failing.add("find")
    assert await here.knows(id_)
    clock.advance(timedelta(seconds=CHECK_AFTER))
    assert await here.knows(id_)


async def test_a_limited_number_of_ended_sessions_is_remembered(here: Replica) -> None:
    mine = await here.opened()
    here.said.receive(messages.SessionEnded(mine.id))
    assert not await here.knows(mine.id)
    for number in range(ENDED_REMEMBERED):
        here.said.receive(messages.SessionEnded(str(number)))
    assert await here.knows(mine.id), "the store still has it"


# --- revived ----------------------------------------------------------------------------------------------------------


async def test_loading_a_session_is_sent_to_the_other_replicas_once(here: Replica, there: Replica) -> None:
    id_ = (await here.opened()).id
    assert here.said.take_sent() == []
    await there.found(id_)
    await there.found(id_)
    assert there.said.take_sent() == [(messages.SessionRevived(id_), None)]
