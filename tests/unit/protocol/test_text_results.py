"""A short text as a tool's result is read by one match, and reads as it does by the walk."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.protocol.jsonrpc import parse, read_text_result
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import MAX_SERVER_DEPTH


def facts(response: Response | None) -> Any:
    """All that can be seen of a response, with its members in order."""
    if response is None:
        return None
    assert response.result is not None
    found = response.result.members
    assert found is not None
    members = [(name, each.value, each.is_array, each.is_object, *each[1:]) for name, each in found.items()]
    return (response.id, response.text, response.id_span, response.error_code, response.result[1:4], members)


def walked(message: bytes) -> Any:
    """The same by the walk; None for no message."""
    try:
        response = parse(message, max_depth=MAX_SERVER_DEPTH)
    except (MalformedMessage, UnparsableMessage):
        return None
    assert isinstance(response, Response)
    return facts(response)


RESULTS = (
    {"content": [{"type": "text", "text": "done"}]},
    {"content": [{"type": "text", "text": 'a\n"b" \\ ü'}], "isError": False},
    {"content": [{"type": "text", "text": ""}], "isError": True},
    {"content": [], "structuredContent": {'a "key"': "x"}},
    {"resultType": "complete", "content": [{"type": "text", "text": "done"}], "isError": False},
    {"content": [{"type": "text", "text": "x"}], "structuredContent": {"result": "x"}, "isError": False},
)


@pytest.mark.parametrize(
    ("result", "separators", "is_first"),
    list(product(RESULTS, ((",", ":"), (", ", ": "), (",", ": ")), (True, False))),
)
def test_the_usual_forms_are_read_by_one_match(result: Any, separators: tuple[str, str], is_first: bool) -> None:
    envelope = {"jsonrpc": "2.0", "id": 2147483647}
    whole = {**envelope, "result": result} if is_first else {"result": result, **envelope}
    message = json.dumps(whole, separators=separators, ensure_ascii=False).encode()
    found = facts(read_text_result(message))
    assert found is not None
    assert found == walked(message)


def test_no_text_and_a_long_text_are_left_to_the_walk() -> None:
    long = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "x" * 5000}]}})
    assert read_text_result(long.encode()) is None
    assert read_text_result(b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\xff"}]}}') is None


PIECES = st.sampled_from(
    [
        '"',
        "\\",
        "\\n",
        '\\"',
        "\\u00e9",
        "a",
        " ",
        "\t",
        ",",
        "}",
        "]",
        ":",
        "é",
        "\x7f",
        "\u2028",
        "0",
        '"isError":true',
    ]
)


@given(st.lists(PIECES, max_size=6).map("".join), st.lists(PIECES, max_size=3).map("".join))
def test_what_is_read_reads_as_by_the_walk(text: str, tail: str) -> None:
    message = f'{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{text}"}}]{tail}}}}}'.encode()
    found = facts(read_text_result(message))
    assert found is None or found == walked(message)
