"""Finding tasks for a caller: under every key of its own, in pages that go through all of them, within the rules."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from itertools import chain, product
from typing import Any

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from helpers.records import new_call, new_record
from taskgate.auth.authorization import AccessPolicy, AccessRule, Effect
from taskgate.auth.context import AuthContext
from taskgate.engine.guard.access import Access
from taskgate.engine.guard.incidents import Incidents
from taskgate.engine.guard.lookups import Lookups
from taskgate.engine.guard.penalties import Penalties
from taskgate.errors import InsufficientScope, InvalidParams, Penalized, TaskNotFound
from taskgate.stores.base import Store
from taskgate.stores.open import SqliteOptions, open_store
from taskgate.tasks.cursors import CursorKeys
from taskgate.tasks.listing import EVERY, NEWEST_FIRST, ListedTask, OrderBy, TaskFilter, TaskOrder, listed
from taskgate.tasks.record import OwnerKey, TaskRecord
from taskgate.telemetry.audit import AccessRefused, EnumerationSuspected, TaskDenied
from unit.auth.identities import identity
from unit.engine.asked import Asked
from unit.engine.facts import Facts

ALICE = AuthContext(key="alice", identity=identity("read"))
BOB = AuthContext(key="bob", identity=identity("read"))
ROTATED = AuthContext(key="alice-new", earlier="alice", identity=identity("read"))
CURSORS = CursorKeys(32 * b"c")
ADMIN_ONLY = AccessRule(name="r", tool="delete_*", require_scopes=frozenset({"admin"}))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Store]:
    options = SqliteOptions(
        path=tmp_path / "taskgate.db", synchronous="NORMAL", busy_timeout=timedelta(seconds=5), max_size=2**30
    )
    opened = await open_store(request.param, options if request.param == "sqlite" else None)
    yield opened
    await opened.close()


class Desk:
    """Lookups over a store, and what they report."""

    def __init__(self, store: Store, *rules: AccessRule, threshold: int | None = None, cursors: Any = CURSORS) -> None:
        self.store, self.clock, self.facts = store, ManualClock(), Facts()
        self.lookups = Lookups(
            store=store,
            access=Access(AccessPolicy(rules=rules), self.facts),
            cursors=cursors,
            penalties=None if threshold is None else Penalties(threshold),
            incidents=Incidents(self.clock),
            audit=self.facts,
            clock=self.clock,
        )

    async def add(self, context: str, count: int = 1, mount: str = "reports", tool: str = "build") -> list[TaskRecord]:
        """Tasks of a context, each a second older than the one before."""
        made = []
        for number in range(count):
            at = EPOCH - timedelta(seconds=number)
            made.append(
                new_record(
                    owner=OwnerKey(context, mount), call=replace(new_call(), tool=tool), created_at=at, updated_at=at
                )
            )
            await self.store.insert(made[-1], caps=())
        return made

    async def find(self, caller: AuthContext, task: str, mount: str = "reports") -> str:
        return (await self.lookups.find(Asked(), caller, mount, task, "tasks/get")).id

    async def page(
        self,
        caller: AuthContext,
        cursor: str | None = None,
        mount: str = "reports",
        where: TaskFilter = EVERY,
        order: TaskOrder = NEWEST_FIRST,
    ) -> tuple[tuple[ListedTask, ...], str | None]:
        return await self.lookups.page(caller, mount, cursor, where, order)

    async def pages(
        self,
        caller: AuthContext,
        mount: str = "reports",
        where: TaskFilter = EVERY,
        order: TaskOrder = NEWEST_FIRST,
    ) -> list[list[str]]:
        found, cursor = [], None
        while True:
            tasks, cursor = await self.page(caller, cursor, mount, where, order)
            found.append([task.id for task in tasks])
            if cursor is None:
                return found
            assert len(found) < 10


def ids(records: list[TaskRecord]) -> list[str]:
    return [record.id for record in records]


# --- one task ------------------------------------------------------------------------------------------------------


async def test_a_task_is_found_by_its_owner_at_its_mount_and_by_nobody_else(store: Store) -> None:
    desk = Desk(store)
    (task,) = await desk.add("alice")
    assert await desk.find(ALICE, task.id) == task.id
    for caller, mount in ((BOB, "reports"), (ALICE, "books")):
        with pytest.raises(TaskNotFound):
            await desk.find(caller, task.id, mount)
    assert desk.facts.all == [TaskDenied("reports", "tasks/get"), TaskDenied("books", "tasks/get")]


async def test_what_was_bound_to_the_key_before_is_still_found(store: Store) -> None:
    desk = Desk(store)
    old, new = *await desk.add("alice"), *await desk.add("alice-new")
    assert [await desk.find(ROTATED, task.id) for task in (old, new)] == [old.id, new.id]
    assert desk.facts.all == []


async def test_the_rules_look_at_the_tool_that_the_task_runs(store: Store) -> None:
    desk = Desk(store, ADMIN_ONLY)
    (task,) = await desk.add("alice", tool="delete_all")
    with pytest.raises(InsufficientScope) as refusal:
        await desk.find(ALICE, task.id)
    assert refusal.value.scopes == {"admin"}
    assert desk.facts.all == [AccessRefused("reports", "tasks/get", shadow=False)]


async def test_a_strangers_task_is_unknown_before_any_rule_is_asked(store: Store) -> None:
    desk = Desk(store, ADMIN_ONLY)
    (task,) = await desk.add("alice", tool="delete_all")
    with pytest.raises(TaskNotFound):
        await desk.find(BOB, task.id)
    assert desk.facts.all == [TaskDenied("reports", "tasks/get")]


async def test_who_tries_too_many_ids_is_kept_from_all_tasks_for_a_while_and_nobody_else_is(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(store, threshold=1)
    (task,) = await desk.add("alice")
    for unknown in ("a", "b"):
        with pytest.raises(TaskNotFound):
            await desk.find(ALICE, unknown)
    assert desk.facts.all[1:] == [TaskDenied("reports", "tasks/get"), EnumerationSuspected("reports")]
    (line,) = [vars(record) for record in caplog.records if record.name == "taskgate.security"]
    assert (line["upstream"], line["address"]) == ("reports", "192.0.2.7")
    with pytest.raises(Penalized) as penalty:
        await desk.find(ALICE, task.id)
    assert penalty.value.retry_after == timedelta(minutes=5)
    with pytest.raises(Penalized):
        await desk.page(ALICE)
    assert await desk.pages(BOB) == [[]]
    desk.clock.advance(timedelta(minutes=5))
    assert await desk.find(ALICE, task.id) == task.id


async def test_where_callers_cannot_be_told_apart_nobody_is_kept_out(store: Store) -> None:
    desk = Desk(store)
    for number in range(100):
        with pytest.raises(TaskNotFound):
            await desk.find(ALICE, f"unknown-{number}")
    assert desk.facts.all == [TaskDenied("reports", "tasks/get")] * 100


# --- lists ---------------------------------------------------------------------------------------------------------


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
    made = [listed(record) for record in (*await desk.add("alice-new", new), *await desk.add("alice", old))]
    pages = await desk.pages(ROTATED, order=order)
    made.sort(key=lambda task: task.place(order.by), reverse=order.descending)
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
    lists: list[dict[str, Any]] = [{"where": where, "order": order} for where in (EVERY, since) for order in ORDERS]
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
    listing = AccessRule(name="l", methods=("tasks/list", "tools/call"), effect=Effect.DENY)
    desk = Desk(store, replace(ADMIN_ONLY, methods=("tasks/get",)), listing)
    await desk.add("alice", 100, tool="delete_all")
    older = new_record(owner=OwnerKey("alice", "reports"), created_at=EPOCH - timedelta(minutes=2))
    await store.insert(older, caps=())
    assert await desk.pages(ALICE) == [[], [older.id]]
    assert desk.facts.all == []
