"""Event streams are written and read the same, however their bytes are split."""

import pickle
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.json_texts import texts, written
from requirements import covers
from taskgate.jsontext.large import JsonChunks
from taskgate.protocol.sse import KEEP_ALIVE, MAX_ID, EventDecoder, EventTooLarge, event, priming, retry

# --- reading ----------------------------------------------------------------------------------------------------------


ROOMY = 1_000_000
BOM = b"\xef\xbb\xbf"
FRAME = len(BOM + b"data: ")


def decoded(*chunks: bytes, limit: int = ROOMY) -> list[bytes]:
    decoder = EventDecoder(limit)
    return [data for chunk in chunks for data in decoder.feed(chunk)]


def outcome(chunks: list[bytes], limit: int) -> tuple[list[bytes], bool]:
    """What comes out of a stream, and whether it was refused before its end."""
    decoder, found = EventDecoder(limit), []
    for chunk in [*chunks, b""]:
        try:
            found += decoder.feed(chunk)
        except EventTooLarge:
            return found, True
    return found, False


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(stream)) for place in places} | {len(stream)})
    return [stream[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("field", [b"event: x\n", b"id: 7\n"])
def test_fields_without_end_are_noise_and_those_of_usual_events_are_not(field: bytes) -> None:
    decoder = EventDecoder(ROOMY)
    list(decoder.feed(field * 10))
    assert decoder.noise == 0
    list(decoder.feed(field * 5_000))
    few = decoder.noise
    list(decoder.feed(field * 1_000))
    assert decoder.noise - few == 1_000 * len(field)


# --- writing -------------------------------------------------------------------------------------------------------


def test_an_event_is_one_line_of_data() -> None:
    assert event('{"a":1}') == b'event: message\ndata: {"a":1}\n\n'


@pytest.mark.parametrize("id", [None, "p-1"])
def test_bytes_become_the_same_event_as_their_text(id: str | None) -> None:
    assert event(b'{"a":1}', id) == event('{"a":1}', id)


@covers("T36")
@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
def test_a_break_between_tokens_becomes_a_space(line_break: str) -> None:
    text = f'{{{line_break}"a":1}}'
    assert event(text) == f"event: message\ndata: {text.replace(chr(10), ' ').replace(chr(13), ' ')}\n\n".encode()


def test_a_keep_alive_is_a_comment_and_no_event() -> None:
    assert KEEP_ALIVE.startswith(b":")
    assert decoded(KEEP_ALIVE, event("1"), KEEP_ALIVE) == [b"1"]


@given(st.lists(texts.filter(lambda text: "\\ud" not in text), max_size=4))
def test_what_is_written_is_read_back(values: list[str]) -> None:
    found = decoded(*(event(text) for text in values))
    assert [written(data.decode()) for data in found] == [written(text) for text in values]


# --- reading -------------------------------------------------------------------------------------------------------

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d".encode()
STREAMS: dict[str, tuple[bytes, list[bytes]]] = {
    "nothing": (b"", []),
    "one event": (b"data: 1\n\n", [b"1"]),
    "CR": (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
    "CRLF": (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"]),
    "all breaks in one": (b"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\r\n", [b"1", b"2", b"3"]),
    "CR then LF are one break": (b"data: 1\r\ndata: 2\r\n\r\n", [b"1\n2"]),
    "CR within what ends in LF": (b"data: 1\rdata: 2\n\ndata: 3\r4\r\n\r\n", [b"1\n2", b"3"]),
    "CR alone as data": (b"event: message\ndata: \r\n\ndata: 1\n\n", [b"1"]),
    "lines are joined": (b"data: 1\ndata: 2\ndata\ndata: 3\n\n", [b"1\n2\n\n3"]),
    "no space": (b"data:1\n\n", [b"1"]),
    "one space is taken": (b"data:  1\n\n", [b" 1"]),
    "a colon in the data": (b"data: a: b\n\n", [b"a: b"]),
    "comments": (b": hello\n:\ndata: 1\n: there\n\n", [b"1"]),
    "other fields": (b"id: 7\nretry: 5\nx: y\ndata: 1\nlonely\n\n", [b"1"]),
    "the type message": (b"event: message\ndata: 1\n\n", [b"1"]),
    "the type after the data": (b"data: 1\nevent:message\n\n", [b"1"]),
    "an empty type": (b"event\ndata: 1\n\n", [b"1"]),
    "another type": (b"event: ping\ndata: 1\n\ndata: 2\n\n", [b"2"]),
    "another type after the data": (b"data: 1\nevent: endpoint\n\ndata: 2\n\n", [b"2"]),
    "the last type counts": (b"event: ping\nevent: message\ndata: 1\n\n", [b"1"]),
    "a type in capitals": (b"event: Message\ndata: 1\n\n", []),
    "empty data primes only": (b"id: 0\ndata:\n\ndata: 1\n\n", [b"1"]),
    "no data": (b"event: message\n\n\n\n", []),
    "cut off before the empty line": (b"data: 1\n\ndata: 2\n", [b"1"]),
    "cut off inside a line": (b"data: 1\n\ndata: 2", [b"1"]),
    "a mark at the start": (BOM + b"data: 1\n\n", [b"1"]),
    "a mark elsewhere is part of a name": (b"data: 1\n" + BOM + b"data: 2\n\n", [b"1"]),
    "a mark before an empty line": (BOM + b"\ndata: 1\n\n", [b"1"]),
    "a capital field": (b"Data: 1\n\n", []),
    "a space before the colon": (b"data : 1\n\n", []),
    "other separators are no breaks": (b"data: " + SEPARATORS + b"\n\n", [SEPARATORS]),
    "bytes of any kind": (b"data: \xff\x00\n\n", [b"\xff\x00"]),
}


@pytest.mark.parametrize(("stream", "events"), STREAMS.values(), ids=STREAMS)
def test_a_stream_reads_the_same_whole_and_byte_by_byte(stream: bytes, events: list[bytes]) -> None:
    assert decoded(stream) == events
    assert decoded(*(stream[at : at + 1] for at in range(len(stream)))) == events


@pytest.mark.parametrize(("stream", "events"), STREAMS.values(), ids=STREAMS)
def test_a_stream_reads_the_same_cut_in_two_anywhere(stream: bytes, events: list[bytes]) -> None:
    for place in range(len(stream) + 1):
        assert decoded(stream[:place], b"", stream[place:]) == events


def test_an_event_comes_out_with_the_chunk_that_completes_it() -> None:
    decoder = EventDecoder(ROOMY)
    assert decoder.feed(b"data: 1\n") == []
    assert decoder.feed(b"\nda") == [b"1"]
    assert decoder.feed(b"ta: 2\r\n\r") == [b"2"]
    assert decoder.feed(b"\n") == []


BEFORE = [
    b"",
    b":\n",
    b"id: 1\n",
    b"data: 0\n",
    b"data\n",
    b"event: ping\n",
    b"event: message\n",
    b"x\n\r",
    b"da",
    BOM,
    b":\r",
]
WHOLE = [
    b"data: 1\n\n",
    b"data: 1\r\n\r\n",
    b"event: message\ndata: 1\n\n",
    b"event: message\r\ndata: 1\r\n\r\n",
    b"data: 1\n\r\n",
    b"data:  1 \n\n",
    b"data: \n\n",
    b"data: 1\n\n\n",
    b"data: 1\ndata: 2\n\n",
    b"event: ping\ndata: 1\n\n",
    b"data: 1\n\ndata: 2\n\n",
    b"data: " + b"x" * 5000 + b"\n\n",
]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("chunk", WHOLE)
def test_a_chunk_that_is_a_whole_event_is_read_as_in_pieces_whatever_came_before_it(
    before: bytes, chunk: bytes
) -> None:
    pieces = [chunk[at : at + 1] for at in range(len(chunk))]
    after = [BOM + b"data: 7\n\n", b"data: 8\n\n", b"\ndata: 9\n\n"]
    for limit in (0, 1, ROOMY):
        assert outcome([b":\n", before, chunk, *after], limit) == outcome([b":\n", before, *pieces, *after], limit)
        assert outcome([before, chunk, *after], limit) == outcome([before, *pieces, *after], limit)


fields = [
    b"data: ",
    b"data:",
    b"data",
    b"event: ",
    b"event",
    b"message",
    b"ping",
    b"id: 1",
    b":",
    b" ",
    b"x",
    b"yz" * 9,
]
breaks = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n"]
pieces = st.sampled_from([*fields, *breaks, BOM, b"\xe2\x80\xa8", b"\x0b"])
streams = st.lists(pieces, max_size=25).map(b"".join)
places = st.lists(st.integers(0, 120), max_size=12)


@given(streams, places)
@example(b"data: 1\r\n\r\n", [8, 10])
def test_where_the_chunks_fall_never_changes_what_comes_out(stream: bytes, cuts: list[int]) -> None:
    assert decoded(*cut(stream, cuts)) == decoded(stream)


@given(streams, places, st.integers(0, 40))
@example(BOM + b"data: 12345\n\ndata: 1\n\n", [3, 5, 9], 5)
@example(b"data: 1\n\nid: 0000000000000000\ndata: 2\n\n", [10, 20], 3)
def test_where_the_chunks_fall_never_changes_what_is_too_large(stream: bytes, cuts: list[int], limit: int) -> None:
    # Complete before the limit was passed is complete, whatever else its chunk held.
    assert outcome(cut(stream, cuts), limit) == outcome([stream], limit)


# --- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [b"data: ", b"data:", BOM + b"data: "])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_data_of_just_the_limit_passes_however_it_is_cut(head: bytes, size: int) -> None:
    stream = head + b"x" * size + b"\n\n"
    for place in range(len(stream) + 1):
        assert decoded(stream[:place], stream[place:], limit=size) == ([b"x" * size] if size else [])


def test_a_byte_more_than_the_limit_is_too_large() -> None:
    with pytest.raises(EventTooLarge):
        decoded(b"data: 12345\n\n", limit=4)


def test_lines_of_one_event_count_together_with_what_joins_them() -> None:
    assert decoded(b"data: 12\ndata: 45\n\n", limit=5) == [b"12\n45"]
    with pytest.raises(EventTooLarge):
        decoded(b"data: 12\ndata: 45\n\n", limit=4)


def test_empty_lines_of_data_do_not_gather_without_end() -> None:
    assert outcome([b"data\n"] * 10, 10) == ([], False)
    assert outcome([b"data\n"] * 12, 10) == ([], True)


def test_events_of_another_type_are_bounded_too() -> None:
    with pytest.raises(EventTooLarge):
        decoded(b"event: ping\ndata: 12345\n\n", limit=4)


@pytest.mark.parametrize("head", [b": ", b"id: ", b"event: ", b"x"])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_of_any_other_kind_is_bounded(head: bytes, end: bytes) -> None:
    limit = 20
    whole = head + b"y" * (limit + FRAME - len(head))
    assert decoded(whole + end, limit=limit) == []
    with pytest.raises(EventTooLarge):
        decoded(whole + b"y" + end, limit=limit)


def test_each_event_has_the_whole_limit() -> None:
    assert decoded(b"data: 1234\n\n" * 3, limit=4) == [b"1234"] * 3


def test_what_was_complete_is_handed_out_and_the_next_call_raises() -> None:
    decoder = EventDecoder(4)
    assert decoder.feed(b"data: 1\n\ndata: 2\n\ndata: 12345\n\ndata: 3\n\n") == [b"1", b"2"]
    for chunk in (b"", b"data: 4\n\n", b"\n"):
        with pytest.raises(EventTooLarge):
            decoder.feed(chunk)


def kept_by(decoder: EventDecoder) -> int:
    """The bytes that a reader keeps, with little around each line."""
    return len(pickle.dumps(decoder))


@pytest.mark.parametrize("refused", [b"x" + b"y" * 3_000_000, b"data: " + b"y" * 1_500_000 + b"\n"])
def test_a_reader_that_refused_keeps_nothing(refused: bytes) -> None:
    decoder = EventDecoder(2_000_000)
    decoder.feed(b"data: " + b"x" * 1_000_000 + b"\n")
    assert kept_by(decoder) > 1_000_000
    with pytest.raises(EventTooLarge):
        decoder.feed(refused)
    assert decoder.unfinished == 0
    assert kept_by(decoder) < 1_000


def test_of_what_is_complete_nothing_is_kept() -> None:
    decoder = EventDecoder(10_000)
    for chunk in cut(
        (b"id: 7\ndata: " + b"x" * 9_000 + b"\n\n: " + b"y" * 9_000 + b"\n") * 20, [*range(0, 400_000, 777)]
    ):
        decoder.feed(chunk)
        assert kept_by(decoder) < 20_000 + 1_000
    assert kept_by(decoder) < 1_000


@given(streams, places, st.integers(0, 40))
def test_no_more_is_kept_than_one_event_and_one_line(stream: bytes, cuts: list[int], limit: int) -> None:
    decoder = EventDecoder(limit)
    for chunk in cut(stream, cuts):
        try:
            decoder.feed(chunk)
        except EventTooLarge:
            break
        assert decoder.unfinished <= 2 * limit + 1 + FRAME


def test_a_long_line_in_small_chunks_is_not_copied_again_and_again() -> None:
    chunk = b"x" * 2**10

    def seconds_of_a_chunk(chunks: int) -> float:
        decoder, begun = EventDecoder(ROOMY * 5), time.thread_time()
        decoder.feed(b"data: ")
        for _ in range(chunks):
            decoder.feed(chunk)
        assert [len(data) for data in decoder.feed(b"\n\n")] == [chunks * len(chunk)]
        return (time.thread_time() - begun) / chunks

    few, many = (min(seconds_of_a_chunk(chunks) for _ in range(5)) for chunks in (64, 2**12))
    # With a copy of the line for each chunk this would be dozens of times as much.
    assert many < few * 6


def test_events_of_another_type_are_told_before_what_comes_after_them() -> None:
    told: list[object] = []
    decoder = EventDecoder(64, lambda type_, data: told.append((type_, data)))
    stream = b"event: endpoint\ndata: /a\ndata: b\n\ndata: 1\n\nevent: ping\n\ndata: 2\n\n"
    for at in range(len(stream)):
        told += decoder.feed(stream[at : at + 1])
    assert told == [(b"endpoint", b"/a\nb"), b"1", (b"ping", b""), b"2"]
    told.clear()
    whole = EventDecoder(64, lambda type_, data: told.append((type_, data)))
    assert whole.feed(stream) == [b"1", b"2"]
    assert told == [(b"endpoint", b"/a\nb"), (b"ping", b"")]


# --- ids and retry ----------------------------------------------------------------------------------------------------


LONGEST = b"x" * MAX_ID


def read(*chunks: bytes) -> tuple[list[bytes], str | None, int | None]:
    """The data of the events, and what is known after them."""
    decoder = EventDecoder(ROOMY)
    data = [each for chunk in chunks for each in decoder.feed(chunk)]
    return data, decoder.last_id, decoder.retry


ID_STREAMS: dict[str, tuple[bytes, list[bytes], str | None]] = {
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


@pytest.mark.parametrize(("stream", "data", "last"), ID_STREAMS.values(), ids=ID_STREAMS)
def test_the_id_of_the_last_whole_event_is_known(stream: bytes, data: list[bytes], last: str | None) -> None:
    assert read(stream) == (data, last, None)
    assert read(*(bytes([byte]) for byte in stream)) == (data, last, None)
    assert read(*(part + b"\n\n" for part in stream.split(b"\n\n")[:-1])) == (data, last, None) or b"\r" in stream


@given(st.sampled_from(list(ID_STREAMS.values())), st.lists(st.integers(0, 60), max_size=4))
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
    assert read(priming("a"), retry(250)) == ([], "a", 250)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_an_event_may_have_an_id_and_is_read_back_with_it() -> None:
    decoder = EventDecoder(ROOMY)
    assert event("1", "p1-2") == b"id: p1-2\nevent: message\ndata: 1\n\n"
    assert decoder.feed(event("1", "p1-2")) == [b"1"]
    assert decoder.last_id == "p1-2"


def test_what_primes_a_stream_is_no_message_and_has_an_id() -> None:
    decoder = EventDecoder(ROOMY)
    assert priming("p1-0") == b"id: p1-0\ndata: \n\n"
    assert decoder.feed(priming("p1-0")) == []
    assert decoder.last_id == "p1-0"


def test_a_pause_is_no_message_and_takes_back_no_id() -> None:
    decoder = EventDecoder(ROOMY)
    assert decoder.feed(event("1", "p1-2") + retry(1000)) == [b"1"]
    assert (decoder.last_id, decoder.retry) == ("p1-2", 1000)


def test_a_large_text_is_the_same_event() -> None:
    text = '{"a":\r\n["é",\n1]}'
    for id in (None, "p1-2"):
        assert event(JsonChunks([text[:5].encode(), text[5:].encode()]), id) == event(text, id)
