"""Filters of `tasks/list` as hosts write them: SEP-1904, by F-FILTER-* and AMB-5."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain.listing import ALL_TASKS, NEWEST_FIRST, OrderBy, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import TaskStatus
from taskgate.errors import InvalidParams
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.filters import FILTER_CAPABILITY, MAX_VALUES, listing_of
from taskgate.protocol.messages import Request

MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)
MICROSECOND, MILLISECOND = timedelta(microseconds=1), timedelta(milliseconds=1)


def read(params: dict[str, Any]) -> tuple[TaskFilter, TaskOrder]:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": params})
    request = parse(text.encode(), max_depth=64)
    assert isinstance(request, Request)
    return listing_of(request.params)


def where(**criteria: Any) -> TaskFilter:
    """What the criteria mean, the same in `filter` and beside it."""
    nested, order = read({"filter": criteria})
    assert read(criteria) == (nested, order)
    return nested


def refusal(**criteria: Any) -> str:
    texts = set()
    for params in ({"filter": criteria}, criteria):
        with pytest.raises(InvalidParams) as refused:
            read(params)
        texts.add(str(refused.value))
    (text,) = texts
    return text


def test_what_is_declared_is_what_can_be_asked_for() -> None:
    # F-FILTER-1.
    both = {"before": True, "after": True}
    assert json.loads(FILTER_CAPABILITY) == {
        "methods": ["tools/call"],
        "taskIds": True,
        "status": True,
        "createdAt": both,
        "lastUpdatedAt": both,
        "order": {"by": ["createdAt", "lastUpdatedAt"], "direction": ["asc", "desc"]},
    }


@pytest.mark.parametrize(
    "params", [{}, {"cursor": "c"}, {"filter": {}}, {"filter": {"tool": 7, "cursor": 8}}, {"unknown": [], "_meta": {}}]
)
def test_without_a_criterion_that_is_known_all_is_listed_newest_news_first(params: dict[str, Any]) -> None:
    # F-FILTER-3, F-FILTER-6.
    assert read(params) == (ALL_TASKS, NEWEST_FIRST) == (TaskFilter(), TaskOrder(by=OrderBy.UPDATED, descending=True))


@pytest.mark.parametrize("wrong", [None, [], "all", 7, True])
def test_a_filter_is_an_object(wrong: Any) -> None:
    with pytest.raises(InvalidParams, match=r"^filter must be an object$"):
        read({"filter": wrong})


def test_the_nested_criterion_wins_each_by_itself() -> None:
    # AMB-5.
    params = {"filter": {"taskIds": ["in"], "order": "asc"}, "taskIds": ["out"], "orderBy": "createdAt"}
    assert read(params) == (TaskFilter(ids=frozenset({"in"})), TaskOrder(by=OrderBy.CREATED, descending=False))


def test_a_criterion_that_is_nested_hides_a_wrong_one_beside_it() -> None:
    assert read({"filter": {"order": "asc"}, "order": 7})[1].descending is False


# --- lists of values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["methods", "taskIds", "status"])
@pytest.mark.parametrize("wrong", [None, "a", 7, {}, [7], ["working", None], [["working"]]])
def test_a_list_of_values_holds_strings(name: str, wrong: Any) -> None:
    assert refusal(**{name: wrong}) == f"{name} must be an array of strings"


@pytest.mark.parametrize("name", ["methods", "taskIds", "status"])
def test_a_list_of_values_is_bounded(name: str) -> None:
    value = "tools/call" if name == "methods" else "working"
    where(**{name: [value] * MAX_VALUES})
    assert refusal(**{name: [value] * (MAX_VALUES + 1)}) == f"{name} must have at most 1000 values"


@pytest.mark.parametrize("ids", [[], ["a"], ["a", "b", "a"], ["x" * 5000], ["\ud800", ""]])
def test_ids_are_taken_as_they_are(ids: list[str]) -> None:
    assert where(taskIds=ids) == TaskFilter(ids=frozenset(ids))


NONE: frozenset[TaskState] = frozenset()


@pytest.mark.parametrize(
    ("methods", "states"),
    [
        (["tools/call"], None),
        (["sampling/createMessage", "tools/call"], None),
        ([], NONE),
        (["sampling/createMessage"], NONE),
        (["Tools/call"], NONE),
    ],
)
def test_every_task_is_of_a_tools_call(methods: list[str], states: frozenset[TaskState] | None) -> None:
    assert where(methods=methods) == TaskFilter(states=states)
    assert where(methods=methods, status=["working"]).states == (
        frozenset({TaskState(TaskStatus.WORKING)}) if states is None else NONE
    )


STATUSES = {
    "working": {TaskState(TaskStatus.WORKING)},
    "input_required": {TaskState(TaskStatus.INPUT_REQUIRED)},
    "completed": {TaskState(TaskStatus.COMPLETED)},
    "failed": {TaskState(TaskStatus.FAILED), TaskState(TaskStatus.COMPLETED, True)},
    "cancelled": {TaskState(TaskStatus.CANCELLED)},
}


@pytest.mark.parametrize(("word", "states"), STATUSES.items())
def test_a_status_is_meant_as_hosts_see_it(word: str, states: set[TaskState]) -> None:
    # L-STAT-3: a tool's error is a failed task.
    assert where(status=[word]) == TaskFilter(states=frozenset(states))


@given(st.lists(st.sampled_from(sorted(STATUSES))))
def test_statuses_add_up(words: list[str]) -> None:
    assert where(status=words).states == frozenset().union(*(STATUSES[word] for word in words))


@pytest.mark.parametrize("words", [["running"], ["working", ""], ["Working"], ["tool_error"]])
def test_a_word_that_is_no_status_is_refused(words: list[str]) -> None:
    told = "status must hold only working, input_required, completed, failed, cancelled"
    assert refusal(status=words) == told


# --- times ---------------------------------------------------------------------------------------------------------

BOUNDS = {
    "createdAfter": "created_after",
    "createdBefore": "created_before",
    "lastUpdatedAfter": "updated_after",
    "lastUpdatedBefore": "updated_before",
}


@pytest.mark.parametrize(("name", "bound"), BOUNDS.items())
def test_each_bound_is_its_own(name: str, bound: str) -> None:
    found = where(**{name: "2026-01-31T12:00:00Z"})
    assert getattr(found, bound) is not None
    assert found == TaskFilter(**{bound: getattr(found, bound)})


WRITTEN = [
    ("2026-01-31T12:00:00Z", MOMENT, False),
    ("2026-01-31t12:00:00z", MOMENT, False),
    ("2026-01-31 12:00:00+00:00", MOMENT, False),
    ("2026-01-31T14:30:00+02:30", MOMENT, False),
    ("2026-01-31T14:30:00+0230", MOMENT, False),
    ("2026-01-30T23:00:00-13:00", MOMENT, False),
    ("2026-01-31T12:00:00.0Z", MOMENT, False),
    ("2026-01-31T12:00:00,25Z", MOMENT + 250 * MILLISECOND, False),
    ("2026-01-31T12:00:00.250000000Z", MOMENT + 250 * MILLISECOND, False),
    ("2026-01-31T12:00:00.25000000000000001Z", MOMENT + 250 * MILLISECOND, True),
    ("2026-01-31T12:00:00.999999Z", MOMENT + 999 * MILLISECOND, True),
]


@pytest.mark.parametrize(("text", "millisecond", "is_later"), WRITTEN, ids=[text for text, _, _ in WRITTEN])
def test_a_bound_is_of_the_milliseconds_that_hosts_see(text: str, millisecond: datetime, is_later: bool) -> None:
    # A task of 12:00:00.250999 is shown as .250: it is after .249 and not after .250, and before .251 and .2500001.
    assert where(createdAfter=text).created_after == millisecond + 999 * MICROSECOND
    assert where(createdBefore=text).created_before == millisecond + (MILLISECOND if is_later else timedelta())


@given(
    st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.integers(-1500, 1500),
)
def test_bounds_keep_to_what_a_task_is_shown_with(made: datetime, microseconds: int) -> None:
    bound = made + microseconds * MICROSECOND
    shown = made.replace(microsecond=made.microsecond // 1000 * 1000)
    found = where(createdAfter=bound.isoformat(), createdBefore=bound.isoformat())
    assert found.created_after is not None
    assert found.created_before is not None
    assert (made > found.created_after, made < found.created_before) == (shown > bound, shown < bound)


NO_TIMES: list[Any] = [
    None,
    7,
    1_769_860_800,
    [],
    "",
    "now",
    "2026-01-31",
    "12:00:00Z",
    "2026-01-31T12:00:00",
    "2026-01-31T12:00Z",
    "2026-01-31T12:00:00.Z",
    "2026-01-31T12:00:00+02",
    "2026-01-31T12:00:00+25:00",
    "2026-02-30T12:00:00Z",
    "2026-01-31T24:30:00Z",
    "2026-01-31T12:00:60Z",
    "2026-W05-6T12:00:00Z",
    "20260131T120000Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "9999-12-31T23:59:59.999Z",
    " 2026-01-31T12:00:00Z",
    "2026-01-31T12:00:00Z\n",
    "٢٠٢٦-01-31T12:00:00Z",
]


@pytest.mark.parametrize("wrong", NO_TIMES, ids=repr)
@pytest.mark.parametrize("name", BOUNDS)
def test_what_is_no_time_with_an_offset_is_refused(name: str, wrong: Any) -> None:
    assert refusal(**{name: wrong}) == f"{name} must be a time with its offset, like 2026-01-31T12:00:00Z"


# --- order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("by", "meant"), [("createdAt", OrderBy.CREATED), ("lastUpdatedAt", OrderBy.UPDATED)])
@pytest.mark.parametrize(("direction", "descending"), [("asc", False), ("desc", True)])
def test_a_list_is_ordered_as_it_is_asked(by: str, meant: OrderBy, direction: str, descending: bool) -> None:
    assert read({"filter": {"orderBy": by, "order": direction}}) == (
        ALL_TASKS,
        TaskOrder(by=meant, descending=descending),
    )


@pytest.mark.parametrize("wrong", [None, 7, [], {}, "", "ASC", "created_at", "status"])
def test_an_order_that_was_not_declared_is_refused(wrong: Any) -> None:
    assert refusal(orderBy=wrong) == "orderBy must be createdAt or lastUpdatedAt"
    assert refusal(order=wrong) == "order must be asc or desc"
