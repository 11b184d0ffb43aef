"""What lies beside a head in the file follows it, where it is written, and what the caps of a file count."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_input, new_lease, new_record
from helpers.waiting import bounded
from taskgate.domain.events import (
    CallFaulted,
    CallSucceeded,
    CancelRequested,
    Dispatched,
    InputRequested,
    Progressed,
    TaskEvent,
)
from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.listing import TaskFilter, TaskOrder, TaskState
from taskgate.domain.machine import advance
from taskgate.domain.record import FaultReason, Succeeded, TaskStatus
from taskgate.errors import StoreUnavailable, TooManyTasks
from taskgate.stores.codec import pack_time
from taskgate.stores.sqlite.store import BRIEF
from unit.stores.places import Place

FAR_OFF = EPOCH + timedelta(days=365)
ENDED = CallSucceeded(result='{"content":[]}', tool_error=False)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path / "taskgate.db")
    yield made
    async with bounded():
        await made.store.close()


def at_most(limit: int) -> tuple[Cap, ...]:
    return (Cap(scope=CapScope.CONTEXT, limit=limit),)


# --- caps ------------------------------------------------------------------------------------------------------------


async def test_a_new_start_counts_what_is_unfinished(place: Place) -> None:
    records = [new_record(lease=new_lease(until=FAR_OFF)), new_record(), new_record(ttl=timedelta(seconds=1))]
    await keep(place.store, *records, new_record(status=TaskStatus.COMPLETED))
    store = await place.reopen()
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=at_most(3))
    assert await store.swap(after(records[0], ENDED), expected=0)
    await store.insert(new_record(), caps=at_most(3))
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=at_most(3))
    assert len(await store.purge(now=records[2].expires_at, limit=1)) == 1
    await store.insert(new_record(), caps=at_most(3))
    with pytest.raises(TooManyTasks):
        await store.insert(new_record(), caps=at_most(3))


async def test_what_could_not_be_written_takes_no_room(place: Place) -> None:
    record = new_record()
    await place.store.insert(record, caps=at_most(2))
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await place.store.insert(record, caps=at_most(2))
    await place.store.insert(new_record(), caps=at_most(2))


async def test_what_nobody_waits_for_any_more_takes_room_if_it_was_written_and_none_if_not(place: Place) -> None:
    record = new_record()
    for _ in range(2):
        inserting = asyncio.create_task(place.store.insert(record, caps=at_most(2)))
        await asyncio.sleep(0)
        inserting.cancel()
        await asyncio.gather(inserting, return_exceptions=True)
    # Of one after the other: this one's commit is after theirs.
    await place.store.insert(new_record(), caps=())
    with pytest.raises(TooManyTasks):
        await place.store.insert(new_record(), caps=at_most(2))
    assert await place.store.swap(after(record, ENDED), expected=0)
    await place.store.insert(new_record(), caps=at_most(2))


async def test_a_swap_that_is_lost_makes_no_room(place: Place) -> None:
    record = new_record()
    await place.store.insert(record, caps=at_most(1))
    assert not await place.store.swap(after(record, ENDED), expected=7)
    with pytest.raises(TooManyTasks):
        await place.store.insert(new_record(), caps=at_most(1))


async def test_a_purge_makes_the_room_of_what_cannot_be_read(place: Place) -> None:
    record = new_record(ttl=timedelta(seconds=1))
    await place.store.insert(record, caps=at_most(1))
    place.file.writer.execute("UPDATE tasks SET head = x'ff'")
    await place.store.purge(now=record.expires_at, limit=1)
    await place.store.insert(new_record(), caps=at_most(1))


async def test_a_purge_of_what_has_ended_makes_no_room(place: Place) -> None:
    short = timedelta(seconds=1)
    ended = new_record(status=TaskStatus.COMPLETED, ttl=short)
    await keep(place.store, ended, new_record(ttl=short))
    (removed,) = await place.store.purge(now=ended.expires_at, limit=1)
    assert removed.id == ended.id
    with pytest.raises(TooManyTasks):
        await place.store.insert(new_record(), caps=at_most(1))


async def test_a_record_that_is_unfinished_again_takes_room_again(place: Place) -> None:
    record = new_record(status=TaskStatus.COMPLETED)
    await keep(place.store, record)
    assert await place.store.swap(replace(record, status=TaskStatus.WORKING, revision=1), expected=0)
    with pytest.raises(TooManyTasks):
        await place.store.insert(new_record(), caps=at_most(1))


# --- one statement or two --------------------------------------------------------------------------------------------


EVENTS = {
    "sent": Dispatched(),
    "seen": Progressed(message="half"),
    "asks": InputRequested(request=new_input("input-1")),
    "ended": ENDED,
    "cancelled": CancelRequested(),
}


@pytest.mark.parametrize("seconds", [0, 1], ids=["as it is made", "later"])
@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
async def test_a_swap_keeps_every_column_as_the_head_has_it(place: Place, event: TaskEvent, seconds: int) -> None:
    record = new_record(lease=new_lease(), status_message="new")
    await keep(place.store, record)
    moved = advance(record, event, EPOCH + timedelta(seconds=seconds))
    assert await place.store.swap(moved, expected=0)
    columns = "updated, unfinished, status, tool_error, revision, holder, lease_until"
    ((*kept,),) = place.file.writer.execute(f"SELECT {columns} FROM tasks").fetchall()
    lease = moved.lease
    assert kept == [
        pack_time(moved.updated_at),
        not moved.status.is_terminal,
        moved.status.value,
        moved.tool_error,
        1,
        lease.holder if lease else None,
        pack_time(lease.until) if lease else 0,
    ]
    store = await place.reopen()
    assert await store.load(OWNER, record.id, now=EPOCH, bodies=True) == replace(moved, lease=None)


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
async def test_a_swap_of_another_revision_is_lost_whatever_it_moves(place: Place, event: TaskEvent) -> None:
    record = new_record(lease=new_lease(), revision=3)
    await keep(place.store, record)
    for expected in (2, 4, -1):
        assert not await place.store.swap(advance(record, event, EPOCH), expected=expected)
    assert await place.store.load(OWNER, record.id, now=EPOCH, bodies=True) == record


async def test_a_swap_at_the_time_of_creation_moves_what_was_moved_before(place: Place) -> None:
    record = new_record(updated_at=EPOCH + timedelta(seconds=1))
    await keep(place.store, record)
    assert await place.store.swap(replace(record, updated_at=EPOCH, revision=1), expected=0)
    assert place.file.writer.execute("SELECT updated FROM tasks").fetchall() == [(pack_time(EPOCH),)]


@pytest.mark.parametrize("seconds", [0, 1], ids=["as it was made", "later"])
async def test_a_swap_that_moves_nothing_but_the_tools_error_is_listed_by_it(place: Place, seconds: int) -> None:
    record = new_record(status=TaskStatus.COMPLETED, updated_at=EPOCH + timedelta(seconds=seconds))
    await keep(place.store, record)
    assert await place.store.swap(replace(record, tool_error=True, revision=1), expected=0)
    assert place.file.writer.execute("SELECT tool_error FROM tasks").fetchall() == [(1,)]
    where = TaskFilter(states=frozenset({TaskState(TaskStatus.COMPLETED, True)}))
    found = await place.store.page(OWNER, where=where, order=TaskOrder(), after=None, limit=9, now=EPOCH)
    assert [task.id for task in found.tasks] == [record.id]


async def test_an_outcome_is_kept_though_nothing_else_moves(place: Place) -> None:
    record = new_record(status=TaskStatus.COMPLETED)
    await keep(place.store, record)
    ended = replace(record, outcome=Succeeded(result="{}", tool_error=False), revision=1)
    assert await place.store.swap(ended, expected=0)
    assert await place.store.load(OWNER, record.id, now=EPOCH, bodies=True) == ended


@pytest.mark.parametrize("length", [BRIEF, BRIEF + 1])
@pytest.mark.parametrize("body", ["params", "result", "error"])
async def test_only_short_bodies_are_written_on_the_event_loop(place: Place, body: str, length: int) -> None:
    record, text = new_record(), "x" * length
    if body != "params":
        await keep(place.store, record)
    on_loop: list[bool] = []
    place.file.writer.set_trace_callback(
        lambda said: on_loop.append(threading.current_thread() is threading.main_thread()) if "INTO" in said else None
    )
    if body == "params":
        await keep(place.store, new_record(params=text))
    elif body == "result":
        assert await place.store.swap(after(record, CallSucceeded(result=text, tool_error=False)), expected=0)
    else:
        faulted = CallFaulted(error=text, reason=FaultReason.CLOSED, message="gone")
        assert await place.store.swap(after(record, faulted), expected=0)
    assert on_loop
    assert set(on_loop) == {length <= BRIEF}
