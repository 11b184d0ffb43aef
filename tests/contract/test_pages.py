"""Pages: the tasks of an owner, in order, through a filter, from a position that does not move."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.backends import Backend
from helpers.examples import examples
from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_call, new_record
from taskgate.domain.events import CallSucceeded, Progressed, ResultRetrieved
from taskgate.domain.listing import (
    STATES,
    ListedTask,
    OrderBy,
    Page,
    Position,
    TaskFilter,
    TaskOrder,
    TaskState,
    listed_task,
)
from taskgate.domain.record import OwnerKey, TaskRecord, TaskStatus
from taskgate.stores.base import MOST_SCANNED, Store
from taskgate.stores.codec import pack_time

ANY = TaskFilter()
ORDERS = {
    f"{by.value} {'down' if descending else 'up'}": TaskOrder(by=by, descending=descending)
    for by in OrderBy
    for descending in (True, False)
}
SECOND = timedelta(seconds=1)


async def page(store: Store, **changes: Any) -> Page:
    arguments: dict[str, Any] = {"where": ANY, "order": TaskOrder(), "after": None, "limit": 100, "now": EPOCH}
    return await store.page(changes.pop("owner", OWNER), **(arguments | changes))


async def walk(store: Store, limit: int, **changes: Any) -> list[ListedTask]:
    """All pages, one after another."""
    found: list[ListedTask] = []
    place: Position | None = None
    for _ in range(99):
        part = await page(store, limit=limit, after=place, **changes)
        assert len(part.tasks) <= limit
        found += part.tasks
        place = part.next
        if place is None:
            return found
        assert len(part.tasks) == limit
    raise AssertionError("the pages do not end")


def in_order(records: list[TaskRecord], order: TaskOrder) -> list[ListedTask]:
    def place(record: TaskRecord) -> tuple[object, str]:
        return (record.created_at if order.by is OrderBy.CREATED else record.updated_at, record.id)

    return [listed_task(record) for record in sorted(records, key=place, reverse=order.descending)]


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
        created=pack_time(EPOCH),
        updated=pack_time(EPOCH),
        ttl=timedelta(hours=1),
        poll_interval=timedelta(seconds=1),
        tool_error=False,
        expires=pack_time(EPOCH + timedelta(hours=1)),
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
    records[last] = short = replace(
        records[last], ttl=timedelta(minutes=1), expires_at=records[last].created_at + timedelta(minutes=1)
    )
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


RARE: dict[str, dict[str, Any]] = {
    "nothing else": {},
    "a host": {"handed_to": "a,true]]b"},
    "a tenant and a trace": {"tenant": "t", "trace": "00-1-2-01"},
    "words that no UTF-8 has": {"status_message": "\ud800", "tenant": "t"},
    "an error of its tool": {"tool_error": True},
}


@pytest.mark.parametrize("more", RARE.values(), ids=RARE)
async def test_results_that_hosts_have_got_are_left_out(store: Store, more: dict[str, Any]) -> None:
    plain = {"status": TaskStatus.COMPLETED, **more}
    waiting = new_record(**plain, idempotency_digest="waiting")
    fetched = new_record(**plain, idempotency_digest="fetched", retrieved=True)
    running = new_record(**{**more, "tool_error": False}, idempotency_digest="running")
    await keep(store, waiting, fetched, running)
    unfetched = {waiting.id, running.id}
    for order in ORDERS.values():
        assert {
            task.id for task in (await page(store, where=TaskFilter(unfetched=True), order=order)).tasks
        } == unfetched
        ids = frozenset({fetched.id, waiting.id, running.id})
        picked = await page(store, where=TaskFilter(unfetched=True, ids=ids), order=order)
        assert {task.id for task in picked.tasks} == unfetched


async def test_a_result_is_left_out_once_a_host_has_got_it(store: Store) -> None:
    await keep(store, record := new_record())
    ended = after(record, CallSucceeded(result="{}", tool_error=False, message="its end"))
    assert await store.swap(ended, expected=0)
    assert [task.id for task in (await page(store, where=TaskFilter(unfetched=True))).tasks] == [record.id]
    assert await store.swap(after(ended, ResultRetrieved()), expected=1)
    assert (await page(store, where=TaskFilter(unfetched=True))).tasks == ()


@pytest.mark.thorough
async def test_tasks_behind_more_than_a_page_may_look_at_are_found_by_the_cursors_of_short_pages(store: Store) -> None:
    others = [new_record(created_at=EPOCH + SECOND * number) for number in range(1, MOST_SCANNED + 10)]
    late = EPOCH + SECOND * MOST_SCANNED * 2
    wanted = [new_record(updated_at=late), new_record(created_at=late)]
    for start in range(0, len(others), 500):
        await asyncio.gather(*(store.insert(record, caps=()) for record in others[start : start + 500]))
    await keep(store, *wanted)
    # Most tasks are skipped, since the other time than that of the order is too early.
    where, order = TaskFilter(updated_after=late - SECOND), TaskOrder(by=OrderBy.CREATED, descending=False)
    found, place, pages = list[ListedTask](), None, 0
    while pages == 0 or place is not None:
        part = await page(store, where=where, order=order, after=place)
        found, place, pages = [*found, *part.tasks], part.next, pages + 1
        assert pages <= 3
    # What a page may look at is bounded.
    assert pages > 1
    assert found == [listed_task(record) for record in wanted]


# --- any filter, any order, any change --------------------------------------------------------------------------------


times = st.integers(0, 6).map(lambda number: EPOCH + SECOND * number)
bounds = st.none() | times
states = st.tuples(st.sampled_from(STATES), st.booleans())
rows = st.lists(st.tuples(times, st.integers(0, 5), states, st.sampled_from("abcd")), max_size=14)
wheres = st.builds(
    TaskFilter,
    ids=st.none() | st.frozensets(st.sampled_from([f"{letter}{number}" for letter in "abcd" for number in range(14)])),
    states=st.none() | st.frozensets(st.sampled_from(STATES)),
    created_after=bounds,
    created_before=bounds,
    updated_after=bounds,
    updated_before=bounds,
    unfetched=st.booleans(),
)


@given(rows=rows, where=wheres, order=st.sampled_from(list(ORDERS.values())), limit=st.integers(1, 5), place=bounds)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_filter_in_any_order_gives_what_a_look_at_every_task_would(
    backend: Backend, rows: list[Any], where: TaskFilter, order: TaskOrder, limit: int, place: Any
) -> None:
    records = [
        new_record(
            id=f"{letter}{number}",
            created_at=created,
            updated_at=created + SECOND * later,
            status=state.status,
            tool_error=state.tool_error,
            retrieved=state.status.is_terminal and retrieved,
        )
        for number, (created, later, (state, retrieved), letter) in enumerate(rows)
    ]

    async def found() -> tuple[list[ListedTask], list[ListedTask]]:
        with TemporaryDirectory() as folder:
            async with backend.opened(Path(folder)) as store:
                await keep(store, *records)
                whole = await walk(store, limit, where=where, order=order)
                start = None if place is None else Position(place, "b5")
                rest = await page(store, where=where, order=order, after=start)
                return whole, list(rest.tasks)

    whole, rest = asyncio.run(found())
    fetched = {record.id for record in records if record.retrieved} if where.unfetched else set[str]()
    wanted = [task for task in in_order(records, order) if task.id not in fetched and meets(task, where)]
    assert whole == wanted
    assert rest == [task for task in wanted if place is None or is_past(task.position(order.by), (place, "b5"), order)]


def meets(task: ListedTask, where: TaskFilter) -> bool:
    """A filter said otherwise, to be compared with."""
    created, updated = task.created_at, task.updated_at
    return all(
        (
            where.ids is None or task.id in where.ids,
            where.states is None or (task.status, task.tool_error) in where.states,
            (where.created_after or created - SECOND) < created < (where.created_before or created + SECOND),
            (where.updated_after or updated - SECOND) < updated < (where.updated_before or updated + SECOND),
        )
    )


def is_past(place: Position, other: tuple[datetime, str], order: TaskOrder) -> bool:
    return place < other if order.descending else place > other


class Moves(NamedTuple):
    """What happens to tasks between two pages: which are updated, and how many are made."""

    updated: frozenset[int]
    made: int


@given(moves=st.lists(st.builds(Moves, st.frozensets(st.integers(0, 9), max_size=4), st.integers(0, 2)), max_size=6))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_what_does_not_change_is_on_one_page_and_no_more_while_others_change(
    backend: Backend, order: TaskOrder, moves: list[Moves]
) -> None:
    records = [new_record(created_at=EPOCH + SECOND * (number // 2)) for number in range(10)]

    async def paged() -> list[str]:
        with TemporaryDirectory() as folder:
            async with backend.opened(Path(folder)) as store:
                await keep(store, *records)
                return await paged_with(store)

    async def paged_with(store: Store) -> list[str]:
        current, found, place = list(records), list[str](), None
        for turn, move in enumerate([*moves, *[Moves(frozenset(), 0)] * 99]):
            part = await page(store, order=order, limit=3, after=place)
            found += [task.id for task in part.tasks]
            place = part.next
            if place is None:
                return found
            for at in move.updated:
                old = current[at]
                current[at] = after(old, Progressed(message=f"{turn}"), by=timedelta(minutes=1))
                assert await store.swap(current[at], expected=old.revision)
            await keep(store, *(new_record(created_at=EPOCH + SECOND * 9) for _ in range(move.made)))
        raise AssertionError("the pages do not end")

    found = asyncio.run(paged())
    moved = {records[at].id for move in moves for at in move.updated} if order.by is OrderBy.UPDATED else set()
    assert {record.id for record in records} - moved <= set(found)
    still = [id for id in found if id not in moved]
    assert len(still) == len(set(still))
