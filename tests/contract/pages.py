"""Pages of a store under test: all of them, one after another, and what they should hold."""

from datetime import timedelta
from typing import Any

from helpers.manual_clock import EPOCH
from helpers.records import OWNER
from taskgate.domain.listing import ListedTask, OrderBy, Page, Position, TaskFilter, TaskOrder, listed_task
from taskgate.domain.record import TaskRecord
from taskgate.stores.base import Store

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
