"""Lists of tasks: in pages that go through all of a caller's own, within the rules."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from itertools import chain, product
from typing import Any

import pytest

from helpers.manual_clock import EPOCH
from helpers.records import new_record
from taskgate.auth.authorization import AccessEffect, AccessRule
from taskgate.domain.cursors import CursorKeys
from taskgate.domain.listing import ALL_TASKS, OrderBy, TaskFilter, TaskOrder, listed_task
from taskgate.domain.record import OwnerKey
from taskgate.errors import InvalidParams
from taskgate.stores.base import Store
from taskgate.stores.open import SqliteOptions, open_store
from unit.admission.lookup_desk import ADMIN_ONLY, ALICE, BOB, ROTATED, Desk, ids
from unit.lifecycle.guarding import CURSORS


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Store]:
    options = SqliteOptions(
        path=tmp_path / "taskgate.db", synchronous="NORMAL", busy_timeout=timedelta(seconds=5), max_size=2**30
    )
    opened = await open_store(request.param, options if request.param == "sqlite" else None)
    yield opened
    await opened.close()


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_who_has_no_tasks_gets_an_empty_page_and_no_cursor(store: Store) -> None:
    assert await Desk(store).page(ALICE) == ((), None)


@pytest.mark.parametrize(("count", "sizes"), [(99, [99]), (100, [100]), (101, [100, 1]), (201, [100, 100, 1])])
async def test_pages_hold_a_hundred_and_the_last_has_no_cursor(store: Store, count: int, sizes: list[int]) -> None:
    desk = Desk(store)
    made = await desk.add("alice", count)
    await desk.add("bob", 3)
    await desk.add("alice", 3, mount="books")
    pages = await desk.pages(ALICE)
    assert [len(page) for page in pages] == sizes
    assert list(chain(*pages)) == ids(made)


ORDERS = [TaskOrder(by=by, descending=descending) for by in OrderBy for descending in (True, False)]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(("new", "old"), [(0, 0), (0, 101), (1, 0), (60, 70), (101, 100), (150, 1), (3, 199)])
async def test_a_list_goes_through_what_is_bound_to_either_key_in_one_order_each_task_once(
    store: Store, new: int, old: int, order: TaskOrder
) -> None:
    desk = Desk(store)
    made = [listed_task(record) for record in (*await desk.add("alice-new", new), *await desk.add("alice", old))]
    pages = await desk.pages(ROTATED, order=order)
    made.sort(key=lambda task: task.position(order.by), reverse=order.descending)
    assert list(chain(*pages)) == [task.id for task in made]
    assert all(len(page) == 100 for page in pages[:-1])


async def test_a_list_is_of_what_the_filter_lets_through_in_the_order_asked_for(store: Store) -> None:
    desk = Desk(store)
    mine, old, (foreign,) = await desk.add("alice-new", 3), await desk.add("alice", 3), await desk.add("bob")
    wanted = {mine[2].id, old[0].id, foreign.id, "unknown"}
    order = TaskOrder(by=OrderBy.CREATED, descending=False)
    assert await desk.pages(ROTATED, where=TaskFilter(ids=frozenset(wanted)), order=order) == [[mine[2].id, old[0].id]]
    assert await desk.pages(ROTATED, where=TaskFilter(states=frozenset())) == [[]]


async def test_a_cursor_is_of_one_filter_and_one_order(store: Store) -> None:
    desk = Desk(store)
    made = await desk.add("alice", 101)
    since = TaskFilter(created_after=EPOCH - timedelta(days=1))
    lists: list[dict[str, Any]] = [{"where": where, "order": order} for where in (ALL_TASKS, since) for order in ORDERS]
    cursors = [(await desk.page(ALICE, **asked))[1] for asked in lists]
    for asked, cursor in product(lists, cursors):
        assert cursor is not None
        if asked is lists[cursors.index(cursor)]:
            (last,), _ = await desk.page(ALICE, cursor, **asked)
            assert last.id == (made[100] if asked["order"].descending else made[0]).id
            continue
        with pytest.raises(InvalidParams, match=r"^Invalid cursor$"):
            await desk.page(ALICE, cursor, **asked)


async def test_a_cursor_from_before_the_key_was_replaced_goes_on(store: Store) -> None:
    before, after = CURSORS, CursorKeys(32 * b"d", 32 * b"c")
    made = await Desk(store).add("alice", 110)
    _, cursor = await Desk(store, cursors=before).page(ALICE)
    records, last = await Desk(store, cursors=after).page(ROTATED, cursor)
    assert ([task.id for task in records], last) == (ids(made)[100:], None)


async def test_a_cursor_is_its_callers_at_its_mount(store: Store) -> None:
    desk = Desk(store)
    await desk.add("alice", 101)
    _, cursor = await desk.page(ALICE)
    assert cursor is not None
    for caller, mount, text in (
        (BOB, "reports", cursor),
        (ALICE, "books", cursor),
        (ALICE, "reports", cursor[:-1]),
        (ALICE, "reports", ""),
        (ROTATED, "reports", "nonsense"),
    ):
        with pytest.raises(InvalidParams, match=r"^Invalid cursor$"):
            await desk.page(caller, text, mount)


async def test_a_list_leaves_out_what_the_rules_would_refuse_and_counts_nothing(store: Store) -> None:
    # Judged as tasks/get, whatever the rules say of other methods.
    listing = AccessRule(name="l", methods=("tasks/list", "tools/call"), effect=AccessEffect.DENY)
    desk = Desk(store, replace(ADMIN_ONLY, methods=("tasks/get",)), listing)
    await desk.add("alice", 100, tool="delete_all")
    older = new_record(owner=OwnerKey("alice", "reports"), created_at=EPOCH - timedelta(minutes=2))
    await store.insert(older, caps=())
    assert await desk.pages(ALICE) == [[], [older.id]]
    assert desk.emitted.all == []
