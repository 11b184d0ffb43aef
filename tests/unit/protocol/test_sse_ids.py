"""Ids of events and pauses: what is known of a stream that is to be taken up again, wherever its chunks fall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.protocol.sse import MAX_ID, EventDecoder, event, pause, priming

ROOMY = 1_000_000
LONGEST = b"x" * MAX_ID


def read(*chunks: bytes) -> tuple[list[bytes], str | None, int | None]:
    """The data of the events, and what is known after them."""
    decoder = EventDecoder(ROOMY)
    data = [each for chunk in chunks for each in decoder.feed(chunk)]
    return data, decoder.last_id, decoder.retry


STREAMS: dict[str, tuple[bytes, list[bytes], str | None]] = {
    "nothing": (b"", [], None),
    "no id": (b"data: 1\n\n", [b"1"], None),
    "an id": (b"data: 0\n\nid: a\ndata: 1\n\n", [b"0", b"1"], "a"),
    "an id before the type": (b"data: 0\n\nid: a\nevent: message\ndata: 1\n\n", [b"0", b"1"], "a"),
    "an id after the type": (b"data: 0\n\nevent: message\nid: a\ndata: 1\n\n", [b"0", b"1"], "a"),
    "an id after the data": (b"data: 1\nid: a\n\n", [b"1"], "a"),
    "the later of two": (b"id: a\ndata: 1\n\nid: b\ndata: 2\n\n", [b"1", b"2"], "b"),
    "the later of two in one event": (b"id: a\nid: b\ndata: 1\n\n", [b"1"], "b"),
    "an event without one keeps it": (b"id: a\ndata: 1\n\ndata: 2\n\n", [b"1", b"2"], "a"),
    "one of an event that was cut off is none": (b"id: a\ndata: 1\n\nid: b\ndata: 2\n", [b"1"], "a"),
    "an event that only primes": (b"id: a\ndata:\n\n", [], "a"),
    "an event without data": (b"id: a\n\n", [], "a"),
    "an event of another type": (b"id: a\nevent: other\ndata: 1\n\n", [], "a"),
    "CRLF": (b"id: a\r\ndata: 1\r\n\r\nid: b\r\ndata: 2\r\n\r\n", [b"1", b"2"], "b"),
    "one that is taken back": (b"id: a\ndata: 1\n\nid:\ndata: 2\n\n", [b"1", b"2"], None),
    "one that is taken back without a colon": (b"id: a\ndata: 1\n\nid\ndata: 2\n\n", [b"1", b"2"], None),
    "one with a null is not heard": (b"id: a\ndata: 1\n\nid: b\0\ndata: 2\n\n", [b"1", b"2"], "a"),
    "one with a control character": (b"id: a\ndata: 1\n\nid: b\x1b\ndata: 2\n\n", [b"1", b"2"], None),
    "one that is no UTF-8": (b"id: a\ndata: 1\n\nid: \xff\ndata: 2\n\n", [b"1", b"2"], None),
    "one beyond ASCII": ("id: größe\ndata: 1\n\n".encode(), [b"1"], "größe"),
    "the longest": (b"id: " + LONGEST + b"\ndata: 1\n\n", [b"1"], LONGEST.decode()),
    "one that is longer": (b"id: a\n\nid: x" + LONGEST + b"\ndata: 1\n\n", [b"1"], None),
    "with spaces": (b"id:  a b\ndata: 1\n\n", [b"1"], " a b"),
    "another field": (b"ids: a\ndata: 1\n\n", [b"1"], None),
}


@pytest.mark.parametrize(("stream", "data", "last"), STREAMS.values(), ids=STREAMS)
def test_the_id_of_the_last_whole_event_is_known(stream: bytes, data: list[bytes], last: str | None) -> None:
    assert read(stream) == (data, last, None)
    assert read(*(bytes([byte]) for byte in stream)) == (data, last, None)
    assert read(*(part + b"\n\n" for part in stream.split(b"\n\n")[:-1])) == (data, last, None) or b"\r" in stream


@given(st.sampled_from(list(STREAMS.values())), st.lists(st.integers(0, 60), max_size=4))
def test_chunks_never_change_what_is_known(example: tuple[bytes, list[bytes], str | None], places: list[int]) -> None:
    stream, data, last = example
    ends = [*sorted(places), len(stream)]
    assert read(*(stream[start:end] for start, end in zip([0, *ends], ends, strict=False))) == (data, last, None)


def test_an_id_whose_event_comes_in_another_chunk_is_known_only_then() -> None:
    decoder = EventDecoder(ROOMY)
    decoder.feed(b"data: 0\n\n")
    decoder.feed(b"id: a\n")
    assert decoder.last_id is None
    assert decoder.feed(b"data: 1\n\n") == [b"1"]
    assert decoder.last_id == "a"


def test_what_has_come_of_an_event_is_known_until_its_end_has() -> None:
    decoder = EventDecoder(ROOMY)
    seen = [decoder.unfinished]
    for chunk in (b"data: 0", b"123\n", b"data: 4\nda", b"ta: 5\n\n", b": aside\n"):
        decoder.feed(chunk)
        seen.append(decoder.unfinished)
    assert seen[0] == seen[4] == seen[5] == 0
    assert 0 < seen[1] < seen[3]
    assert seen[2] > 0


@pytest.mark.parametrize(
    ("stream", "retry"),
    [
        (b"retry: 500\n\n", 500),
        (b"retry:0\ndata: 1\n\n", 0),
        (b"retry: 500\nretry: 700\n", 700),
        (b"retry: 500\nretry: soon\n", 500),
        (b"retry: -1\n", None),
        (b"retry: 1.5\n", None),
        (b"retry:\n", None),
        (b"retry: 0x10\n", None),
        ("retry: ٣\n".encode(), None),
        (b"retry: 999999999999\n", 999_999_999_999),
        (b"retry: 9999999999999\n", None),
        (b"retries: 5\n", None),
        (b"retry: 500", None),
    ],
)
def test_the_pause_that_is_asked_for_is_known(stream: bytes, retry: int | None) -> None:
    assert read(stream)[2] == retry
    assert read(*(bytes([byte]) for byte in stream))[2] == retry


def test_ids_and_pauses_that_are_written_are_read_back() -> None:
    assert read(event("1", "a")) == ([b"1"], "a", None)
    assert read(event("1", "a"), event("2")) == ([b"1", b"2"], "a", None)
    assert read(priming("a"), pause(250)) == ([], "a", 250)
