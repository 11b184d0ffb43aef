"""Streams as their writers see them: with a log and without, while connections come and go."""

from typing import Final

import pytest

from helpers.manual_clock import ManualClock
from helpers.waiting import bounded
from taskgate.streams.event_log import KEEP, EventBudget, MemoryEventLog
from taskgate.streams.event_stream import PAUSE, EventStream, ResumableEventStream
from taskgate.streams.resumable import ResumableStreams, StreamPosition, read_place
from taskgate.streams.sse_connection import SseConnection

MARK: Final = "0123456789ab"
LONE: Final = '"\ud800"'


def taken(line: SseConnection) -> list[bytes]:
    """What waits on a line, taken from it."""
    pieces = [piece for piece, _ in line._waiting]
    line._waiting.clear()
    return pieces


def event(number: int, text: str) -> bytes:
    return f"id: p1-{MARK}-{number}\nevent: message\ndata: {text}\n\n".encode()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def resumable(clock: ManualClock) -> ResumableStreams:
    return ResumableStreams(mark=MARK, log=MemoryEventLog(clock, budget=EventBudget(), caller="context"), clock=clock)


@pytest.fixture
def line() -> SseConnection:
    return SseConnection()


@pytest.fixture
def lasting(resumable: ResumableStreams, line: SseConnection) -> ResumableEventStream:
    feed = resumable.open("p", line)
    assert taken(line) == [f"id: p1-{MARK}-0\ndata: \n\n".encode()]
    return feed


async def test_a_plain_stream_is_over_with_its_connection(line: SseConnection) -> None:
    feed, losses = EventStream(line), list[str]()
    feed.when_lost(lambda: losses.append("lost"))
    assert feed.put("1")
    assert feed.put_now("2")
    assert (feed.closed, feed.is_given_up) == (False, False)
    feed.lost(SseConnection())
    assert not feed.closed
    feed.lost(line)
    assert (feed.closed, feed.is_given_up, line.closed, losses) == (True, True, True, ["lost"])
    assert not feed.put("3")
    assert not feed.put_now("3")
    assert taken(line) == [b"event: message\ndata: 1\n\n", b"event: message\ndata: 2\n\n"]
    async with bounded():
        await feed.ended()
    feed.finish("late")
    assert losses == ["lost"]


@pytest.mark.parametrize(("last", "said"), [("1", [b"event: message\ndata: 1\n\n"]), (None, [])])
def test_a_plain_stream_ends_with_its_last_message(line: SseConnection, last: str | None, said: list[bytes]) -> None:
    EventStream(line).finish(last)
    assert (line.closed, taken(line)) == (True, said)


def test_a_plain_stream_ends_with_what_cannot_be_written(line: SseConnection) -> None:
    feed = EventStream(line)
    assert not feed.put(LONE)
    assert (feed.closed, taken(line)) == (True, [])


def test_who_is_told_no_more_is_not_told(line: SseConnection) -> None:
    feed, losses = EventStream(line), list[str]()

    def note() -> None:
        losses.append("lost")

    feed.when_lost(note)
    feed.forget(note)
    feed.forget(note)
    feed.close()
    assert losses == []


def test_a_host_too_slow_loses_its_connection() -> None:
    slow = SseConnection(10)
    feed = EventStream(slow)
    assert feed.put('"a large one is taken where nothing waits"')
    assert not feed.put("2")
    assert feed.closed


def test_a_lasting_stream_goes_on_without_a_connection(lasting: ResumableEventStream, line: SseConnection) -> None:
    assert lasting.put("1")
    lasting.lost(line)
    assert (lasting.closed, lasting.is_given_up) == (True, False)
    assert lasting.put("2")
    assert not lasting.put_now("question")
    assert lasting.missed_since(0) == [event(1, "1"), event(2, "2")]
    assert taken(line) == [event(1, "1")]
    lasting.finish("3")
    assert not lasting.put("4")
    lasting.finish("4")
    assert lasting.missed_since(2) == [event(3, "3")]


def test_a_lasting_stream_says_when_to_come_back_unless_it_is_over(
    lasting: ResumableEventStream, line: SseConnection
) -> None:
    lasting.close()
    assert taken(line) == [PAUSE]
    lasting.attach(again := SseConnection(), [])
    lasting.finish(None)
    assert (again.closed, taken(again)) == (True, [])
    assert lasting.missed_since(0) == []


def test_a_second_connection_ends_the_first_before_it_has_anything(
    lasting: ResumableEventStream, line: SseConnection
) -> None:
    order: list[tuple[bool, bool]] = []
    lasting.put("1")
    second = SseConnection()
    lasting.when_lost(lambda: order.append((line.is_cut, lasting.closed)))
    lasting.attach(second, lasting.missed_since(0) or [])
    assert (order, taken(line), line.closed) == ([(True, True)], [], True)
    lasting.lost(line)
    assert not lasting.closed
    lasting.put("2")
    assert taken(second) == [event(1, "1"), event(2, "2")]


def test_what_a_slow_host_did_not_get_is_there_when_it_comes_back(resumable: ResumableStreams) -> None:
    slow = SseConnection(100)
    feed = resumable.open("p", slow)
    for word in ("1" * 50, "2" * 50, "3" * 50):
        assert feed.put(word)
    waiting = taken(slow)
    assert waiting[-1] == PAUSE
    assert feed.closed
    assert feed.missed_since(0) == [event(number, f"{number}" * 50) for number in (1, 2, 3)]


def test_a_lasting_stream_is_given_up_for_what_cannot_be_written(lasting: ResumableEventStream) -> None:
    assert not lasting.put(LONE)
    assert (lasting.is_given_up, lasting.closed) == (True, True)


def test_streams_are_found_by_their_events(resumable: ResumableStreams, lasting: ResumableEventStream) -> None:
    lasting.put("1")
    place = StreamPosition(f"p1-{MARK}", 0)
    found = resumable.find(place)
    assert found is not None
    assert (found.feed, found.missed, resumable.knows(place)) == (lasting, [event(1, "1")], True)
    assert resumable.find(place._replace(number=2)) is None
    lasting.finish("2")
    found = resumable.find(place)
    assert found is not None
    assert (found.feed, found.missed, resumable.knows(place)) == (None, [event(1, "1"), event(2, "2")], False)
    resumable.sweep()
    assert resumable.find(place) == found
    assert resumable.find(StreamPosition("p2-" + MARK, 0)) is None


@pytest.mark.parametrize(("kind", "optional", "goes_on"), [("p", False, True), ("p", True, False), ("g", False, False)])
def test_what_nobody_comes_back_for_is_given_up_but_never_a_call(
    resumable: ResumableStreams, clock: ManualClock, kind: str, optional: bool, goes_on: bool
) -> None:
    line, told = SseConnection(), list[str]()
    feed = resumable.open("p" if kind == "p" else "g", line)
    if optional:
        feed.when_given_up(lambda: told.append("given up"))
    feed.put("1")
    clock.advance(KEEP * 2)
    resumable.sweep()
    assert not feed.is_given_up
    feed.lost(line)
    clock.advance(KEEP / 2)
    resumable.sweep()
    assert not feed.is_given_up
    feed.attach(again := SseConnection(), [])
    clock.advance(KEEP)
    resumable.sweep()
    assert not feed.is_given_up
    feed.lost(again)
    clock.advance(KEEP)
    resumable.sweep()
    assert feed.is_given_up is not goes_on
    assert told == (["given up"] if optional else [])
    assert resumable.knows(StreamPosition(feed.name, 0)) is goes_on


@pytest.mark.parametrize("id_", [f"p1-{MARK}-0", f"g12-{MARK}-34567"])
def test_an_id_says_its_place(id_: str) -> None:
    place = read_place(id_)
    assert place is not None
    assert f"{place.stream}-{place.number}" == id_
    assert place.is_of_get is id_.startswith("g")


@pytest.mark.parametrize(
    "id_", ["", f"p1-{MARK}", f"p1-{MARK}-", f"p0-{MARK}-1", f"p1-{MARK}-01", f"p1-{MARK}-1\n", f"p1-{MARK.upper()}-1"]
)
def test_what_is_no_id_of_ours_says_nothing(id_: str) -> None:
    assert read_place(id_) is None
