"""Pages: the owner's heads, in order, through a filter, from a place that holds still."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import OWNER, after, keep, new_record
from taskgate.stores.base import OrderBy, Page, Position, Store, TaskFilter, TaskOrder
from taskgate.stores.codec import as_head
from taskgate.tasks.events import CallSucceeded, Progressed
from taskgate.tasks.record import OwnerKey, Succeeded, TaskRecord, TaskStatus

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


async def walk(store: Store, limit: int, **changes: Any) -> list[TaskRecord]:
    """All pages, one after another."""
    found: list[TaskRecord] = []
    place: Position | None = None
    while True:
        part = await page(store, limit=limit, after=place, **changes)
        assert len(part.records) <= limit
        found += part.records
        place = part.next
        if place is None:
            return found
        assert len(part.records) == limit


def in_order(records: list[TaskRecord], order: TaskOrder) -> list[TaskRecord]:
    def place(record: TaskRecord) -> tuple[object, str]:
        return (record.created_at if order.by is OrderBy.CREATED else record.updated_at, record.id)

    return [as_head(record) for record in sorted(records, key=place, reverse=order.descending)]


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
    assert await page(store, owner=OwnerKey("nobody", "nowhere")) == Page(records=(), next=None)


async def test_a_page_holds_heads(store: Store) -> None:
    ended = new_record(status=TaskStatus.COMPLETED, outcome=Succeeded(result="{}", tool_error=False))
    await keep(store, ended)
    assert (await page(store)).records == (as_head(ended),)


async def test_a_page_shows_only_what_is_the_owners_and_has_not_expired(store: Store) -> None:
    mine = new_record()
    await keep(
        store,
        mine,
        new_record(owner=OwnerKey(OWNER.context, "elsewhere")),
        new_record(owner=OwnerKey("somebody", OWNER.mount)),
        new_record(created_at=EPOCH - timedelta(hours=1)),
    )
    assert (await page(store)).records == (as_head(mine),)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
async def test_a_place_holds_still_when_records_come_and_go(store: Store, order: TaskOrder) -> None:
    records = [new_record(created_at=EPOCH + SECOND * number) for number in range(10)]
    # The record that the place is taken from goes; the place stays.
    last = 6 if order.descending else 3
    records[last] = short = replace(records[last], ttl=timedelta(minutes=1))
    await keep(store, *records)
    listed = in_order(records, order)
    first = await page(store, order=order, limit=4)
    assert list(first.records) == listed[:4]
    assert first.records[-1].id == short.id

    early, late = new_record(created_at=EPOCH - SECOND), new_record(created_at=EPOCH + SECOND * 99)
    await keep(store, early, late)
    assert [head.id for head in await store.purge(now=short.expires_at, limit=9)] == [short.id]
    rest = await page(store, order=order, after=first.next)
    assert list(rest.records) == [*listed[4:], as_head(early if order.descending else late)]


async def test_a_record_that_is_updated_leaves_its_place_and_is_listed_anew(store: Store) -> None:
    records = [new_record(created_at=EPOCH + SECOND * number) for number in range(4)]
    await keep(store, *records)
    first = await page(store, limit=2)
    assert [head.id for head in first.records] == [records[3].id, records[2].id]
    moved = after(records[0], Progressed(message="new"), by=timedelta(minutes=1))
    assert await store.swap(moved, expected=0)
    assert [head.id for head in (await page(store, after=first.next)).records] == [records[1].id]
    assert [head.id for head in (await page(store, limit=1)).records] == [moved.id]


@pytest.mark.parametrize("id", ["", "~", "\ud800", "\0"])
async def test_a_place_need_not_be_a_records(store: Store, id: str) -> None:
    older, newer = new_record(created_at=EPOCH - SECOND), new_record(created_at=EPOCH + SECOND)
    await keep(store, older, newer)
    found = await page(store, after=Position(EPOCH, id))
    assert [head.id for head in found.records] == [older.id]


FILTERS: dict[str, tuple[TaskFilter, str]] = {
    "all": (ANY, "abcd"),
    "one id": (TaskFilter(ids=frozenset({"b"})), "b"),
    "ids, some unknown": (TaskFilter(ids=frozenset({"a", "c", "x", "\ud800", "b\0", "foreign"})), "ac"),
    "no ids": (TaskFilter(ids=frozenset()), ""),
    "a status": (TaskFilter(statuses=frozenset({TaskStatus.WORKING})), "ab"),
    "two statuses": (TaskFilter(statuses=frozenset({TaskStatus.COMPLETED, TaskStatus.INPUT_REQUIRED})), "cd"),
    "no statuses": (TaskFilter(statuses=frozenset()), ""),
    "tool errors": (TaskFilter(tool_error=True), "d"),
    "no tool errors": (TaskFilter(tool_error=False), "abc"),
    "created after": (TaskFilter(created_after=EPOCH), "bcd"),
    "created before": (TaskFilter(created_before=EPOCH + SECOND * 3), "abc"),
    "updated after": (TaskFilter(updated_after=EPOCH + SECOND * 2), "d"),
    "updated before": (TaskFilter(updated_before=EPOCH + SECOND * 3), "abc"),
    "between": (TaskFilter(created_after=EPOCH, created_before=EPOCH + SECOND * 2), "b"),
    "together": (TaskFilter(statuses=frozenset({TaskStatus.WORKING}), created_after=EPOCH, tool_error=False), "b"),
    "apart": (TaskFilter(ids=frozenset({"a"}), statuses=frozenset({TaskStatus.COMPLETED})), ""),
}


@pytest.mark.parametrize(("where", "expected"), FILTERS.values(), ids=FILTERS)
async def test_a_filter_lets_through_what_meets_all_of_it(store: Store, where: TaskFilter, expected: str) -> None:
    a, b = new_record(id="a"), new_record(id="b", created_at=EPOCH + SECOND)
    c = new_record(id="c", created_at=EPOCH + SECOND * 2, status=TaskStatus.INPUT_REQUIRED)
    d = new_record(id="d", created_at=EPOCH + SECOND * 3)
    await keep(store, a, b, c, d, new_record(id="foreign", owner=OwnerKey("somebody", "else")))
    ended = after(d, CallSucceeded(result="{}", tool_error=True, message="a tool's error"))
    assert await store.swap(ended, expected=0)
    order = TaskOrder(by=OrderBy.CREATED, descending=False)
    assert "".join(head.id for head in (await page(store, where=where, order=order)).records) == expected
    assert "".join(head.id for head in await walk(store, 1, where=where, order=order)) == expected
