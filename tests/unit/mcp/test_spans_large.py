"""Large values are read by another parser: what is found, and what is refused, is the same."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from helpers.json_texts import messages
from taskgate.errors import MalformedMessage, UnparsableMessage
from taskgate.mcp import spans
from taskgate.mcp.jsonrpc import ENVELOPE
from taskgate.mcp.spans import Members, read_object

NEVER = 1 << 62


@pytest.fixture(autouse=True, scope="module")
def restored() -> Iterator[None]:
    """The module as it was."""
    before = spans.LARGE
    yield
    spans.LARGE = before


def places(found: Members) -> Any:
    """Where everything stands, without the values: numbers no machine holds are told apart by one parser only."""
    return {
        key: (member.key_at, member.start, member.end, type(member.value) in (dict, list), places(member.members or {}))
        for key, member in found.items()
    }


def read(text: str, large: int) -> Any:
    """What is found in a text, or the class of its refusal."""
    spans.LARGE = large
    try:
        return places(read_object(text, ENVELOPE))
    except (UnparsableMessage, MalformedMessage) as refusal:
        return type(refusal)


@given(messages())
def test_every_member_stands_at_the_same_place_however_it_is_read(text: str) -> None:
    assert read(text, -1) == read(text, NEVER)


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
    assert read(text, -1) == read(text, NEVER)


def test_a_large_value_is_read_by_the_faster_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    spans.LARGE = 16 * 1024
    text = '{"id":1,"result":{"content":["' + "x" * 20_000 + '"],"isError":false}}'
    found = read_object(text, ENVELOPE)
    assert found["result"].value["content"] == ["x" * 20_000]
    scanned: list[int] = []
    real = spans._SCAN
    monkeypatch.setattr(spans, "_SCAN", lambda text, at: scanned.append(at) or real(text, at))
    read_object(text, ENVELOPE)
    assert [text[at] for at in scanned] == ["1", "f"]
