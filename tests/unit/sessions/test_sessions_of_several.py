"""A session that several processes serve: idle here is not idle everywhere, and ended anywhere is ended here."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.failing_store import FailingStore
from helpers.manual_clock import ManualClock
from helpers.waiting import eventually
from taskgate.cluster import messages
from taskgate.errors import StoreUnavailable
from taskgate.sessions.registry import CHECKED_AFTER, ENDINGS, TIDIED_WITHIN
from taskgate.stores.memory import MemoryStore
from unit.cluster.recording_bus import A, B
from unit.lifecycle.replicated import IDLE, Replica

ROUND = timedelta(seconds=30)


@pytest.fixture
def store() -> FailingStore:
    return FailingStore(MemoryStore())


@pytest.fixture
async def here(store: FailingStore, clock: ManualClock) -> AsyncIterator[Replica]:
    process = Replica(store, clock)
    yield process
    await process.sessions.close()


@pytest.fixture
async def there(store: FailingStore, clock: ManualClock) -> AsyncIterator[Replica]:
    process = Replica(store, clock, B)
    yield process
    await process.sessions.close()


# --- idle ----------------------------------------------------------------------------------------------------------


async def test_where_it_is_idle_it_is_let_go_and_where_it_is_used_it_goes_on(
    here: Replica, there: Replica, clock: ManualClock
) -> None:
    upstream: Any = (mine := await here.opened()).upstream
    for _ in range(int(IDLE / ROUND) + 1):
        await there.found(mine.id)
        clock.advance(ROUND)
        for process in (here, there):
            await process.sessions.sweep()
    assert here.sessions.peek(mine.id) is None
    await eventually(lambda: upstream.is_closed)
    assert await here.knows(mine.id), "it is met anew"


async def test_one_that_nobody_uses_ends_a_little_later_than_it_must(
    here: Replica, there: Replica, clock: ManualClock
) -> None:
    id_ = (await here.opened()).id
    clock.advance(IDLE + TIDIED_WITHIN - timedelta(seconds=1))
    assert await there.knows(id_)
    clock.advance(IDLE + TIDIED_WITHIN)
    assert not await there.knows(id_)


async def test_one_that_is_used_right_before_its_end_goes_on(here: Replica, there: Replica, clock: ManualClock) -> None:
    """What one process knows the store is told at its next round."""
    id_ = (await here.opened()).id
    clock.advance(IDLE - timedelta(seconds=1))
    await there.found(id_)
    clock.advance(ROUND)
    await there.sessions.sweep()
    clock.advance(IDLE - timedelta(seconds=1))
    await there.sessions.sweep()
    assert await there.knows(id_)


async def test_a_session_that_is_only_alive_somewhere_is_not_kept_by_that(
    here: Replica, there: Replica, clock: ManualClock
) -> None:
    id_ = (await here.opened()).id
    await there.found(id_)
    for _ in range(int((IDLE + 2 * TIDIED_WITHIN) / ROUND)):
        clock.advance(ROUND)
        await there.sessions.sweep()
    assert not await here.knows(id_)


async def test_what_a_store_that_was_away_was_not_told_it_is_told_later(
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


async def test_with_one_process_alone_idle_is_the_end(store: FailingStore, clock: ManualClock) -> None:
    alone = Replica(store, clock, alone=True)
    id_ = (await alone.opened()).id
    clock.advance(IDLE)
    await alone.sessions.sweep()
    assert not await alone.knows(id_)
    assert alone.said.take_sent() == []
    await alone.sessions.close()


# --- ended ---------------------------------------------------------------------------------------------------------


async def test_all_are_told_of_the_end(here: Replica, there: Replica) -> None:
    mine = await here.opened()
    await there.found(mine.id)
    await here.sessions.end(mine)
    assert here.said.take_sent() == [(messages.SessionEnded(mine.id), None)]
    there.said.receive(messages.SessionEnded(mine.id), A)
    assert not await there.knows(mine.id)
    assert not await here.knows(mine.id)


async def test_one_that_was_read_right_before_it_ended_does_not_come_to_life(
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
    assert there.sessions.peek(mine.id) is None


async def test_if_the_word_is_lost_the_end_is_noticed_soon(here: Replica, there: Replica, clock: ManualClock) -> None:
    mine = await here.opened()
    await there.found(mine.id)
    await here.sessions.end(mine)
    assert await there.knows(mine.id)
    clock.advance(timedelta(seconds=CHECKED_AFTER))
    assert not await there.knows(mine.id)
    assert there.sessions.peek(mine.id) is None


async def test_a_session_that_is_alive_is_looked_for_now_and_then_alone(
    here: Replica, store: FailingStore, clock: ManualClock
) -> None:
    """A request costs no look into the store, and none fails for a store that is away."""
    id_ = (await here.opened()).id
    store.failing.add("find")
    assert await here.knows(id_)
    clock.advance(timedelta(seconds=CHECKED_AFTER))
    assert await here.knows(id_)


async def test_not_all_endings_are_remembered(here: Replica) -> None:
    """It need be known only as long as the session may have been read from the store before."""
    mine = await here.opened()
    here.said.receive(messages.SessionEnded(mine.id))
    assert not await here.knows(mine.id)
    for number in range(ENDINGS):
        here.said.receive(messages.SessionEnded(str(number)))
    assert await here.knows(mine.id), "this store was told of no end"


# --- brought to life ------------------------------------------------------------------------------------------------


async def test_who_brings_it_to_life_says_so(here: Replica, there: Replica) -> None:
    id_ = (await here.opened()).id
    assert here.said.take_sent() == []
    await there.found(id_)
    await there.found(id_)
    assert there.said.take_sent() == [(messages.SessionRevived(id_), None)]
