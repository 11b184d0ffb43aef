"""The columns beside a head follow it, whether a swap is one statement or two."""

from dataclasses import replace
from datetime import timedelta

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, keep, new_input, new_lease, new_record
from taskgate.domain.events import (
    CallSucceeded,
    CancelRequested,
    Dispatched,
    InputRequested,
    Progressed,
    TaskEvent,
)
from taskgate.domain.listing import TaskFilter, TaskOrder, TaskState
from taskgate.domain.machine import advance
from taskgate.domain.record import Succeeded, TaskStatus
from taskgate.stores.codec import pack_time
from unit.stores.sqlite.conftest import Place

ENDED = CallSucceeded(result='{"content":[]}', tool_error=False)
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
