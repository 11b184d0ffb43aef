"""Large texts are amended without a copy, and what leaves is what a string would have been."""

import json
import tracemalloc
from typing import Any

import pytest

from taskgate.errors import MalformedMessage
from taskgate.jsontext.edits import splice
from taskgate.jsontext.large import LargeJson, MessageText, Pieces, around, joined
from taskgate.jsontext.places import WINDOW

TEXT = '{"a":"é😀","_meta":{"b":1},"c":[1,2]}'


def test_a_large_text_is_its_bytes() -> None:
    body = TEXT.encode()
    text = LargeJson(body)
    assert text.body is body
    assert len(text) == len(body)
    assert text.text() == TEXT
    assert text == LargeJson(bytes(bytearray(body)))
    assert text != LargeJson(b"{}")
    assert text != TEXT


def test_members_are_found_once() -> None:
    text = LargeJson(TEXT.encode())
    assert set(text.members) == {"a", "_meta", "c"}
    assert set(text.members["_meta"].members or ()) == {"b"}
    assert text.members is text.members


@pytest.mark.parametrize(("body", "error"), [(b"[1]", ValueError), (b'{"a":1,"a":2}', MalformedMessage)])
def test_what_is_no_object_with_keys_of_its_own_has_no_members(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        _ = LargeJson(body).members


@pytest.mark.parametrize("edits", [[], [(1, 1, '"é":1,')], [(8, 9, "中"), (1, 1, '"b":1,'), (3, 3, "")]])
def test_edits_are_those_of_a_string(edits: list[tuple[int, int, str]]) -> None:
    text = '{"a":"ab","c":[1,2]}'
    pieces = LargeJson(text.encode()).spliced(edits)
    assert pieces.encode().decode() == joined(pieces) == splice(text, edits)
    assert len(pieces) == len(pieces.encode())


def test_edits_do_not_overlap() -> None:
    with pytest.raises(AssertionError):
        LargeJson(TEXT.encode()).spliced([(1, 4, ""), (2, 5, "")])


@pytest.mark.parametrize("text", ["[]", Pieces([b"[", memoryview(b"]")])])
def test_a_text_stands_between_two_others(text: MessageText) -> None:
    assert joined(around('{"é":', text, "}")) == '{"é":[]}'


def test_pieces_leave_in_windows_and_in_order() -> None:
    body = bytes(range(256)) * (WINDOW // 100)
    pieces = Pieces([b"head", memoryview(body), b"", b"tail"])
    windows = list(pieces.windows())
    assert b"".join(windows) == b"head" + body + b"tail"
    assert {len(window) for window in windows[:-1]} == {WINDOW}
    assert len(windows[-1]) < WINDOW
    assert sum(map(len, windows)) == len(pieces)
    assert [*Pieces([b""]).windows()] == []
    assert [*Pieces([body[:WINDOW]]).windows()] == [body[:WINDOW]]


def test_a_line_has_no_break_but_those_around_it() -> None:
    text = json.dumps({"a": ["\n"]}, indent=1).replace("\n", "\r\n")
    assert Pieces([text.encode()]).line(b"head\n", b"\n") == b"head\n" + text.replace("\r\n", "  ").encode() + b"\n"


def peak_of(work: Any) -> int:
    tracemalloc.start()
    try:
        kept = work()
        assert kept is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_sent_of_a_large_text_is_no_copy_and_an_event_of_it_is_one() -> None:
    text = LargeJson(b'{"content":[],"_meta":{"a":1},"x":"' + b"x" * (16 * WINDOW) + b'"}')

    def sent() -> int:
        place = text.members["_meta"]
        return sum(map(len, around("head", text.spliced([(place.start, place.end, "{}")]), "tail").windows()))  # type: ignore[union-attr]

    assert peak_of(sent) < 3 * WINDOW
    assert peak_of(lambda: text.spliced([]).line(b"data: ", b"\n\n")) < len(text) + 5 * WINDOW
