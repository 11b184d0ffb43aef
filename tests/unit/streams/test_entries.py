"""What is written of a stream for other processes, and read by them."""

import pytest

from taskgate.streams.entries import (
    ASIDE,
    HALT,
    LAST,
    LEFT,
    About,
    follow_on,
    for_carrier,
    greets,
    halts,
    heard_in,
    kept,
    read_about,
    repeated,
    write_about,
)


@pytest.mark.parametrize(
    "about", [About(), About(7), About("seven", "task", "p1-0123456789ab", 1_800_000_000_000_000), About(1, "task")]
)
def test_what_a_stream_is_about_is_read_as_it_was_written(about: About) -> None:
    assert read_about(write_about(about)) == about


@pytest.mark.parametrize("text", [b"", b"\xff", b"{}", b"[1]", b"[1,2,null,0]", b'["a",null,null,"b"]'])
def test_of_anything_else_it_is_not_known_what_it_is_about(text: bytes) -> None:
    assert read_about(text) == About()


def test_events_are_repeated_and_nothing_else_is() -> None:
    entries = [kept(b"one"), kept(b"a note", 12), LAST + b"last", LAST, LEFT, ASIDE + b"b/1 question", HALT + b"b/1"]
    assert [repeated(entry) for entry in entries] == [b"one", b"a note", b"last", b"", b"", b"", b""]
    assert [heard_in(entry) for entry in entries[:3]] == [None, 12, None]


def test_a_carrier_sends_what_is_for_everybody_and_for_itself() -> None:
    entries = [kept(b"one"), ASIDE + b"b/1 ", ASIDE + b"b/1 a question", ASIDE + b"b/10 another", LAST + b"last"]
    assert [for_carrier(entry, "b/1") for entry in entries] == [b"one", b"", b"a question", b"", b"last"]
    assert [greets(entry, "b/1") for entry in entries] == [False, True, True, False, False]
    assert [halts(HALT + name, "b/1") for name in (b"b/1", b"b/10", b"b/2")] == [True, False, False]


def test_what_is_missing_is_seen() -> None:
    assert follow_on([], 3)
    assert follow_on([(4, b""), (5, b"")], 3)
    assert not follow_on([(5, b"")], 3)
    assert not follow_on([(4, b""), (6, b"")], 3)
