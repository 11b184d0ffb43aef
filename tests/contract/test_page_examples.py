"""Pages of tasks that nobody chose: any filter in any order, and lists that change between two pages."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.backends import Backend
from contract.pages import ORDERS, SECOND, in_order, page, walk
from helpers.examples import examples
from helpers.manual_clock import EPOCH
from helpers.records import after, keep, new_record
from taskgate.domain.events import Progressed
from taskgate.domain.listing import STATES, ListedTask, OrderBy, Position, TaskFilter, TaskOrder
from taskgate.stores.base import Store

times = st.integers(0, 6).map(lambda number: EPOCH + SECOND * number)
bounds = st.none() | times
rows = st.lists(st.tuples(times, st.integers(0, 5), st.sampled_from(STATES), st.sampled_from("abcd")), max_size=14)
wheres = st.builds(
    TaskFilter,
    ids=st.none() | st.frozensets(st.sampled_from([f"{letter}{number}" for letter in "abcd" for number in range(14)])),
    states=st.none() | st.frozensets(st.sampled_from(STATES)),
    created_after=bounds,
    created_before=bounds,
    updated_after=bounds,
    updated_before=bounds,
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
        )
        for number, (created, later, state, letter) in enumerate(rows)
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
    wanted = [task for task in in_order(records, order) if meets(task, where)]
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
