"""JSON-RPC messages are read strictly and written without a change of what the peers wrote."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.json_texts import messages, objects, texts, written
from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.edits import dump
from taskgate.protocol.jsonrpc import (
    ENVELOPE_NAMES,
    MAX_ID_BYTES,
    META_NAMES,
    PARAMS_NAMES,
    TASK_NAMES,
    error_text,
    fold,
    is_id,
    notification_text,
    parse,
    refuse_lookalikes,
    request_text,
    result_text,
    split_batch,
    timestamp,
    timestamp_of,
    with_id,
)
from taskgate.protocol.messages import Message, Notification, Request, Response
from taskgate.protocol.vocabulary import CLIENT_CAPABILITIES, IDEMPOTENCY_KEY, PROTOCOL_VERSION

DAY = timedelta(hours=23)

# --- times ------------------------------------------------------------------------------------------------------------

MOMENTS = st.datetimes(
    datetime(1, 1, 3),  # noqa: DTZ001
    datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.timedeltas(-DAY, DAY).map(timezone),
)


@given(MOMENTS)
@example(datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC))
@example(datetime(2026, 11, 27, 9, 5, 7, 1_999, UTC))
def test_a_time_is_written_in_utc_and_cut_to_the_millisecond(moment: datetime) -> None:
    written_by_library = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    since_1970 = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert timestamp(moment) == timestamp_of(since_1970) == written_by_library


# --- reading ----------------------------------------------------------------------------------------------------------


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


# --- writing ----------------------------------------------------------------------------------------------------------


letters = st.characters(exclude_categories=["Cs"])
ids = st.integers(1 - 2**63, 2**63 - 1) | st.text(letters, max_size=64)
methods = st.text(letters, max_size=20)
results = objects(texts.filter(lambda text: not text.startswith("{")), repeats=False)


def response(text: str) -> Response:
    message = parse(text.encode(), max_depth=DEPTH)
    assert isinstance(message, Response)
    return message


# --- repeated keys -------------------------------------------------------------------------------------------------

# Each with the id that its refusal tells: the id where it stands once and is one, wherever the repeated key stands.
REPEATED: dict[str, tuple[str, RequestId | None]] = {
    "version": ('{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}', 1),
    "method": ('{"jsonrpc":"2.0","method":"a","method":"b","id":"x"}', "x"),
    "method, escaped": (r'{"jsonrpc":"2.0","id":1,"method":"a","\u006dethod":"b"}', 1),
    "params": ('{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}', 1),
    "result": ('{"jsonrpc":"2.0","id":1,"result":{},"result":{}}', 1),
    "error": ('{"jsonrpc":"2.0","id":1,"error":{},"error":{"code":1,"message":""}}', 1),
    "an unknown member": ('{"jsonrpc":"2.0","id":1,"method":"m","x":1,"x":1}', 1),
    "id": ('{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', None),
    "id, the same": ('{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}', None),
    "id, escaped": (r'{"jsonrpc":"2.0","id":1,"\u0069d":1,"method":"m"}', None),
    "id, behind another": ('{"jsonrpc":"2.0","x":1,"x":1,"id":1,"id":2,"method":"m"}', None),
    "in params": ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","name":"b"}}', 1),
    "in params, before the id": ('{"params":{"name":"a","name":"b"},"method":"m","id":-5,"jsonrpc":"2.0"}', -5),
    "in _meta": ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"k":1,"k":1}}}', 1),
    "in task": ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"task":{"ttl":1,"ttl":2}}}', 1),
    "of task": ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"task":{},"task":{}}}', 1),
    "in a result": ('{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}', 1),
    "in the _meta of a result": ('{"jsonrpc":"2.0","id":1,"result":{"_meta":{"a":1,"a":2}}}', 1),
    "in an error": ('{"jsonrpc":"2.0","id":1,"error":{"code":1,"code":2,"message":""}}', 1),
    "with an id that is none": ('{"jsonrpc":"2.0","id":true,"method":"m","method":"m"}', None),
    "with a fraction for an id": ('{"jsonrpc":"2.0","id":1.5,"method":"m","method":"m"}', None),
    "with an id in params": ('{"jsonrpc":"2.0","method":"m","params":{"id":1,"id":1}}', None),
    "in a notification": ('{"jsonrpc":"2.0","method":"m","method":"m"}', None),
}


@pytest.mark.parametrize(("text", "id"), REPEATED.values(), ids=REPEATED)
def test_a_key_that_stands_twice_where_it_matters_is_malformed(text: str, id: RequestId | None) -> None:
    with pytest.raises(MalformedMessage) as refused:
        parse(text.encode(), max_depth=DEPTH)
    assert refused.value.id == id


@pytest.mark.parametrize(
    "params",
    ['{"arguments":{"x":1,"x":2}}', '{"x":[{"y":1,"y":1}]}', '{"_meta":{"k":{"x":1,"x":1}}}', '[{"x":1,"x":1}]'],
)
def test_a_key_that_stands_twice_elsewhere_is_the_servers_to_judge(params: str) -> None:
    message = parse(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}'.encode(), max_depth=DEPTH)
    assert isinstance(message, Request)
    assert message.params_text == params


# --- another id ----------------------------------------------------------------------------------------------------


@given(messages().filter(lambda text: '"method"' not in text), ids)
def test_any_response_under_another_id_keeps_every_other_byte(text: str, id: RequestId) -> None:
    before = response(text)
    after = with_id(before, id)
    start, end = before.id_span
    assert after.startswith(text[:start])
    assert after.endswith(text[end:])
    again = response(after)
    assert again.id == id
    assert with_id(again, before.id) == text[:start] + dump(before.id) + text[end:]


# --- writing -------------------------------------------------------------------------------------------------------


@given(ids, results)
def test_a_result_reads_back_and_is_not_touched(id: RequestId, result: str) -> None:
    message = response(result_text(id, result))
    assert message.id == id
    assert message.result is not None
    assert message.text[message.result.start : message.result.end] == result


@given(ids, st.text(letters), st.integers(-40000, 40000))
def test_an_error_reads_back_and_is_not_touched(id: RequestId, told: str, code: int) -> None:
    error = json.dumps({"code": code, "message": told})
    message = response(error_text(id, error))
    assert message.id == id
    assert message.error is not None
    assert message.text[message.error.start : message.error.end] == error


@given(ids, methods, results | st.none())
def test_a_request_reads_back(id: RequestId, method: str, params: str | None) -> None:
    message = parse(request_text(id, method, params).encode(), max_depth=DEPTH)
    assert isinstance(message, Request)
    assert (message.id, message.method, message.params_text) == (id, method, params or "")


@given(methods, results | st.none())
def test_a_notification_reads_back(method: str, params: str | None) -> None:
    message = parse(notification_text(method, params).encode(), max_depth=DEPTH)
    assert isinstance(message, Notification)
    assert (message.method, message.params_text) == (method, params or "")
    assert message.params.keys() == {key for key, _ in written(params)} if params else message.params == {}


# --- batches ----------------------------------------------------------------------------------------------------------


SPACES = st.text(" \t\r\n", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, min_size=1, max_size=8), SPACES)
def test_every_element_is_cut_out_as_it_was_written(values: list[object], space: str) -> None:
    written = [json.dumps(value) for value in values]
    body = f"{space}[{space}{f'{space},{space}'.join(written)}{space}]{space}"
    assert split_batch(body.encode(), max_depth=64) == [each.encode() for each in written]


# --- lookalike keys ---------------------------------------------------------------------------------------------------


LOOKALIKE_DEPTH = 64

# --- decoders ------------------------------------------------------------------------------------------------------

Match = Callable[[str], str]
DECODERS: dict[str, Match] = {
    "Go": lambda key: key.replace("\u017f", "s").replace("\u212a", "k").lower(),
    "ASCII": lambda key: "".join(letter.lower() if letter.isascii() else letter for letter in key),
    ".NET": lambda key: key.upper(),
    "Java": lambda key: "".join(letter.upper().lower()[:1] for letter in key),
    "C": lambda key: key.partition("\0")[0],
    "cJSON": lambda key: key.partition("\0")[0].lower(),
}
"""What each family of decoders compares keys by."""


def read_by(match: Match, pairs: list[tuple[str, Any]], names: frozenset[str]) -> dict[str, Any]:
    """The members of an object that a decoder knows, the last of several that it takes for one."""
    known = {match(name): name for name in names}
    return {known[match(key)]: value for key, value in pairs if match(key) in known}


def variants(name: str) -> st.SearchStrategy[str]:
    """Ways to write a name that one of the decoders takes for it."""
    others = {"s": "\u017fS", "k": "\u212aK", "i": "\u0130\u0131I"}
    letters = [st.sampled_from([letter, letter.upper(), *others.get(letter, "")]) for letter in name]
    return st.tuples(st.tuples(*letters).map("".join), st.sampled_from(["", "", "\0", "\0x"])).map("".join)


keys = st.sampled_from(sorted(PARAMS_NAMES)).flatmap(variants) | st.text(max_size=8)


@given(st.lists(st.tuples(keys, st.integers()), max_size=5, unique_by=lambda pair: pair[0]))
@example([("name", 1), ("Name", 2)])
@example([("name", 1), ("\u212aame", 2)])
@example([("arguments", 1), ("argument\u017f", 2)])
@example([("name", 1), ("name\0", 2)])
def test_a_message_that_passes_is_read_alike_by_every_decoder(pairs: list[tuple[str, int]]) -> None:
    params = ",".join(f"{json.dumps(key)}:{value}" for key, value in pairs)
    try:
        message = parse(
            f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{{params}}}}}'.encode(), max_depth=LOOKALIKE_DEPTH
        )
    except MalformedMessage:
        return
    assert isinstance(message, Request)
    ours = {name: member.value for name, member in message.params.items() if name in PARAMS_NAMES}
    for match in DECODERS.values():
        assert read_by(match, pairs, PARAMS_NAMES) == ours


# --- every place, however it is written -----------------------------------------------------------------------------

ALIKE = {
    "capital": ("Name", "name"),
    "capitals": ("NAME", "name"),
    "one capital inside": ("nAme", "name"),
    "long s": ("argument\u017f", "arguments"),
    "Kelvin": ("tas\u212a", "task"),
    "capital and NUL": ("Uri\0", "uri"),
    "NUL": ("name\0", "name"),
    "NUL and more": ("_meta\0x", "_meta"),
    "camel": ("taskid", "taskId"),
}


def envelope(params: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'.encode()


def escaped(key: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in key)


@pytest.mark.parametrize(("key", "name"), ALIKE.values(), ids=ALIKE)
@pytest.mark.parametrize("written", [lambda key: json.dumps(key)[1:-1], escaped], ids=["plain", "escaped"])
@pytest.mark.parametrize("more", ["", '"x":1,', f'"big":"{"x" * 9000}",'], ids=["alone", "beside others", "large"])
def test_a_parameter_that_folds_to_one_that_is_read_is_refused(
    key: str, name: str, written: Callable[[str], str], more: str
) -> None:
    for params in (f'{{{more}"{written(key)}":1}}', f'{{{more}"{name}":"a","{written(key)}":"b"}}'):
        with pytest.raises(MalformedMessage, match=f'"{name}"') as refused:
            parse(envelope(params), max_depth=LOOKALIKE_DEPTH)
        assert refused.value.id == 7


META = [
    "ProgressToken",
    IDEMPOTENCY_KEY.upper(),
    f"{IDEMPOTENCY_KEY}\0",
    PROTOCOL_VERSION.lower(),
    CLIENT_CAPABILITIES.replace("s", "\u017f"),
    "Traceparent",
]


@pytest.mark.parametrize("key", META)
@pytest.mark.parametrize("lead", ["{", '{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'])
def test_a_key_of_meta_that_folds_to_one_of_the_protocol_or_ours_is_refused(key: str, lead: str) -> None:
    for _ in range(3):
        # An object that was met before is remembered.
        with pytest.raises(MalformedMessage):
            parse(envelope(f'{{"_meta":{lead}{json.dumps(key)}:1}}}}'), max_depth=LOOKALIKE_DEPTH)


def test_a_member_of_a_wish_for_a_task_that_folds_to_one_that_is_read_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        parse(envelope('{"task":{"ttl":1,"TTL":2}}'), max_depth=LOOKALIKE_DEPTH)


@pytest.mark.parametrize("key", ["Method", "PARAMS", "Id", "jsonrpc\0", "Re\u017fult"])
def test_a_member_of_a_message_that_folds_to_one_of_json_rpc_is_refused(key: str) -> None:
    with pytest.raises(MalformedMessage) as refused:
        parse(f'{{"jsonrpc":"2.0","id":7,"method":"ping",{json.dumps(key)}:1}}'.encode(), max_depth=LOOKALIKE_DEPTH)
    assert refused.value.id == 7


def test_a_notification_is_judged_as_a_request_is() -> None:
    with pytest.raises(MalformedMessage) as refused:
        parse(
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"RequestId":1}}', max_depth=LOOKALIKE_DEPTH
        )
    assert refused.value.id is None


@pytest.mark.parametrize(
    "params",
    [
        '{"name":"echo","arguments":{"Name":1,"NAME":2,"name":3}}',
        '{"name":"echo","names":1,"na me":2,"naïve":3,"":4,"\\u0000":5}',
        '{"_meta":{"com.example/Name":1,"name":2,"Name":3},"task":{"Name":1}}',
        '{"ref":{"Name":1,"name":2}}',
    ],
)
def test_keys_that_fold_to_nothing_that_is_read_pass(params: str) -> None:
    assert isinstance(parse(envelope(params), max_depth=LOOKALIKE_DEPTH), Request)


def test_what_a_server_answers_is_left_to_its_reader() -> None:
    parse(
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"Content":[],"_meta":{"ProgressToken":1}}}',
        max_depth=LOOKALIKE_DEPTH,
    )


# --- what it costs --------------------------------------------------------------------------------------------------


def test_a_usual_message_is_folded_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskgate.protocol.jsonrpc.refuse_lookalikes", lambda *_: pytest.fail("folded"))
    meta = f'{{"{PROTOCOL_VERSION}":"2026-07-28","progressToken":1}}'
    call = parse(envelope(f'{{"name":"echo","arguments":{{"NAME":1}},"_meta":{meta},"task":{{"ttl":1}}}}'), max_depth=9)
    assert isinstance(call, Request)
    note = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}}'
    assert isinstance(parse(note, max_depth=9), Notification)


@pytest.mark.parametrize("names", [ENVELOPE_NAMES, PARAMS_NAMES, META_NAMES, TASK_NAMES])
def test_no_name_is_like_another(names: frozenset[str]) -> None:
    refuse_lookalikes(names, names)
    assert len({fold(name) for name in names}) == len(names)
