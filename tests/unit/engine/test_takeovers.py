"""Who takes a task over writes first; who lost it writes no more; and what waits for a store has bounds."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import after, keep, new_lease, new_record
from helpers.waiting import bounded
from taskgate.dialects.faults import call_ended
from taskgate.engine import endings
from taskgate.engine.changes import Changes
from taskgate.engine.endings import NOT_KEPT, Endings
from taskgate.engine.takeovers import Takeovers
from taskgate.errors import StoreUnavailable
from taskgate.tasks.events import CallSucceeded, Dispatched, Progressed
from taskgate.tasks.record import Faulted, FaultReason, TaskStatus
from unit.engine.alone import Alone
from unit.engine.several_runners import RULES

SECOND = timedelta(seconds=1)
DONE = CallSucceeded(result='{"content":[]}', tool_error=False)


async def test_who_took_a_task_over_writes_first_so_that_its_earlier_holder_cannot() -> None:
    one = Alone()
    held = new_record(lease=new_lease(holder="process-0", until=EPOCH))
    await keep(one.store, held)
    (lapsed,) = await one.store.lapsed(holder="process-1", until=EPOCH + RULES.length, now=EPOCH, limit=1)
    endings_ = Endings(store=one.store, audit=one.facts, clock=one.clock, hold=one.leasing)
    takeovers = Takeovers(store=one.store, endings=endings_, audit=one.facts, clock=one.clock, hold=one.leasing)
    taken = await takeovers.taken(lapsed, is_served=True)
    assert taken is not None
    assert (taken.revision, taken.call.params) == (held.revision + 1, held.call.params)
    assert not await one.store.swap(after(held, Dispatched()), expected=held.revision)


async def test_who_was_slower_than_the_earlier_holder_takes_over_what_that_has_done() -> None:
    one = Alone()
    held = new_record(lease=new_lease(holder="process-0", until=EPOCH))
    await keep(one.store, held)
    (lapsed,) = await one.store.lapsed(holder="process-1", until=EPOCH + RULES.length, now=EPOCH, limit=1)
    assert await one.store.swap(after(lapsed, Dispatched()), expected=held.revision)
    endings_ = Endings(store=one.store, audit=one.facts, clock=one.clock, hold=one.leasing)
    takeovers = Takeovers(store=one.store, endings=endings_, audit=one.facts, clock=one.clock, hold=one.leasing)
    assert await takeovers.taken(lapsed, is_served=True) is None
    assert one.store._kept[held.id].head.status is TaskStatus.FAILED


async def test_what_became_anothers_meanwhile_is_left_to_it() -> None:
    one = Alone()
    held = new_record(lease=new_lease(holder="process-0", until=EPOCH))
    await keep(one.store, held)
    (lapsed,) = await one.store.lapsed(holder="process-1", until=EPOCH + SECOND, now=EPOCH, limit=1)
    assert await one.store.swap(after(lapsed, Dispatched()), expected=held.revision)
    await one.store.lapsed(holder="process-2", until=EPOCH + RULES.length, now=EPOCH + SECOND, limit=1)
    endings_ = Endings(store=one.store, audit=one.facts, clock=one.clock, hold=one.leasing)
    takeovers = Takeovers(store=one.store, endings=endings_, audit=one.facts, clock=one.clock, hold=one.leasing)
    assert await takeovers.taken(lapsed, is_served=True) is None
    assert not one.store._kept[held.id].head.status.is_terminal


async def test_what_another_process_holds_is_not_changed_as_if_it_ran_here() -> None:
    one = Alone()
    held = new_record(dispatched=True, lease=new_lease(holder="process-0"))
    await keep(one.store, held)
    changes = Changes(store=one.store, audit=one.facts, clock=one.clock)
    running_ = changes.of_runs(one.leasing)
    assert await running_.make(held.owner, held.id, lambda _: Progressed(message="1/2")) is None
    assert await changes.make(held.owner, held.id, lambda _: Progressed(message="1/2")) is not None
    assert running_.retrievals is changes.retrievals


async def test_results_that_wait_for_a_store_take_no_more_room_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is given up, and its task says so."""
    monkeypatch.setattr(endings, "MAX_WAITING", len(DONE.result))
    monkeypatch.setattr(endings, "RETRY_FIRST", 0.001)
    one, is_down = Alone(), True
    load = one.store.load

    async def loads(*args: Any, **named: Any) -> Any:
        if is_down:
            raise StoreUnavailable("away")
        return await load(*args, **named)

    monkeypatch.setattr(one.store, "load", loads)
    records = [new_record(dispatched=True) for _ in range(2)]
    await keep(one.store, *records)
    writer = Endings(store=one.store, audit=one.facts, clock=one.clock)
    async with bounded(), asyncio.TaskGroup() as group:
        for record in records:
            group.create_task(writer.settle(record.owner, record.id, DONE))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        is_down = False
    first, second = (one.store._kept[record.id] for record in records)
    assert first.head.status is TaskStatus.COMPLETED
    assert second.head.status_message == NOT_KEPT
    assert second.outcome == Faulted(
        error=call_ended(FaultReason.INTERNAL, NOT_KEPT, dispatched=True).error, reason=FaultReason.INTERNAL
    )
