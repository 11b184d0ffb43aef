"""Lists: what one tells of a task, how several become one page, and how a list is told from any other."""

from dataclasses import replace
from datetime import timedelta, timezone
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.manual_clock import EPOCH
from helpers.records import new_call, new_record
from taskgate.domain.listing import (
    ALL_TASKS,
    NEWEST_FIRST,
    STATES,
    ListedTask,
    OrderBy,
    Page,
    Position,
    TaskFilter,
    TaskOrder,
    TaskState,
    fingerprint,
    listed_task,
    merge_pages,
    with_grown_ttls,
)
from taskgate.domain.record import TaskStatus

SECOND = timedelta(seconds=1)
ORDERS = [TaskOrder(by=by, descending=descending) for by, descending in product(OrderBy, (True, False))]


def test_a_list_tells_of_a_record_what_it_says_under_the_same_names() -> None:
    record = new_record(
        call=new_call(tool="t"), status=TaskStatus.COMPLETED, status_message="m", updated_at=EPOCH + SECOND
    )
    task = listed_task(replace(record, tool_error=True, poll_interval=5 * SECOND))
    assert (task.tool, task.tool_error, task.poll_interval) == ("t", True, 5 * SECOND)
    for name in ("id", "status", "status_message", "created_at", "updated_at", "ttl"):
        assert getattr(task, name) == getattr(record, name)


def test_a_list_shows_the_grown_time_to_live_of_what_has_not_ended() -> None:
    hour, most = timedelta(hours=1), EPOCH + timedelta(hours=24)
    running = listed_task(new_record(expires_at=most))
    ended = listed_task(new_record(status=TaskStatus.FAILED))
    assert with_grown_ttls((running, ended), EPOCH + hour / 2) == (running, ended)
    assert with_grown_ttls((running, ended), EPOCH + hour) == (running._replace(ttl=1.5 * hour), ended)
    assert with_grown_ttls((running,), most)[0].ttl == 24 * hour


def test_a_task_stands_where_the_time_says_that_is_ordered_by() -> None:
    task = listed_task(new_record(id="a", updated_at=EPOCH + SECOND))
    assert task.position(OrderBy.CREATED) == Position(EPOCH, "a")
    assert task.position(OrderBy.UPDATED) == Position(EPOCH + SECOND, "a")


def test_every_state_is_named_once() -> None:
    assert len(set(STATES)) == len(STATES) == len(TaskStatus) + 1
    assert {state.status for state in STATES} == set(TaskStatus)


# --- pages of several lists -------------------------------------------------------------------------------------------


def made(id: str, second: int) -> ListedTask:
    return listed_task(new_record(id=id, created_at=EPOCH + SECOND * second, updated_at=EPOCH - SECOND * second))


def one_page(tasks: list[ListedTask], order: TaskOrder, after: Position | None, limit: int) -> Page:
    """What a store answers."""
    tasks = sorted(tasks, key=lambda task: task.position(order.by), reverse=order.descending)
    if after is not None:
        tasks = [
            task
            for task in tasks
            if (task.position(order.by) < after if order.descending else task.position(order.by) > after)
        ]
    more = len(tasks) > limit
    return Page(tasks=tuple(tasks[:limit]), next=tasks[limit - 1].position(order.by) if more else None)


@given(
    seconds=st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=3),
    limit=st.integers(1, 4),
    order=st.sampled_from(ORDERS),
)
def test_merged_pages_go_through_every_list_in_one_order_each_task_once(
    seconds: list[list[int]], limit: int, order: TaskOrder
) -> None:
    lists = [
        [made(f"{(at * 7 + of) % 5}-{of}-{at}", second) for at, second in enumerate(own)]
        for of, own in enumerate(seconds)
    ]
    found, after = list[ListedTask](), None
    for _ in range(99):
        page = merge_pages([one_page(tasks, order, after, limit) for tasks in lists], order, limit)
        assert len(page.tasks) <= limit
        found += page.tasks
        after = page.next
        if after is None:
            break
        assert len(page.tasks) == limit
    assert found == list(one_page([task for tasks in lists for task in tasks], order, None, 999).tasks)
    assert after is None


UP = TaskOrder(by=OrderBy.CREATED, descending=False)


@pytest.mark.parametrize("order", [UP, replace(UP, descending=True)], ids=["up", "down"])
def test_where_some_cannot_be_read_a_list_is_known_only_up_to_its_end(order: TaskOrder) -> None:
    # The first list has unreadable tasks before its end, and may have readable ones behind it.
    sign = -1 if order.descending else 1
    first, second = made("a", sign), [made("b", 2 * sign), made("c", 5 * sign), made("d", 6 * sign)]
    end = Position(EPOCH + SECOND * 4 * sign, "x")
    page = merge_pages([Page(tasks=(first,), next=end), Page(tasks=tuple(second), next=None)], order, 3)
    assert page == Page(tasks=(first, second[0]), next=end)


def test_the_nearest_end_is_as_far_as_all_lists_are_known() -> None:
    ends = [Position(EPOCH + SECOND * number, "") for number in (3, 5)]
    pages = [Page(tasks=(), next=end) for end in ends]
    assert merge_pages(pages, UP, 9).next == ends[0]
    assert merge_pages(pages, replace(UP, descending=True), 9).next == ends[1]


def test_one_page_is_itself() -> None:
    page = Page(tasks=(made("a", 1),), next=Position(EPOCH, "a"))
    assert merge_pages([page], UP, 9) is page


# --- which list -------------------------------------------------------------------------------------------------------

WORKING, FAILED = TaskState(TaskStatus.WORKING), TaskState(TaskStatus.FAILED)
LISTS: list[tuple[dict[str, Any], TaskOrder]] = [
    *(({}, order) for order in ORDERS),
    *(({name: EPOCH}, NEWEST_FIRST) for name in ("created_after", "created_before", "updated_after", "updated_before")),
    ({"created_after": EPOCH + timedelta(microseconds=1)}, NEWEST_FIRST),
    *(({"ids": frozenset(ids)}, NEWEST_FIRST) for ids in ((), ("a",), ("a", "b"), ("ab",), ("a, b",), ("\ud800",))),
    *(({"states": frozenset(states)}, NEWEST_FIRST) for states in ((), (WORKING,), (WORKING, FAILED), STATES)),
    ({"states": frozenset({TaskState(TaskStatus.COMPLETED)})}, NEWEST_FIRST),
    ({"states": frozenset({TaskState(TaskStatus.COMPLETED, True)})}, NEWEST_FIRST),
    ({"unfetched": True}, NEWEST_FIRST),
    ({"unfetched": True, "ids": frozenset("a")}, NEWEST_FIRST),
]


def test_no_two_lists_have_one_mark() -> None:
    marks = [fingerprint(TaskFilter(**where), order) for where, order in LISTS]
    assert all(one != other for one, other in combinations(marks, 2))


def test_the_same_list_has_the_same_mark_however_it_was_said() -> None:
    elsewhere = EPOCH.astimezone(timezone(timedelta(hours=2)))
    one = TaskFilter(ids=frozenset("abcdefgh"), states=frozenset(STATES), created_after=EPOCH)
    other = TaskFilter(ids=frozenset("hgfedcba"), states=frozenset(reversed(STATES)), created_after=elsewhere)
    assert fingerprint(one, NEWEST_FIRST) == fingerprint(other, NEWEST_FIRST)


def test_the_usual_list_has_no_mark_and_any_other_a_short_one_that_tells_nothing() -> None:
    assert fingerprint(ALL_TASKS, NEWEST_FIRST) == ""
    text = fingerprint(TaskFilter(ids=frozenset({"secret"} | {str(number) for number in range(1000)})), NEWEST_FIRST)
    assert len(text) == 64
    assert "secret" not in text
