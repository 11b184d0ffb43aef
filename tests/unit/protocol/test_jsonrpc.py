"""One message is judged once and strictly, and what is refused says whose id it had."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import messages, written
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.protocol.envelope import Message, Notification, Request, Response
from taskgate.protocol.jsonrpc import MAX_ID_BYTES, is_id, parse

DEPTH = 300


def read(text: str) -> Message:
    return parse(text.encode(), max_depth=DEPTH)


def refusal(text: str) -> MalformedMessage:
    with pytest.raises(MalformedMessage) as refused:
        read(text)
    return refused.value


@pytest.mark.parametrize("params", ['"Name":"x"', '"_meta":{"PROGRESSTOKEN":1}', '"task":{"tTl":1}'])
def test_a_key_that_some_readers_take_for_another_is_refused_with_the_id(params: str) -> None:
    assert refusal(f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{params}}}}}').id == 7


# --- what passes ---------------------------------------------------------------------------------------------------


def test_a_request_is_kept_as_its_text_with_the_places_of_its_parameters() -> None:
    text = (
        ' {"method": "tools/call", "params" : {"name": "x", "_meta": {"progressToken": 1}}, "id": 7, "jsonrpc": "2.0"} '
    )
    message = read(text)
    assert isinstance(message, Request)
    assert (message.id, message.method, message.text) == (7, "tools/call", text)
    assert message.params_text == '{"name": "x", "_meta": {"progressToken": 1}}'
    assert text[message.params_at :].startswith(message.params_text)
    assert message.params["name"].value == "x"
    assert message.params["_meta"].members is not None
    assert message.params["_meta"].members["progressToken"].value == 1


def test_a_request_without_parameters_has_none() -> None:
    message = read('{"jsonrpc":"2.0","id":"a","method":"ping"}')
    assert isinstance(message, Request)
    assert (message.params, message.params_text, message.params_at) == ({}, "", 0)


@pytest.mark.parametrize("params", ["[1]", "null", '"x"', "7", "false"])
def test_parameters_that_are_no_object_are_left_to_the_caller(params: str) -> None:
    request = read(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}')
    assert isinstance(request, Request)
    assert (request.params, request.params_text) == ({}, params)
    assert request.text[request.params_at :] == params + "}"
    notification = read(f'{{"jsonrpc":"2.0","method":"m","params":{params}}}')
    assert isinstance(notification, Notification)
    assert (notification.params, notification.params_text) == ({}, params)


def test_a_call_without_an_id_is_a_notification() -> None:
    text = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.5}}'
    message = read(text)
    assert isinstance(message, Notification)
    assert (message.method, message.text, message.params_text) == (
        "notifications/progress",
        text,
        '{"progress":0.5}',
    )
    assert message.params["progress"].value == 0.5


def test_a_notification_without_parameters_has_none() -> None:
    message = read('{"jsonrpc":"2.0","method":"m"}')
    assert isinstance(message, Notification)
    assert (message.params, message.params_text) == ({}, "")


def test_a_response_has_a_result_or_an_error() -> None:
    good = read('{"jsonrpc":"2.0","id":1,"result":{"_meta":{"k":1},"content":[]}}')
    assert isinstance(good, Response)
    assert good.result is not None
    assert good.error is None
    assert good.result.members is not None
    assert good.result.members["_meta"].members is not None
    bad = read('{"jsonrpc":"2.0","id":"b","error":{"code":-32000,"message":"no","data":[1]}}')
    assert isinstance(bad, Response)
    assert bad.result is None
    assert bad.error is not None
    assert bad.error.value == {"code": -32000, "message": "no", "data": [1]}


@pytest.mark.parametrize("result", ["null", "[]", '"text"', "0", "true", "{}"])
def test_a_result_may_be_any_value(result: str) -> None:
    message = read(f'{{"jsonrpc":"2.0","id":1,"result":{result}}}')
    assert isinstance(message, Response)
    assert message.result is not None
    assert message.text[message.result.start : message.result.end] == result


def test_unknown_members_pass() -> None:
    message = read('{"jsonrpc":"2.0","id":1,"method":"m","x":[1],"y":{}}')
    assert isinstance(message, Request)


def test_only_the_shape_that_is_asked_for_is_walked() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"x":1},"_meta":{"x":1}}}'
    message = parse(body, max_depth=DEPTH, shape={"params": {"arguments": {}}})
    assert isinstance(message, Request)
    assert message.params["arguments"].members is not None
    assert message.params["_meta"].members is None


@given(messages())
def test_every_message_is_read_as_the_standard_parser_reads_it(text: str) -> None:
    message = read(text)
    tree = dict(written(text))
    assert message.text == text
    if isinstance(message, Response):
        start, end = message.id_span
        assert json.loads(text[start:end]) == message.id == tree["id"]
        assert (message.result is None, message.error is None) == ("result" not in tree, "error" not in tree)
    else:
        assert message.method == tree["method"]
        assert isinstance(message, Request) is ("id" in tree)
        assert ("params" in tree) is bool(message.params_text)
        if message.params_text:
            assert written(message.params_text) == tree["params"]
    if isinstance(message, Request):
        assert message.id == tree["id"]
        assert text[message.params_at :].startswith(message.params_text)


# --- what is no JSON-RPC -------------------------------------------------------------------------------------------

# Each with the id that its refusal tells.
MALFORMED: dict[str, tuple[str, str | int | None]] = {
    "an array": ("[]", None),
    "a batch": ('[{"jsonrpc":"2.0","id":1,"method":"m"}]', None),
    "a string": ('"2.0"', None),
    "a number": ("7", None),
    "null": ("null", None),
    "true": ("true", None),
    "an empty object": ("{}", None),
    "no version": ('{"id":1,"method":"m"}', 1),
    "version 1.0": ('{"jsonrpc":"1.0","id":1,"method":"m"}', 1),
    "a number for a version": ('{"jsonrpc":2.0,"id":"a","method":"m"}', "a"),
    "a version in an array": ('{"jsonrpc":["2.0"],"id":1,"method":"m"}', 1),
    "neither method nor result": ('{"jsonrpc":"2.0","id":1}', 1),
    "a version alone": ('{"jsonrpc":"2.0"}', None),
    "a number for a method": ('{"jsonrpc":"2.0","id":1,"method":7}', 1),
    "null for a method": ('{"jsonrpc":"2.0","id":1,"method":null}', 1),
    "a notification with a number for a method": ('{"jsonrpc":"2.0","method":7}', None),
    "an object for a method": ('{"jsonrpc":"2.0","id":1,"method":{}}', 1),
    "a lone surrogate in the method": (r'{"jsonrpc":"2.0","id":1,"method":"\ud800"}', 1),
    "a call with a result": ('{"jsonrpc":"2.0","id":1,"method":"m","result":{}}', 1),
    "a call with an error": ('{"jsonrpc":"2.0","id":1,"method":"m","error":{"code":1,"message":""}}', 1),
    "a notification with a result": ('{"jsonrpc":"2.0","method":"m","result":{}}', None),
    "a result and an error": ('{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}', 1),
    "a result without an id": ('{"jsonrpc":"2.0","result":{}}', None),
    "an error without an id": ('{"jsonrpc":"2.0","error":{"code":1,"message":""}}', None),
    "a string for an error": ('{"jsonrpc":"2.0","id":1,"error":"no"}', 1),
    "null for an error": ('{"jsonrpc":"2.0","id":1,"error":null}', 1),
    "an error in an array": ('{"jsonrpc":"2.0","id":1,"error":[{"code":1,"message":""}]}', 1),
    "an error without a code": ('{"jsonrpc":"2.0","id":1,"error":{"message":""}}', 1),
    "an error with a fraction for a code": ('{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}', 1),
    "an error with true for a code": ('{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":""}}', 1),
    "an error with a string for a code": ('{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}', 1),
    "an error without a message": ('{"jsonrpc":"2.0","id":1,"error":{"code":1}}', 1),
    "an error with null for a message": ('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":null}}', 1),
}


@pytest.mark.parametrize(("text", "id"), MALFORMED.values(), ids=MALFORMED)
def test_json_that_is_not_one_message_is_malformed_and_tells_its_id(text: str, id: str | int | None) -> None:
    refused = refusal(text)
    assert refused.id == id
    assert type(refused.id) is type(id)


WRONG_IDS = {
    "null": "null",
    "true": "true",
    "false": "false",
    "a fraction": "1.5",
    "a whole fraction": "1.0",
    "an exponent": "1e2",
    "beyond a float": "1e999",
    "an array": "[1]",
    "an object": '{"id":1}',
    "2 ** 63": str(2**63),
    "-(2 ** 63)": str(-(2**63)),
    "a hundred digits": "9" * 100,
    "a byte too long": json.dumps("x" * (MAX_ID_BYTES + 1)),
    "a byte too long in UTF-8": json.dumps("x" + "é" * (MAX_ID_BYTES // 2), ensure_ascii=False),
    "a lone surrogate": r'"\ud800"',
    "a pair the wrong way round": r'"\ude00\ud83d"',
}
FRAMES = {
    "request": '{"jsonrpc":"2.0","id":%s,"method":"m"}',
    "result": '{"jsonrpc":"2.0","id":%s,"result":{}}',
    "error": '{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"m"}}',
    "wrong version": '{"jsonrpc":"1.0","id":%s,"method":"m"}',
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("id", WRONG_IDS.values(), ids=WRONG_IDS)
def test_a_wrong_id_is_refused_and_never_repeated(id: str, frame: str) -> None:
    assert refusal(frame % id).id is None


@pytest.mark.parametrize(
    "id",
    ["0", "-1", '""', str(2**63 - 1), str(1 - 2**63), json.dumps("x" * MAX_ID_BYTES), r'"\ud83d\ude00"', '"1"'],
    ids=["zero", "negative", "empty", "highest", "lowest", "longest", "escaped pair", "digits"],
)
def test_a_string_or_an_integer_of_bounded_size_is_an_id(id: str) -> None:
    message = read(FRAMES["request"] % id)
    assert isinstance(message, Request)
    assert message.id == json.loads(id)
    assert type(message.id) is type(json.loads(id))


@pytest.mark.parametrize("value", [None, True, False, 1.0, [], {}, b"1", 2**63, -(2**63), "\ud800", "é" * 129])
def test_other_values_are_no_ids(value: Any) -> None:
    assert not is_id(value)


@given(st.integers(1 - 2**63, 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"]), max_size=64))
def test_every_bounded_string_and_integer_may_be_an_id(value: str | int) -> None:
    assert is_id(value)


# --- what is no JSON -----------------------------------------------------------------------------------------------

UNPARSABLE: dict[str, bytes] = {
    "nothing": b"",
    "a word": b"hello",
    "NaN for an id": b'{"jsonrpc":"2.0","id":NaN,"method":"m"}',
    "NaN below": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"x":[NaN]}}}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"result":-Infinity}',
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16"),
    "bad UTF-8 in the id": b'{"jsonrpc":"2.0","id":"\xff","method":"m"}',
    "a surrogate in UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
    "5,000 digits for an id": b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"m"}',
    "too deep": b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "far too deep": b'{"params":' + b"[" * 200_000,
    "cut off": b'{"jsonrpc":"2.0","id":1,"method":"m"',
    "two messages": b'{"jsonrpc":"2.0","id":1,"method":"m"}{}',
    "a repeated key before a syntax error": b'{"jsonrpc":"2.0","id":1,"id":2,"method":m}',
    "a repeated key and more behind": b'{"jsonrpc":"2.0","id":1,"method":"m","method":"m"}]',
}


@pytest.mark.parametrize("body", UNPARSABLE.values(), ids=UNPARSABLE)
def test_what_is_no_json_is_unparsable(body: bytes) -> None:
    with pytest.raises(UnparsableMessage):
        parse(body, max_depth=DEPTH)


def test_the_depth_is_that_of_the_whole_body() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[[]]}}'
    parse(body, max_depth=4)
    with pytest.raises(UnparsableMessage):
        parse(body, max_depth=3)


def test_what_counts_as_too_much_of_a_host_is_read_of_a_server() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{"content":[' + b"[]," * 100_000 + b"0]}}"
    assert isinstance(parse(body, max_depth=9), Response)
    with pytest.raises(UnparsableMessage, match="too many arrays and objects"):
        parse(body, max_depth=9, max_members=4096)


@pytest.mark.parametrize("count", [2000, 5000])
def test_too_many_members_are_refused_under_the_id_where_it_can_be_told(count: int) -> None:
    members = ",".join(f'"k{number}":1' for number in range(count))
    with pytest.raises(MalformedMessage, match="more than 1000 members") as refused:
        parse(f'{{"jsonrpc":"2.0","id":7,"method":"m","params":{{{members}}}}}'.encode(), max_depth=9, max_members=1000)
    assert refused.value.id == 7
    with pytest.raises(MalformedMessage, match="more than 1000 members") as refused:
        parse(f'{{"jsonrpc":"2.0","id":7,"method":"m",{members}}}'.encode(), max_depth=9, max_members=1000)
    assert refused.value.id == (7 if count < 4096 else None)
