"""Parameters of legacy hosts are prepared for a server, and read as task options and list filters."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain.listing import ALL_TASKS, NEWEST_FIRST, OrderBy, TaskFilter, TaskOrder, TaskState
from taskgate.domain.record import TaskStatus
from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import Members
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import (
    MAX_TTL,
    TaskOptions,
    prepare_params,
    read_task_options,
    stored_params,
)
from taskgate.protocol.legacy.listing import FILTER_CAPABILITY, MAX_VALUES, read_cursor, read_listing
from taskgate.protocol.messages import Request

# --- parameters -------------------------------------------------------------------------------------------------------


RELATED = '"io.modelcontextprotocol/related-task"'
KEY = '"io.taskgate/idempotency-key"'


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


@pytest.mark.parametrize("task", ["null", "true", "[]", "1", '"x"'])
def test_a_task_that_is_no_object_is_refused(task: str) -> None:
    with pytest.raises(InvalidParams, match=r"^task must be an object$"):
        read_task_options(params_of(f'{{"task":{task}}}'))


@pytest.mark.parametrize("ttl", ["-1", "1.0", "1.5", "1e3", "true", "false", '"1"', "[]", "{}", "1e999"])
def test_a_ttl_that_is_no_count_of_milliseconds_is_refused(ttl: str) -> None:
    with pytest.raises(InvalidParams, match=r"^task\.ttl must be a whole number of milliseconds, zero or more$"):
        read_task_options(params_of(f'{{"task":{{"ttl":{ttl}}}}}'))


# --- what is passed on ---------------------------------------------------------------------------------------------


ODD = '{ "a":1e999, "a" : 123456789012345678901234567890, "é":"\\u00e9\\ud800\\/" ,\n"n":-0.0E+00,"task":{"ttl":1}}'
CUT: dict[str, tuple[str, str]] = {
    "nothing to cut": ("{}", "{}"),
    "spaces": ('{ "name" :\t"t" }', '{ "name" :\t"t" }'),
    "odd arguments": (f'{{"name":"t","arguments":{ODD}}}', f'{{"name":"t","arguments":{ODD}}}'),
    "the task": ('{"task":{}}', "{}"),
    "the task first": (f'{{"task":{{"ttl":1}}, "arguments":{ODD}}}', f'{{"arguments":{ODD}}}'),
    "the task last": (f'{{"arguments":{ODD} , "task":{{"ttl":1}}}}', f'{{"arguments":{ODD}}}'),
    "the task between": ('{"a":1,"task":null,"b":2}', '{"a":1,"b":2}'),
    "a task by another spelling": (r'{"a":1,"t\u0061sk":{}}', '{"a":1}'),
    "the relation": (f'{{"_meta":{{{RELATED}:{{"taskId":"x"}}}}}}', '{"_meta":{}}'),
    "the relation first": (f'{{"_meta":{{{RELATED}:1, "x" : 2}}}}', '{"_meta":{"x" : 2}}'),
    "the relation last": (f'{{"_meta":{{"x" : 2 ,{RELATED}:1}}}}', '{"_meta":{"x" : 2}}'),
    "task, then relation": (f'{{"task":{{}},"_meta":{{{RELATED}:1}},"a":1}}', '{"_meta":{},"a":1}'),
    "relation, then task": (f'{{"_meta":{{{RELATED}:1}},"task":{{}},"a":1}}', '{"_meta":{},"a":1}'),
    "the idempotency key": (f'{{"_meta":{{{KEY}:"k"}}}}', '{"_meta":{}}'),
    "key and relation": (f'{{"_meta":{{{KEY}:"k", "x" : 2,{RELATED}:1}},"a":1}}', '{"_meta":{"x" : 2},"a":1}'),
    "a key further down stays": (f'{{"arguments":{{{KEY}:"k"}}}}', f'{{"arguments":{{{KEY}:"k"}}}}'),
    "what begins as our keys do": (
        '{"_meta":{"io.taskgate/x":1, "io.taskgatex/a" : 2,"io.taskgate/gateway":{}}}',
        '{"_meta":{"io.taskgatex/a" : 2}}',
    ),
    "trace keys stay": (
        '{"_meta":{"traceparent": "00-1","x":{"task":1}}}',
        '{"_meta":{"traceparent": "00-1","x":{"task":1}}}',
    ),
}


@pytest.mark.parametrize(("text", "left"), CUT.values(), ids=CUT)
def test_only_what_is_meant_for_the_gateway_is_cut_out(text: str, left: str) -> None:
    ready = prepare_params(request(text))
    assert ready is not None
    assert (ready[0].with_token(9), ready[1]) == (left, None)
    assert stored_params(request(text)) == left
    assert ready[0].tail is None


def test_a_request_without_parameters_has_none_to_pass_on() -> None:
    assert prepare_params(request(None)) is None


@pytest.mark.parametrize("text", ["[]", "null", '"x"'])
def test_parameters_that_are_no_object_are_left_to_who_reads_them(text: str) -> None:
    ready = prepare_params(request(text))
    assert ready is not None
    assert ready[0].with_token(9) == stored_params(request(text)) == text


# The host's text, what a server gets with our token 9, what is kept.
TOKENS: dict[str, tuple[str, str, str]] = {
    "alone": ('{"_meta":{"progressToken":"p"}}', '{"_meta":{"progressToken":9}}', '{"_meta":{}}'),
    "spaced": (
        '{ "_meta" : { "progressToken" :\n"p" } }',
        '{ "_meta" : { "progressToken" :\n9 } }',
        '{ "_meta" : {  } }',
    ),
    "with all": (
        f'{{"task":{{}},"_meta":{{{RELATED}:1,"progressToken":"p","x":1}},"arguments":{ODD}}}',
        f'{{"_meta":{{"progressToken":9,"x":1}},"arguments":{ODD}}}',
        f'{{"_meta":{{"x":1}},"arguments":{ODD}}}',
    ),
    "with all, the other way round": (
        f'{{"arguments":{ODD},"_meta":{{"x":1,"progressToken":"p",{RELATED}:1}},"task":{{}}}}',
        f'{{"arguments":{ODD},"_meta":{{"x":1,"progressToken":9}}}}',
        f'{{"arguments":{ODD},"_meta":{{"x":1}}}}',
    ),
    "relation before": (
        f'{{"_meta":{{{RELATED}:1,"progressToken":"p"}}}}',
        '{"_meta":{"progressToken":9}}',
        '{"_meta":{}}',
    ),
    "key before": (
        f'{{"_meta":{{{KEY}:"k","progressToken":"p"}}}}',
        '{"_meta":{"progressToken":9}}',
        '{"_meta":{}}',
    ),
    "key after": (
        f'{{"_meta":{{"progressToken":"p", {KEY} : "k" ,{RELATED}:1,"x":1}}}}',
        '{"_meta":{"progressToken":9,"x":1}}',
        '{"_meta":{"x":1}}',
    ),
    "relation after": (
        f'{{"_meta":{{"progressToken":"p",{RELATED}:1}}}}',
        '{"_meta":{"progressToken":9}}',
        '{"_meta":{}}',
    ),
}


@pytest.mark.parametrize(("text", "sent", "left"), TOKENS.values(), ids=TOKENS)
def test_the_token_of_the_host_gives_way_to_ours_and_is_not_kept(text: str, sent: str, left: str) -> None:
    ready = prepare_params(request(text))
    assert ready is not None
    assert (ready[0].with_token(9), ready[1]) == (sent, "p")
    assert stored_params(request(text)) == left
    assert ready[0].tail is not None


@pytest.mark.parametrize(("token", "value"), [("0", 0), ("-7", -7), (r'"\u00e9"', "é"), ('""', "")])
def test_a_token_is_a_string_or_an_integer(token: str, value: str | int) -> None:
    ready = prepare_params(request(f'{{"_meta":{{"progressToken":{token}}}}}'))
    assert ready is not None
    assert ready[1] == value


@pytest.mark.parametrize("token", ["null", "true", "1.0", "1.5", "[]", "{}", "9" * 20, f'"{"x" * 257}"', r'"\ud800"'])
def test_any_other_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidParams, match=r"^The progress token must be a string or an integer$"):
        prepare_params(request(f'{{"_meta":{{"progressToken":{token}}}}}'))


@pytest.mark.parametrize("meta", ["null", "[]", "1", '"x"'])
def test_a_meta_that_is_no_object_is_refused(meta: str) -> None:
    with pytest.raises(InvalidParams, match=r"^_meta must be an object$"):
        prepare_params(request(f'{{"_meta":{meta}}}'))


@pytest.mark.parametrize(
    ("params", "cursor"), [(None, None), ("{}", None), ('{"cursor":""}', ""), ('{"cursor":"\\u00e9"}', "é")]
)
def test_a_page_begins_at_the_cursor_or_at_the_beginning(params: str | None, cursor: str | None) -> None:
    # L-LIST-1: an empty text is a cursor.
    assert read_cursor(params_of(params) if params else {}) == cursor


@pytest.mark.parametrize("cursor", ["null", "7", "true", "[]", '{"a":1}'])
def test_a_cursor_that_is_no_text_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidParams, match=r"^The cursor must be a string$"):
        read_cursor(params_of(f'{{"cursor":{cursor}}}'))


# --- filters of lists -------------------------------------------------------------------------------------------------


MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)
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
