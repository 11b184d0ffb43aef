"""Slots and places in the queue that are given back as soon as nobody needs them, whatever the store does meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import Any

from helpers.failing_store import FailingStore
from helpers.records import after
from helpers.waiting import bounded, eventually
from taskgate.admission.concurrency import POSITIONS_EVERY, Permit
from taskgate.domain.events import CancelRequested
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.stores.open import open_store
from unit.lifecycle.one_runner import House, house, housed, slot

__all__ = ["house", "slot"]


async def test_a_call_that_is_over_holds_no_slot_while_its_end_cannot_be_written() -> None:
    """Decision 20: what needs no task still passes while the store is away, and so must come to its turn."""
    store = FailingStore(await open_store("memory", None))
    house = House(store)  # type: ignore[arg-type]
    house.runner.open()
    record = await house.start()
    await eventually(lambda: house.server.called)
    store.failing = {"load", "swap"}
    house.server.answer.set_result("{}")
    await eventually(lambda: house.bulkhead.in_use == 0)
    assert house.bulkhead.acquire("b").is_granted
    store.failing = set()
    assert (await house.ended(record)).status is TaskStatus.COMPLETED
    await house.runner.stop()
    assert house.bulkhead.in_use == 1


async def test_a_call_that_cannot_be_marked_holds_no_slot_while_its_end_cannot_be_written() -> None:
    store = FailingStore(await open_store("memory", None))
    house = House(store)  # type: ignore[arg-type]
    house.runner.open()
    waiting = house.bulkhead.acquire("b")
    record = await house.start()
    store.failing = {"load", "swap"}
    waiting.release()
    await eventually(lambda: "load" in store.refused and house.bulkhead.in_use == 0)
    store.failing = set()
    assert (await house.ended(record)).status is TaskStatus.FAILED
    assert house.server.called == []
    await house.runner.stop()


async def test_an_error_at_the_end_of_a_run_keeps_neither_its_permit_nor_its_session(
    house: House, slot: Permit
) -> None:
    def fail(task: str) -> None:
        raise RuntimeError(f"{task} cannot end")

    loop, errors = asyncio.get_running_loop(), []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: errors.append(str(context["exception"])))
    house.streams.remote = SimpleNamespace(begin=lambda task: None, end=fail)
    record = await house.start()
    assert await house.store.swap(after(record, CancelRequested()), expected=record.revision)
    await eventually(lambda: errors)
    loop.set_exception_handler(before)
    assert errors == [f"{record.id} cannot end"]
    assert (house.bulkhead.queued, house.server.held) == (0, 0)
    async with bounded():
        await house.runner.idle()


class Racing:
    """Hands everything to `inner`; right before a place is written, somebody else cancels the task."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        if self.armed and (record.status_message or "").startswith("Queued"):
            self.armed = False
            found = await self._inner.load(record.owner, record.id, now=record.updated_at)
            assert await self._inner.swap(after(found, CancelRequested()), expected=expected)
            for _ in range(20):
                # Its news comes before the store says that the place was not written.
                await asyncio.sleep(0)
        return await self._inner.swap(record, expected=expected)  # type: ignore[no-any-return]


async def test_one_that_is_cancelled_in_the_moment_in_which_its_place_is_told_leaves_the_queue() -> None:
    """The cancel has the revision that the place was to have, so its news could be taken for our own."""
    race = Racing(await open_store("memory", None))
    async with housed(race) as house:
        slot = house.bulkhead.acquire("b")
        first, second = await house.start(), await house.start()
        race.armed = True
        assert await house.store.swap(after(first, CancelRequested()), expected=first.revision)
        await asyncio.sleep(2 * POSITIONS_EVERY)
        assert not race.armed
        async with bounded():
            await house.runner.idle()
        assert (await house.now(second)).status is TaskStatus.CANCELLED
        assert house.bulkhead.queued == 0
        assert house.server.called == []
        slot.release()
