"""Large values are not built: what is found and refused is the same, and a message costs the memory of its text."""

import gc
import json
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.json_texts import messages
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext import spans
from taskgate.jsontext.large import leading_keys
from taskgate.jsontext.spans import MAX_PARTS, UNREAD, Members, first_keys, first_keys_at, read_object
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.messages import ENVELOPE, Message, Request

# --- reading ----------------------------------------------------------------------------------------------------------


PAD = " " * spans.LARGE
"""Makes a text large, and changes nothing in it."""


def places(found: Members) -> Any:
    """Where everything stands, without the values: numbers no machine holds are told apart by one parser only."""
    return {
        key: (member.key_at, member.start, member.end, type(member.value) in (dict, list), places(member.members or {}))
        for key, member in found.items()
    }


def read(text: str) -> Any:
    """What is found in a text, or the class of its refusal."""
    try:
        return places(read_object(text, ENVELOPE))
    except (UnparsableMessage, MalformedMessage) as refusal:
        return type(refusal)


def longer(text: str, number: int) -> str:
    """That text, in which one array or object is too long to be read as others are."""
    opened = [found.end() for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]', text) if found[0] in "[{"]
    at = opened[number % len(opened)]
    return f"{text[:at]}{' ' * spans.SHORT}{text[at:]}"


def test_a_value_with_very_many_parts_is_read_by_who_asks_for_the_whole_alone() -> None:
    few, many = ([0] * number for number in (MAX_PARTS - 10, MAX_PARTS + 10))
    found = read_object(json.dumps({"few": few, "many": many, "long": ["x" * 100_000]}), {})
    assert (found["few"].value, found["long"].value) == (few, ["x" * 100_000])
    assert found["many"].value is UNREAD
    assert (found["many"].whole, found["many"].is_array, found["many"].is_object) == (many, True, False)


def test_every_member_has_a_whole_and_a_kind() -> None:
    found = read_object('{"a":[1],"o":{"b":2},"n":3}', {"o": {}})
    assert [found[name].whole for name in "aon"] == [[1], {"b": 2}, 3]
    assert [(found[name].is_array, found[name].is_object) for name in "aon"] == [
        (True, False),
        (False, True),
        (False, False),
    ]


@given(messages(), st.integers(0, 9))
def test_every_member_stands_at_the_same_place_however_it_is_read(message: str, number: int) -> None:
    for text in (message, longer(message, number)):
        assert read(text + PAD) == read(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc":"2.0","id":1,"result":{"content":[1,{"a":2}],"isError":false}}',
        '{"result":{"a":{"b":{}},"isError":false} , "id" : 5 , "jsonrpc":"2.0" } ',
        '{"params":{"arguments":{"a":{"b":[]},"c":5}},"method":"x","id":"y"}',
        '{"params":{"arguments":{"a":5},"b":"}"},"id":5}',
        '{"params":{"_meta":{"deep":{"a":1}}},"id":5}',
        '{"params":{"arguments":["\\ud800"]},"id":5}',
        '{"result":[1,2]}',
        '{"result":{"a":[1,2}}',
        '{"result":{"a":[1,2],}}',
        '{"result":{"a":[1,2]}}}',
        '{"result":{"a":[1,2]}',
        '{"result":{"a":[1,NaN]}}',
        '{"a":{"b":1},"a":2}',
    ],
)
def test_ends_that_look_like_another_are_told_apart(text: str) -> None:
    for number in range(5):
        long = longer(text, number)
        assert read(long + PAD) == read(long)


def test_a_large_value_is_read_by_the_faster_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"id":1,"result":{"content":["' + "x" * 20_000 + '"],"isError":false}}'
    found = read_object(text, ENVELOPE)
    assert found["result"].value["content"] == ["x" * 20_000]
    standard, faster = letters_read(text, monkeypatch)
    assert standard < 2 * spans.SHORT < 20_000 < faster


def test_a_lone_surrogate_in_a_large_value_is_read_as_in_any_other() -> None:
    value = ["x" * spans.SHORT, "\ud800"]
    assert read_object(json.dumps({"a": value, "b": 1}) + PAD, {})["a"].value == value


@pytest.mark.parametrize("number", ["1e999", "9" * 400])
def test_a_number_beyond_a_double_is_read_in_what_is_not_very_large(number: str) -> None:
    for size in (spans.SHORT, 100_000):
        assert read_object(f'{{"a":[{number},"{"x" * size}"]}}{PAD}', {})["a"].value == [json.loads(number), "x" * size]
    with pytest.raises(UnparsableMessage, match="A number in the body is too large"):
        read_object(f'{{"a":[{number},"{"x" * 300_000}"]}}', {})


def letters_read(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The letters that the standard parser is handed, or passes over in the whole text; and those of the faster one."""
    standard, faster = [0], [0]
    scan, end_of = spans.scan_value, spans.find_end

    def counted(of: str, at: int) -> Any:
        standard.append(len(of) if of is not text else 0)
        value, end = scan(of, at)
        standard[-1] = standard[-1] or end - at
        return value, end

    def counted_end(of: str, at: int) -> int:
        end = end_of(of, at)
        faster.append(end - at)
        return end

    with monkeypatch.context() as patch:
        patch.setattr(spans, "scan_value", counted)
        patch.setattr(spans, "find_end", counted_end)
        read_object(text, ENVELOPE)
    return sum(standard), sum(faster)


VALUES = {
    "empty arrays": "[]",
    "empty objects": "{}",
    "short strings": '"xyz"',
    "arrays": "[1,2,3,4]",
    "arrays of a thousand letters": "[" + "1," * 500 + "1]",
    "numbers": "17",
}


@pytest.mark.thorough
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("where", ["params", "result"])
def test_twice_the_members_are_twice_the_work(value: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    works = []
    for count in (1000, 2000, 4000):
        members = ",".join(f'"{number}":{value}' for number in range(count))
        works.append(sum(letters_read(f'{{"{where}":{{"name":"echo",{members}}}}}', monkeypatch)))
    # Each step of twice as many adds twice as much, whatever the first few cost.
    assert works[2] - works[1] < 2.2 * (works[1] - works[0])


@pytest.mark.parametrize("where", ["", '"params":', '"params":{"_meta":', '"params":{"task":'])
@pytest.mark.parametrize("value", ["1", "[]", '"x"'])
def test_a_walked_object_has_so_many_members_at_most(where: str, value: str) -> None:
    for count, is_taken in ((3000, True), (3001, False), (100_000, False)):
        found = "{" + ",".join(f'"k{number}":{value}' for number in range(count)) + "}"
        text = f"{{{where}{found}{'}' * where.count('{')}}}" if where else found
        if is_taken:
            assert read_object(text, ENVELOPE, 3000)
        else:
            with pytest.raises(MalformedMessage, match="has more than 3000 members"):
                read_object(text, ENVELOPE, 3000)


def test_members_beyond_the_bound_are_not_read() -> None:
    text = "{" + ",".join(f'"k{number}":[1]' for number in range(spans.MAX_MEMBERS))
    with pytest.raises(UnparsableMessage):
        read_object(text + "[", ENVELOPE)
    with pytest.raises(MalformedMessage, match="members"):
        # What follows is no JSON.
        read_object(text + ',"more":[[[[', ENVELOPE)


def test_an_object_that_is_not_walked_has_as_many_members_as_it_likes() -> None:
    text = "{" + ",".join(f'"k{number}":1' for number in range(10_000)) + "}"
    assert len(read_object(f'{{"params":{{"arguments":{text}}}}}', ENVELOPE)["params"].value["arguments"]) == 10_000


def test_an_object_of_very_many_members_has_no_pairs() -> None:
    with pytest.raises(MalformedMessage):
        spans.read_pairs("{" + ",".join(f'"k{number}":1' for number in range(10_000)) + "}")


# --- memory -----------------------------------------------------------------------------------------------------------


SHAPES: dict[str, Callable[[int], str]] = {
    "arrays": lambda size: "[" + ",".join(["[1]"] * (size // 4)) + "]",
    "short strings": lambda size: "[" + ",".join(['"xy"'] * (size // 5)) + "]",
    "numbers": lambda size: "[" + ",".join(["12345"] * (size // 6)) + "]",
    "keys": lambda size: "{" + ",".join(f'"{number}":1' for number in range(size // 9)) + "}",
}


def call(value: str) -> bytes:
    params = f'{{"name":"echo","arguments":{{"a":{value}}}}}'
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()


def answer(value: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"structuredContent":{{"a":{value}}}}}}}'.encode()


def kept(body: bytes) -> tuple[int, Message]:
    """The bytes that are allocated after a message was read, and the message."""
    gc.collect()
    tracemalloc.start()
    try:
        message = parse(body, max_depth=9)
        return tracemalloc.get_traced_memory()[0], message
    finally:
        tracemalloc.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("written", [call, answer])
def test_a_message_costs_its_text_and_the_text_of_its_parameters(
    shape: Callable[[int], str], written: Callable[[str], bytes]
) -> None:
    for size in (100_000, 200_000, 400_000):
        body = written(shape(size))
        cost, _ = kept(body)
        # With room for what measures coverage.
        assert cost < 2.2 * len(body) + 4096


@pytest.mark.parametrize("end", ["", "]", " 1"], ids=["whole", "one bracket more", "followed"])
def test_nothing_is_made_of_a_large_array_that_is_no_message(end: str) -> None:
    body = (SHAPES["short strings"](400_000) + end).encode()
    gc.collect()
    tracemalloc.start()
    try:
        with pytest.raises(UnparsableMessage if end else MalformedMessage):
            parse(body, max_depth=9)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # What the parser needs for itself; with a tree it would be 25 times.
    assert peak < 16 * len(body)


def test_what_was_passed_over_is_read_when_it_is_looked_at() -> None:
    _, message = kept(call(SHAPES["arrays"](10_000)))
    assert isinstance(message, Request)
    arguments = message.params["arguments"]
    assert arguments.is_object
    assert arguments.value == {"a": [[1]] * 2500}
    assert arguments.value is not arguments.value


def test_the_first_keys_of_a_large_object_are_told_without_the_others() -> None:
    _, message = kept(call("1").replace(b'{"a":1}', b'{"a":1,"a":2,"\\u0062":[' + b"1," * 5000 + b'1],"c":3}'))
    assert isinstance(message, Request)
    arguments = message.params["arguments"]
    assert first_keys(arguments, 9) == ("a", "b", "c")
    assert first_keys(arguments, 3) == ("a", "b")
    assert first_keys(message.params["name"], 9) is None


@given(
    st.lists(
        st.tuples(
            st.text(max_size=8),
            st.recursive(
                st.text() | st.none() | st.floats(allow_nan=False, allow_infinity=False),
                lambda each: st.lists(each) | st.dictionaries(st.text(), each),
            ),
        )
    ),
    st.sampled_from([",", " ,\n"]),
    st.sampled_from([":", " : "]),
)
def test_leading_keys_of_bytes_are_the_first_keys_of_their_text(
    found: list[tuple[str, Any]], comma: str, colon: str
) -> None:
    text = f"{{{comma.join(f'{json.dumps(key)}{colon}{json.dumps(value)}' for key, value in found)}}}"
    for limit in (0, 1, 3, 99):
        assert leading_keys(b" " + text.encode(), 1, limit) == first_keys_at(text, 0, limit)
    assert leading_keys(b"[1]", 0, 9) is None


def test_a_large_array_has_no_keys() -> None:
    _, message = kept(call("1").replace(b'{"a":1}', b"[" + b"1," * 5000 + b"1]"))
    assert isinstance(message, Request)
    assert not message.params["arguments"].is_object
    assert first_keys(message.params["arguments"], 9) is None


def test_keys_of_a_small_object_are_those_of_its_value() -> None:
    _, message = kept(call("1"))
    assert isinstance(message, Request)
    assert first_keys(message.params["arguments"], 9) == ("a",)
    assert first_keys(message.params["arguments"], 0) == ()


def test_a_message_that_is_read_and_let_go_leaves_nothing_to_collect() -> None:
    body = call(SHAPES["arrays"](100_000))
    gc.collect()
    gc.disable()
    try:
        parse(body, max_depth=9)
        assert gc.collect() == 0
    finally:
        gc.enable()
