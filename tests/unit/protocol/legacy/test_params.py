"""What a host says is checked where the gateway needs it, and otherwise passed on as it was written."""

from datetime import timedelta

import pytest

from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import Members
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.params import MAX_TTL, TaskWish, cursor_of, kept, passage, task_wish
from taskgate.protocol.messages import Request

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
    "no ttl": ('{"task":{}}', TaskWish(None)),
    "no ttl, other members": ('{"task":{"x":1}}', TaskWish(None)),
    "a null ttl": ('{"task":{"ttl":null}}', TaskWish(None)),
    "zero": ('{"task":{"ttl":0}}', TaskWish(timedelta())),
    "minus zero": ('{"task":{"ttl":-0}}', TaskWish(timedelta())),
    "a millisecond": ('{"task":{"ttl":1}}', TaskWish(timedelta(milliseconds=1))),
    "a day": ('{"task":{"ttl":86400000}}', TaskWish(timedelta(days=1))),
    "a little less than the longest": (
        f'{{"task":{{"ttl":{LONGEST - 1}}}}}',
        TaskWish(MAX_TTL - timedelta(milliseconds=1)),
    ),
    "the longest": (f'{{"task":{{"ttl":{LONGEST}}}}}', TaskWish(MAX_TTL)),
    "longer": (f'{{"task":{{"ttl":{LONGEST + 1}}}}}', TaskWish(MAX_TTL)),
    "beyond any number": (f'{{"task":{{"ttl":{"9" * 4_000}}}}}', TaskWish(MAX_TTL)),
}


@pytest.mark.parametrize(("text", "wish"), WISHES.values(), ids=WISHES)
def test_a_wish_for_a_task_is_read(text: str, wish: TaskWish | None) -> None:
    assert task_wish(params_of(text)) == wish


@pytest.mark.parametrize("task", ["null", "true", "[]", "1", '"x"'])
def test_a_task_that_is_no_object_is_refused(task: str) -> None:
    with pytest.raises(InvalidParams, match=r"^task must be an object$"):
        task_wish(params_of(f'{{"task":{task}}}'))


@pytest.mark.parametrize("ttl", ["-1", "1.0", "1.5", "1e3", "true", "false", '"1"', "[]", "{}", "1e999"])
def test_a_ttl_that_is_no_count_of_milliseconds_is_refused(ttl: str) -> None:
    with pytest.raises(InvalidParams, match=r"^task\.ttl must be a whole number of milliseconds, zero or more$"):
        task_wish(params_of(f'{{"task":{{"ttl":{ttl}}}}}'))


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
    ready = passage(request(text))
    assert ready is not None
    assert (ready.params.with_token(9), ready.token) == (left, None)
    assert kept(request(text)) == left
    assert ready.params.tail is None


def test_a_request_without_parameters_has_none_to_pass_on() -> None:
    assert passage(request(None)) is None


@pytest.mark.parametrize("text", ["[]", "null", '"x"'])
def test_parameters_that_are_no_object_are_left_to_who_reads_them(text: str) -> None:
    ready = passage(request(text))
    assert ready is not None
    assert ready.params.with_token(9) == kept(request(text)) == text


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
    ready = passage(request(text))
    assert ready is not None
    assert (ready.params.with_token(9), ready.token) == (sent, "p")
    assert kept(request(text)) == left
    assert ready.params.tail is not None


@pytest.mark.parametrize(("token", "value"), [("0", 0), ("-7", -7), (r'"\u00e9"', "é"), ('""', "")])
def test_a_token_is_a_string_or_an_integer(token: str, value: str | int) -> None:
    ready = passage(request(f'{{"_meta":{{"progressToken":{token}}}}}'))
    assert ready is not None
    assert ready.token == value


@pytest.mark.parametrize("token", ["null", "true", "1.0", "1.5", "[]", "{}", "9" * 20, f'"{"x" * 257}"', r'"\ud800"'])
def test_any_other_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidParams, match=r"^The progress token must be a string or an integer$"):
        passage(request(f'{{"_meta":{{"progressToken":{token}}}}}'))


@pytest.mark.parametrize("meta", ["null", "[]", "1", '"x"'])
def test_a_meta_that_is_no_object_is_refused(meta: str) -> None:
    with pytest.raises(InvalidParams, match=r"^_meta must be an object$"):
        passage(request(f'{{"_meta":{meta}}}'))


@pytest.mark.parametrize(
    ("params", "cursor"), [(None, None), ("{}", None), ('{"cursor":""}', ""), ('{"cursor":"\\u00e9"}', "é")]
)
def test_a_page_begins_at_the_cursor_or_at_the_beginning(params: str | None, cursor: str | None) -> None:
    # L-LIST-1: an empty text is a cursor.
    assert cursor_of(params_of(params) if params else {}) == cursor


@pytest.mark.parametrize("cursor", ["null", "7", "true", "[]", '{"a":1}'])
def test_a_cursor_that_is_no_text_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidParams, match=r"^The cursor must be a string$"):
        cursor_of(params_of(f'{{"cursor":{cursor}}}'))
