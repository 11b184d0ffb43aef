"""Pages: the owner's tasks, in order, through a filter, from a place that holds still."""

from dataclasses import replace
from datetime import timedelta

import pytest

from contract.pages import ANY, ORDERS, SECOND, in_order, page, walk
from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_call, new_record
from taskgate.domain.events import CallSucceeded, Progressed
from taskgate.domain.listing import STATES, ListedTask, Page, Position, TaskFilter, TaskOrder, TaskState, listed_task
from taskgate.domain.record import OwnerKey, TaskRecord, TaskStatus
from taskgate.stores.base import Store


def mixed() -> list[TaskRecord]:
    """Records whose orders by creation, by update and by id all differ, with ties in each time."""
    return [
        new_record(
            id=f"{(number * 7) % 12:02}-{'Zz_-'[number % 4]}",
            created_at=EPOCH - SECOND * (number % 5),
            updated_at=EPOCH + SECOND * (number % 3),
        )
        for number in range(12)
    ]


@pytest.mark.parametrize("limit", [1, 4, 5, 11, 12, 13])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
async def test_pages_together_are_the_whole_list_in_order(store: Store, order: TaskOrder, limit: int) -> None:
    records = mixed()
    await keep(store, *records)
    assert await walk(store, limit, order=order) == in_order(records, order)


async def test_a_page_that_ends_the_list_names_no_next(store: Store) -> None:
    await keep(store, new_record(), new_record())
    assert (await page(store, limit=2)).next is None
    assert (await page(store, limit=1)).next is not None
    assert await page(store, owner=OwnerKey("nobody", "nowhere")) == Page(tasks=(), next=None)


async def test_a_page_tells_of_a_task_what_its_record_says(store: Store) -> None:
    record = new_record(status=TaskStatus.INPUT_REQUIRED, status_message="a \ud800", tool_error=False)
    other = new_record(status=TaskStatus.COMPLETED, tool_error=True, call=new_call(tool="other"))
    await keep(store, record, other)
    first = ListedTask(
        id=record.id,
        tool="build_report",
        status=TaskStatus.INPUT_REQUIRED,
        status_message="a \ud800",
        created_at=EPOCH,
        updated_at=EPOCH,
        ttl=timedelta(hours=1),
        poll_interval=timedelta(seconds=1),
        tool_error=False,
    )
    second = first._replace(
        id=other.id, tool="other", status=TaskStatus.COMPLETED, status_message=None, tool_error=True
    )
    assert (await page(store, order=TaskOrder(descending=False))).tasks == (first, second)


async def test_a_page_shows_only_what_is_the_owners_and_has_not_expired(store: Store) -> None:
    mine = new_record()
    await keep(
        store,
        mine,
        new_record(owner=OwnerKey(OWNER.context, "elsewhere")),
        new_record(owner=OwnerKey("somebody", OWNER.mount)),
        new_record(created_at=EPOCH - timedelta(hours=1)),
    )
    assert (await page(store)).tasks == (listed_task(mine),)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
async def test_a_place_holds_still_when_records_come_and_go(store: Store, order: TaskOrder) -> None:
    records = [new_record(created_at=EPOCH + SECOND * number) for number in range(10)]
    # The record that the place is taken from goes; the place stays.
    last = 6 if order.descending else 3
    records[last] = short = replace(records[last], ttl=timedelta(minutes=1))
    await keep(store, *records)
    whole = in_order(records, order)
    first = await page(store, order=order, limit=4)
    assert list(first.tasks) == whole[:4]
    assert first.tasks[-1].id == short.id

    early, late = new_record(created_at=EPOCH - SECOND), new_record(created_at=EPOCH + SECOND * 99)
    await keep(store, early, late)
    assert [head.id for head in await store.purge(now=short.expires_at, limit=9)] == [short.id]
    rest = await page(store, order=order, after=first.next)
    assert list(rest.tasks) == [*whole[4:], listed_task(early if order.descending else late)]


async def test_a_record_that_is_updated_leaves_its_place_and_is_listed_anew(store: Store) -> None:
    records = [new_record(created_at=EPOCH + SECOND * number) for number in range(4)]
    await keep(store, *records)
    first = await page(store, limit=2)
    assert [head.id for head in first.tasks] == [records[3].id, records[2].id]
    moved = after(records[0], Progressed(message="new"), by=timedelta(minutes=1))
    assert await store.swap(moved, expected=0)
    assert [head.id for head in (await page(store, after=first.next)).tasks] == [records[1].id]
    assert [head.id for head in (await page(store, limit=1)).tasks] == [moved.id]


@pytest.mark.parametrize("id", ["", "~", "\ud800", "\0"])
async def test_a_place_need_not_be_a_records(store: Store, id: str) -> None:
    older, newer = new_record(created_at=EPOCH - SECOND), new_record(created_at=EPOCH + SECOND)
    await keep(store, older, newer)
    found = await page(store, after=Position(EPOCH, id))
    assert [head.id for head in found.tasks] == [older.id]


WORKING, COMPLETED, FAILED = map(TaskState, (TaskStatus.WORKING, TaskStatus.COMPLETED, TaskStatus.FAILED))
ASKING, TOOL_ERROR = TaskState(TaskStatus.INPUT_REQUIRED), TaskState(TaskStatus.COMPLETED, True)
LAST = timedelta(seconds=4)
FILTERS: dict[str, tuple[TaskFilter, str]] = {
    "all": (ANY, "abcde"),
    "one id": (TaskFilter(ids=frozenset({"b"})), "b"),
    "ids, some unknown": (TaskFilter(ids=frozenset({"a", "c", "x", "\ud800", "b\0", "foreign"})), "ac"),
    "only unknown ids": (TaskFilter(ids=frozenset({"foreign", "a" * 500})), ""),
    "no ids": (TaskFilter(ids=frozenset()), ""),
    "a state": (TaskFilter(states=frozenset({WORKING})), "ab"),
    "two states": (TaskFilter(states=frozenset({COMPLETED, ASKING})), "ce"),
    "every state": (TaskFilter(states=frozenset(STATES)), "abcde"),
    "a state of none": (TaskFilter(states=frozenset({FAILED})), ""),
    "no states": (TaskFilter(states=frozenset()), ""),
    "no states of an id": (TaskFilter(states=frozenset(), ids=frozenset({"a"})), ""),
    "tool errors": (TaskFilter(states=frozenset({TOOL_ERROR})), "d"),
    "ends but for tool errors": (TaskFilter(states=frozenset({COMPLETED})), "e"),
    "created after": (TaskFilter(created_after=EPOCH), "bcde"),
    "created before": (TaskFilter(created_before=EPOCH + SECOND * 3), "abc"),
    "updated after": (TaskFilter(updated_after=EPOCH + SECOND * 2), "de"),
    "updated before": (TaskFilter(updated_before=EPOCH + SECOND * 3), "abc"),
    "between": (TaskFilter(created_after=EPOCH, created_before=EPOCH + SECOND * 2), "b"),
    "between nothing": (TaskFilter(created_after=EPOCH + SECOND * 2, created_before=EPOCH + SECOND), ""),
    "updated between": (TaskFilter(updated_after=EPOCH, updated_before=EPOCH + SECOND * 2), "b"),
    "created early, updated late": (TaskFilter(created_before=EPOCH + LAST, updated_after=EPOCH + SECOND * 3), "d"),
    "created late, updated early": (TaskFilter(created_after=EPOCH, updated_before=EPOCH + SECOND * 4), "bc"),
    "together": (TaskFilter(states=frozenset({WORKING}), created_after=EPOCH), "b"),
    "ids within bounds": (
        TaskFilter(ids=frozenset("abc"), created_after=EPOCH, updated_before=EPOCH + SECOND * 2),
        "b",
    ),
    "ids of states": (TaskFilter(ids=frozenset("acd"), states=frozenset({TOOL_ERROR, WORKING})), "ad"),
    "apart": (TaskFilter(ids=frozenset({"a"}), states=frozenset({COMPLETED})), ""),
}


@pytest.mark.parametrize(("where", "expected"), FILTERS.values(), ids=FILTERS)
async def test_a_filter_lets_through_what_meets_all_of_it(store: Store, where: TaskFilter, expected: str) -> None:
    a, b = new_record(id="a"), new_record(id="b", created_at=EPOCH + SECOND)
    c = new_record(id="c", created_at=EPOCH + SECOND * 2, status=TaskStatus.INPUT_REQUIRED)
    d, e = new_record(id="d", created_at=EPOCH + SECOND * 3), new_record(id="e", created_at=EPOCH + SECOND * 4)
    await keep(store, a, b, c, d, e, new_record(id="foreign", owner=OwnerKey("somebody", "else")))
    for record, tool_error in ((d, True), (e, False)):
        ended = after(record, CallSucceeded(result="{}", tool_error=tool_error, message="its end"))
        assert await store.swap(ended, expected=0)
    for order in ORDERS.values():
        # Creation and update put these in the same order.
        there = expected[::-1] if order.descending else expected
        assert "".join(task.id for task in (await page(store, where=where, order=order)).tasks) == there
        assert "".join(task.id for task in await walk(store, 1, where=where, order=order)) == there
