"""Messages are written and readdressed to the byte; a key that stands twice is refused under the id of its message."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import Written, messages, objects, texts, written
from taskgate.domain.record import RequestId
from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import dump
from taskgate.protocol.envelope import Notification, Request, Response
from taskgate.protocol.jsonrpc import error_text, notification_text, parse, readdressed, request_text, result_text

DEPTH = 300
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


def test_a_response_under_another_id_keeps_every_other_byte() -> None:
    text = ' {"result" : {"id":1, "x":1.50},\n "id": 1 ,"jsonrpc":"2.0"}\n'
    assert readdressed(response(text), "a\n") == text.replace('"id": 1 ', '"id": "a\\n" ')


@given(messages().filter(lambda text: '"method"' not in text), ids)
def test_any_response_under_another_id_keeps_every_other_byte(text: str, id: RequestId) -> None:
    before = response(text)
    after = readdressed(before, id)
    start, end = before.id_span
    assert after.startswith(text[:start])
    assert after.endswith(text[end:])
    again = response(after)
    assert again.id == id
    assert readdressed(again, before.id) == text[:start] + dump(before.id) + text[end:]


# --- writing -------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_message_stand_in_one_order() -> None:
    assert result_text(1, "{}") == '{"jsonrpc":"2.0","id":1,"result":{}}'
    assert error_text("a", '{"code":1}') == '{"jsonrpc":"2.0","id":"a","error":{"code":1}}'
    assert error_text(None, '{"code":1}') == '{"jsonrpc":"2.0","error":{"code":1}}'
    assert request_text(1, "m", "{}") == '{"jsonrpc":"2.0","id":1,"method":"m","params":{}}'
    assert request_text("", "m", None) == '{"jsonrpc":"2.0","id":"","method":"m"}'
    assert notification_text("m", "{}") == '{"jsonrpc":"2.0","method":"m","params":{}}'
    assert notification_text("m") == '{"jsonrpc":"2.0","method":"m"}'


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


def test_an_error_without_an_id_is_no_message_to_read() -> None:
    assert written(error_text(None, "{}")) == Written([("jsonrpc", "2.0"), ("error", Written())])
