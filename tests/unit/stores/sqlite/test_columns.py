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
from taskgate.stores.sqlite.task_writes import SMALL
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


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not known"])
@pytest.mark.parametrize("is_in_row", [True, False], ids=["small", "large"])
async def test_a_small_body_is_in_the_row_of_its_task_and_a_large_one_in_one_of_its_own(
    place: Place, is_known: bool, is_in_row: bool
) -> None:
    text = "x" * (SMALL if is_in_row else SMALL + 1)
    record = new_record(lease=new_lease(), dispatched=is_known, params=text)
    await keep(place.store, record)
    ended = advance(record, CallSucceeded(result=text, tool_error=False), EPOCH)
    assert await place.store.swap(ended, expected=0)
    in_row = place.file.writer.execute("SELECT params, kind, outcome FROM tasks").fetchall()
    apart = [place.file.writer.execute(f"SELECT body FROM {table}").fetchall() for table in ("params", "outcomes")]
    body = text.encode()
    assert in_row == ([(body, "result", body)] if is_in_row else [(None, None, None)])
    assert apart == ([[], []] if is_in_row else [[(body,)], [(body,)]])
    assert await place.store.load(OWNER, record.id, now=EPOCH, bodies=True) == ended


@pytest.mark.parametrize("sizes", [(1, SMALL + 1), (SMALL + 1, 1), (1, 2), (SMALL + 1, SMALL + 2)], ids=str)
async def test_the_last_outcome_counts_wherever_the_first_one_is(place: Place, sizes: tuple[int, int]) -> None:
    record = new_record(status=TaskStatus.COMPLETED)
    await keep(place.store, record)
    for revision, size in enumerate(sizes):
        outcome = Succeeded(result="x" * size, tool_error=False)
        record = replace(record, outcome=outcome, revision=revision + 1)
        assert await place.store.swap(record, expected=revision)
    assert await place.store.load(OWNER, record.id, now=EPOCH, bodies=True) == record
