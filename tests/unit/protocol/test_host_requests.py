"""Two sendings of one call are told by what was meant, not by how it was written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import InvalidParams
from taskgate.jsontext.spans import Member, members
from taskgate.protocol.host_requests import LONG, MAX_KEY, call_digest, key_digest, read_idempotency_key, sorted_members
from taskgate.protocol.meta import HOP_KEYS

KEY = "io.taskgate/idempotency-key"


def written(value: str) -> Member:
    return members(f'{{"a":1,"{KEY}":{value},"progressToken":7}}')[KEY]


def call(arguments: str, more: str = "") -> str:
    return f'{{"name":"build","arguments":{arguments}{more}}}'


@pytest.mark.parametrize(
    ("value", "key"),
    [('"k"', "k"), ('" "', " "), (r'"\u00e9\ud83d\ude00"', "é😀"), (json.dumps("x" * MAX_KEY), "x" * MAX_KEY)],
)
def test_a_key_is_a_text_of_1_to_256_characters(value: str, key: str) -> None:
    assert read_idempotency_key(written(value)) == key


@pytest.mark.parametrize("value", ['""', "null", "7", "true", '["k"]', "{}", json.dumps("x" * 257), r'"\ud800"'])
def test_what_can_be_no_key_is_refused_by_its_name(value: str) -> None:
    with pytest.raises(InvalidParams, match=KEY):
        read_idempotency_key(written(value))


def test_of_a_key_a_digest_is_kept_that_tells_it_from_others() -> None:
    assert key_digest("a") == key_digest("a") != key_digest("b")
    assert len(key_digest("x" * 256)) == 32
    assert "secret" not in key_digest("secret")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":2}'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":0}', '{"a":-0}'),
        (f'{{"a":{5000 * "7"}}}', f'{{"a":{5001 * "7"}}}'),
        ('{"a":["number","1"]}', '{"a":1}'),
        ('{"a":["object",[]]}', '{"a":{}}'),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":null}', "{}"),
        ('{"a":true}', '{"a":"True"}'),
        (r'{"a":"\ud800"}', r'{"a":"\ud801"}'),
    ],
)
def test_other_arguments_are_another_call(one: str, other: str) -> None:
    assert call_digest("build", call(one)) != call_digest("build", call(other))


def test_long_arguments_are_the_same_as_they_are_written_and_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    long = f'{{"a":"{"x" * LONG}","b":1}}'
    other = f'{{"b":1,"a":"{"x" * LONG}"}}'
    parse = json.loads

    def parse_short(text: str, **more: Any) -> Any:
        assert len(text) <= LONG, "parsed"
        return parse(text, **more)

    monkeypatch.setattr("taskgate.protocol.host_requests.json.loads", parse_short)
    assert call_digest("build", call(long)) == call_digest("build", call(long, ',"_meta":{"progressToken":8}'))
    assert call_digest("build", call(long)) != call_digest("build", call(other))
    assert call_digest("build", call(long)) != call_digest("burn", call(long))
    assert call_digest("build", f'{{"name":"{"x" * LONG}"}}') == call_digest("build", f'{{"name":"{"y" * LONG}"}}')


def test_short_arguments_are_the_same_however_long_the_rest_of_the_parameters_is() -> None:
    large, other = (f',"_meta":{{"x":"{letter * LONG}"}}' for letter in "xy")
    assert call_digest("build", call('{"a":2,"b":1}', large)) == call_digest("build", call('{"b":1,"a":2}', large))
    assert call_digest("build", call('{"a":2,"b":1}', large)) != call_digest("build", call('{"a":2,"b":1}', other))


@pytest.mark.parametrize("size", [1, LONG])
@pytest.mark.parametrize(
    "meta",
    [
        *({name: "x"} for name in sorted(HOP_KEYS)),
        {"io.taskgate/anything": 1},
        {"progressToken": "t"},
        {"traceparent": "00-1", "tracestate": "a=b", "baggage": "c=d"},
        {"claudecode/toolUseId": "toolu_01"},
        {"vscode.requestId": "request_1"},
        {"callId": "call_1", "x-codex-turn-metadata": {"turn_id": "1"}},
    ],
    ids=lambda meta: next(iter(meta)),
)
def test_what_names_a_hop_or_one_use_makes_no_difference(meta: dict[str, Any], size: int) -> None:
    text = f'{{"a":"{"x" * size}"}}'
    for crossing in ({}, {"account": "A"}):
        more = f',"_meta":{json.dumps(crossing)}' if crossing else ""
        assert call_digest("build", call(text, f',"_meta":{json.dumps(crossing | meta)}')) == call_digest(
            "build", call(text, more)
        )


@pytest.mark.parametrize("size", [1, LONG])
def test_whatever_else_crosses_is_another_call(size: int) -> None:
    text = f'{{"a":"{"x" * size}"}}'
    more = ["", *(f',"_meta":{{"account":"{name}"}}' for name in "AB"), ',"_meta":{"dryRun":true}', ',"other":1']
    assert len({call_digest("build", call(text, each)) for each in more}) == len(more)


def test_another_tool_is_another_call() -> None:
    assert call_digest("build", call("{}")) != call_digest("burn", call("{}"))


def test_no_arguments_are_not_the_same_as_empty_ones() -> None:
    assert call_digest("build", '{"name":"build"}') != call_digest("build", call("{}"))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)


@given(one=VALUES, other=VALUES)
def test_two_values_are_one_exactly_when_their_canonical_texts_are(one: Any, other: Any) -> None:
    texts = [json.dumps({"a": value}, sort_keys=True) for value in (one, other)]
    same = sorted_members(json.dumps({"a": one})) == sorted_members(json.dumps({"a": other}))
    assert same is (texts[0] == texts[1])
