"""Parameters of legacy hosts are prepared for a server, and read as task options and list filters."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain.listing import TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import TaskStatus
from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import Members
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import (
    MAX_TTL,
    TaskOptions,
    read_task_options,
)
from taskgate.protocol.legacy.listing import FILTER_CAPABILITY, MAX_VALUES, read_listing
from taskgate.protocol.messages import Request

# --- parameters -------------------------------------------------------------------------------------------------------


def request(params: str | None) -> Request:
    tail = "" if params is None else f' , "params" :  {params}'
    message = parse(f'{{ "jsonrpc":"2.0","id":1,"method":"m"{tail} }}'.encode(), max_depth=64)
    assert isinstance(message, Request)
    return message


def params_of(text: str) -> Members:
    return request(text).params


# --- what is read --------------------------------------------------------------------------------------------------


LONGEST = MAX_TTL // timedelta(milliseconds=1)
WISHES = {
    "none": ("{}", None),
    "no params": ("[]", None),
    "no ttl": ('{"task":{}}', TaskOptions(None)),
    "no ttl, other members": ('{"task":{"x":1}}', TaskOptions(None)),
    "a null ttl": ('{"task":{"ttl":null}}', TaskOptions(None)),
    "zero": ('{"task":{"ttl":0}}', TaskOptions(timedelta())),
    "minus zero": ('{"task":{"ttl":-0}}', TaskOptions(timedelta())),
    "a millisecond": ('{"task":{"ttl":1}}', TaskOptions(timedelta(milliseconds=1))),
    "a day": ('{"task":{"ttl":86400000}}', TaskOptions(timedelta(days=1))),
    "a little less than the longest": (
        f'{{"task":{{"ttl":{LONGEST - 1}}}}}',
        TaskOptions(MAX_TTL - timedelta(milliseconds=1)),
    ),
    "the longest": (f'{{"task":{{"ttl":{LONGEST}}}}}', TaskOptions(MAX_TTL)),
    "longer": (f'{{"task":{{"ttl":{LONGEST + 1}}}}}', TaskOptions(MAX_TTL)),
    "beyond any number": (f'{{"task":{{"ttl":{"9" * 4_000}}}}}', TaskOptions(MAX_TTL)),
}


@pytest.mark.parametrize(("text", "wish"), WISHES.values(), ids=WISHES)
def test_a_wish_for_a_task_is_read(text: str, wish: TaskOptions | None) -> None:
    assert read_task_options(params_of(text)) == wish


# --- filters of lists -------------------------------------------------------------------------------------------------


MICROSECOND, MILLISECOND = timedelta(microseconds=1), timedelta(milliseconds=1)


def read(params: dict[str, Any]) -> tuple[TaskFilter, TaskOrder]:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": params})
    request = parse(text.encode(), max_depth=64)
    assert isinstance(request, Request)
    return read_listing(request.params)


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


# --- lists of values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["methods", "taskIds", "status"])
def test_a_list_of_values_is_bounded(name: str) -> None:
    value = "tools/call" if name == "methods" else "working"
    where(**{name: [value] * MAX_VALUES})
    assert refusal(**{name: [value] * (MAX_VALUES + 1)}) == f"{name} must have at most 1000 values"


@pytest.mark.parametrize("ids", [[], ["a"], ["a", "b", "a"], ["x" * 5000], ["\ud800", ""]])
def test_ids_are_taken_as_they_are(ids: list[str]) -> None:
    assert where(taskIds=ids) == TaskFilter(ids=frozenset(ids))


STATUSES = {
    "working": {TaskState(TaskStatus.WORKING)},
    "input_required": {TaskState(TaskStatus.INPUT_REQUIRED)},
    "completed": {TaskState(TaskStatus.COMPLETED)},
    "failed": {TaskState(TaskStatus.FAILED), TaskState(TaskStatus.COMPLETED, True)},
    "cancelled": {TaskState(TaskStatus.CANCELLED)},
}


@given(st.lists(st.sampled_from(sorted(STATUSES))))
def test_statuses_add_up(words: list[str]) -> None:
    assert where(status=words).states == frozenset().union(*(STATUSES[word] for word in words))


# --- times ---------------------------------------------------------------------------------------------------------


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
