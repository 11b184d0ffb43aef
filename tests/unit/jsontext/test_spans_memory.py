"""What is kept of a message is its text and places: no tree of what is in it."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.jsontext.spans import keys_of
from taskgate.protocol.envelope import Message, Request
from taskgate.protocol.jsonrpc import parse

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
    assert keys_of(arguments, 9) == ("a", "b", "c")
    assert keys_of(arguments, 3) == ("a", "b")
    assert keys_of(message.params["name"], 9) is None


def test_a_large_array_has_no_keys() -> None:
    _, message = kept(call("1").replace(b'{"a":1}', b"[" + b"1," * 5000 + b"1]"))
    assert isinstance(message, Request)
    assert not message.params["arguments"].is_object
    assert keys_of(message.params["arguments"], 9) is None


def test_keys_of_a_small_object_are_those_of_its_value() -> None:
    _, message = kept(call("1"))
    assert isinstance(message, Request)
    assert keys_of(message.params["arguments"], 9) == ("a",)
    assert keys_of(message.params["arguments"], 0) == ()


def test_a_message_that_is_read_and_let_go_leaves_nothing_to_collect() -> None:
    body = call(SHAPES["arrays"](100_000))
    gc.collect()
    gc.disable()
    try:
        parse(body, max_depth=9)
        assert gc.collect() == 0
    finally:
        gc.enable()
