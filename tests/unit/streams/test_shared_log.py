"""Streams in the shared log: their entries, and the writer that stores them in order, soon, and within bounds."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.memory_stream_log import MemoryStreamLog
from helpers.waiting import bounded, eventually
from taskgate.streams.log_entries import (
    DIRECT,
    FINAL,
    RELEASED,
    STOP,
    StreamOrigin,
    are_consecutive,
    decode_origin,
    encode_origin,
    event_entry,
    event_for,
    is_addressed_to,
    is_stop_for,
    note_number,
    replayable_event,
)
from taskgate.streams.shared_log import WAITING_BYTES, EventLogWriter

SOON = timedelta(seconds=5)


@pytest.fixture
def log() -> MemoryStreamLog:
    return MemoryStreamLog("a")


@pytest.fixture
async def writer(log: MemoryStreamLog) -> AsyncIterator[EventLogWriter]:
    writer = EventLogWriter(log, "a")
    yield writer
    async with bounded():
        await writer.close()


async def test_what_is_said_in_a_moment_is_written_together_and_in_order(
    log: MemoryStreamLog, writer: EventLogWriter
) -> None:
    writer.open("s", "p1", b"about")
    for number in range(1, 101):
        writer.append("s", "p1", number, b"%d" % number)
    writer.append("s", "p2", 1, b"nobody began it")
    assert await writer.flush(SOON)
    stream = log.streams["s", "p1"]
    assert (stream.holder, stream.about, stream.over) == ("a", b"about", False)
    assert stream.events == [(number, b"%d" % number) for number in range(1, 101)]
    assert log.calls.count("append") == 2
    assert ("s", "p2") not in log.streams


async def test_it_is_written_without_being_asked_for(log: MemoryStreamLog, writer: EventLogWriter) -> None:
    writer.open("s", "p1", b"")
    await eventually(lambda: ("s", "p1") in log.streams)
    writer.append("s", "p1", 1, b"one")
    await eventually(lambda: log.streams["s", "p1"].events)
    writer.end("s", "p1", 2, b"two")
    await eventually(lambda: log.streams["s", "p1"].over)
    assert log.streams["s", "p1"].events == [(1, b"one"), (2, b"two")]


async def test_what_is_said_while_the_store_does_not_answer_is_written_later(
    log: MemoryStreamLog, writer: EventLogWriter
) -> None:
    log.down = True
    writer.open("s", "p1", b"")
    writer.append("s", "p1", 1, b"one", at_once=True)
    assert not await writer.flush(timedelta(milliseconds=1))
    writer.end("s", "p1", 2, b"two")
    log.down = False
    assert await writer.flush(SOON)
    assert log.streams["s", "p1"].events == [(1, b"one"), (2, b"two")]
    assert log.streams["s", "p1"].over


async def test_what_waits_has_a_bound_and_the_newest_stays(log: MemoryStreamLog, writer: EventLogWriter) -> None:
    entry = b"x" * (WAITING_BYTES // 10)
    log.down = True
    writer.open("s", "p1", b"")
    for number in range(1, 12):
        writer.append("s", "p1", number, entry)
    log.down = False
    assert await writer.flush(SOON)
    assert [number for number, _ in log.streams["s", "p1"].events] == [11]
    log.down = True
    for number in range(12, 22):
        writer.append("s", "p1", number, entry)
    log.down = False
    assert await writer.flush(SOON)
    assert [number for number, _ in log.streams["s", "p1"].events] == [*range(11, 22)]


async def test_a_stream_that_is_silent_is_kept(log: MemoryStreamLog, writer: EventLogWriter) -> None:
    writer.open("s", "p1", b"")
    assert await writer.flush(SOON)
    writer.touch("s", "p1")
    assert await writer.flush(SOON)
    assert log.calls == ["begin", "append"]


async def test_after_the_end_nothing_is_written(log: MemoryStreamLog, writer: EventLogWriter) -> None:
    writer.open("s", "p1", b"")
    writer.append("s", "p1", 1, b"one")
    await writer.close()
    assert log.calls == []


# --- entries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "about",
    [
        StreamOrigin(),
        StreamOrigin(7),
        StreamOrigin("seven", "task", "p1-0123456789ab", 1_800_000_000_000_000),
        StreamOrigin(1, "task"),
    ],
)
def test_what_a_stream_is_about_is_read_as_it_was_written(about: StreamOrigin) -> None:
    assert decode_origin(encode_origin(about)) == about


@pytest.mark.parametrize("text", [b"", b"\xff", b"[" * 100_000, b"{}", b"[1]", b"[1,2,null,0]", b'["a",null,null,"b"]'])
def test_of_anything_else_it_is_not_known_what_it_is_about(text: bytes) -> None:
    assert decode_origin(text) == StreamOrigin()


def test_events_are_repeated_and_nothing_else_is() -> None:
    entries = [
        event_entry(b"one"),
        event_entry(b"a note", 12),
        FINAL + b"last",
        FINAL,
        RELEASED,
        DIRECT + b"b/1 question",
        STOP + b"b/1",
    ]
    assert [replayable_event(entry) for entry in entries] == [b"one", b"a note", b"last", b"", b"", b"", b""]
    assert [note_number(entry) for entry in entries[:3]] == [None, 12, None]


def test_a_carrier_sends_what_is_for_everybody_and_for_itself() -> None:
    entries = [
        event_entry(b"one"),
        DIRECT + b"b/1 ",
        DIRECT + b"b/1 a question",
        DIRECT + b"b/10 another",
        FINAL + b"last",
    ]
    assert [event_for(entry, "b/1") for entry in entries] == [b"one", b"", b"a question", b"", b"last"]
    assert [is_addressed_to(entry, "b/1") for entry in entries] == [False, True, True, False, False]
    assert [is_stop_for(STOP + name, "b/1") for name in (b"b/1", b"b/10", b"b/2")] == [True, False, False]


def test_what_is_missing_is_seen() -> None:
    assert are_consecutive([], 3)
    assert are_consecutive([(4, b""), (5, b"")], 3)
    assert not are_consecutive([(5, b"")], 3)
    assert not are_consecutive([(4, b""), (6, b"")], 3)
