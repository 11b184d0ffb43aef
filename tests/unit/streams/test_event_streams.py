"""Event streams as their writers see them: with and without a log, while connections come and go."""

from typing import Final

import pytest

from helpers.manual_clock import ManualClock
from helpers.waiting import bounded
from taskgate.streams.event_log import RETENTION, EventBudget, MemoryEventLog
from taskgate.streams.event_stream import PAUSE, EventStream, ResumableEventStream
from taskgate.streams.resumable import ResumableStreams, StreamPosition, parse_event_id
from taskgate.streams.sse_connection import SseConnection
from unit.streams.replicas import received

MARK: Final = "0123456789ab"
LONE: Final = '"\ud800"'


def event(number: int, text: str) -> bytes:
    return f"id: p1-{MARK}-{number}\nevent: message\ndata: {text}\n\n".encode()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def resumable(clock: ManualClock) -> ResumableStreams:
    return ResumableStreams(mark=MARK, log=MemoryEventLog(clock, budget=EventBudget(), caller="context"), clock=clock)


@pytest.fixture
def connection() -> SseConnection:
    return SseConnection()


@pytest.fixture
async def lasting(resumable: ResumableStreams, connection: SseConnection) -> ResumableEventStream:
    stream = resumable.open("p", connection)
    assert await received(connection) == [f"id: p1-{MARK}-0\ndata: \n\n".encode()]
    return stream


async def test_a_plain_stream_is_over_with_its_connection(connection: SseConnection) -> None:
    stream, losses = EventStream(connection), list[str]()
    stream.on_connection_lost(lambda: losses.append("lost"))
    assert stream.send("1")
    assert stream.send_now("2")
    assert (stream.is_closed, stream.is_ended) == (False, False)
    stream.connection_lost(SseConnection())
    assert not stream.is_closed
    stream.connection_lost(connection)
    assert (stream.is_closed, stream.is_ended, connection.is_closed, losses) == (True, True, True, ["lost"])
    assert not stream.send("3")
    assert not stream.send_now("3")
    assert await received(connection) == [b"event: message\ndata: 1\n\n", b"event: message\ndata: 2\n\n"]
    async with bounded():
        await stream.wait_closed()
    stream.finish("late")
    assert losses == ["lost"]


@pytest.mark.parametrize(("last", "said"), [("1", [b"event: message\ndata: 1\n\n"]), (None, [])])
async def test_a_plain_stream_ends_with_its_last_message(
    connection: SseConnection, last: str | None, said: list[bytes]
) -> None:
    EventStream(connection).finish(last)
    assert (connection.is_closed, await received(connection)) == (True, said)


async def test_a_plain_stream_ends_with_what_cannot_be_written(connection: SseConnection) -> None:
    stream = EventStream(connection)
    assert not stream.send(LONE)
    assert (stream.is_closed, await received(connection)) == (True, [])


def test_who_is_told_no_more_is_not_told(connection: SseConnection) -> None:
    stream, losses = EventStream(connection), list[str]()

    def note() -> None:
        losses.append("lost")

    stream.on_connection_lost(note)
    stream.remove_callback(note)
    stream.remove_callback(note)
    stream.close()
    assert losses == []


def test_a_host_too_slow_loses_its_connection() -> None:
    slow = SseConnection(10)
    stream = EventStream(slow)
    assert stream.send('"a large one is taken where nothing waits"')
    assert not stream.send("2")
    assert stream.is_closed


async def test_a_lasting_stream_goes_on_without_a_connection(
    lasting: ResumableEventStream, connection: SseConnection
) -> None:
    assert lasting.send("1")
    lasting.connection_lost(connection)
    assert (lasting.is_closed, lasting.is_ended) == (True, False)
    assert lasting.send("2")
    assert not lasting.send_now("question")
    assert lasting.missed_since(0) == [event(1, "1"), event(2, "2")]
    assert await received(connection) == [event(1, "1")]
    lasting.finish("3")
    assert not lasting.send("4")
    lasting.finish("4")
    assert lasting.missed_since(2) == [event(3, "3")]


async def test_a_lasting_stream_says_when_to_come_back_unless_it_is_over(
    lasting: ResumableEventStream, connection: SseConnection
) -> None:
    lasting.close()
    assert await received(connection) == [PAUSE]
    lasting.attach(again := SseConnection(), [])
    lasting.finish(None)
    assert (again.is_closed, await received(again)) == (True, [])
    assert lasting.missed_since(0) == []


async def test_a_second_connection_ends_the_first_before_it_has_anything(
    lasting: ResumableEventStream, connection: SseConnection
) -> None:
    order: list[tuple[bool, bool]] = []
    lasting.send("1")
    second = SseConnection()
    lasting.on_connection_lost(lambda: order.append((connection.is_aborted, lasting.is_closed)))
    lasting.attach(second, lasting.missed_since(0) or [])
    assert (order, await received(connection), connection.is_closed) == ([(True, True)], [], True)
    lasting.connection_lost(connection)
    assert not lasting.is_closed
    lasting.send("2")
    assert await received(second) == [event(1, "1"), event(2, "2")]


async def test_what_a_slow_host_did_not_get_is_there_when_it_comes_back(resumable: ResumableStreams) -> None:
    slow = SseConnection(100)
    stream = resumable.open("p", slow)
    for word in ("1" * 50, "2" * 50, "3" * 50):
        assert stream.send(word)
    waiting = await received(slow)
    assert waiting[-1] == PAUSE
    assert stream.is_closed
    assert stream.missed_since(0) == [event(number, f"{number}" * 50) for number in (1, 2, 3)]


def test_a_lasting_stream_is_given_up_for_what_cannot_be_written(lasting: ResumableEventStream) -> None:
    assert not lasting.send(LONE)
    assert (lasting.is_ended, lasting.is_closed) == (True, True)


def test_streams_are_found_by_their_events(resumable: ResumableStreams, lasting: ResumableEventStream) -> None:
    lasting.send("1")
    place = StreamPosition(f"p1-{MARK}", 0)
    found = resumable.find(place)
    assert found is not None
    assert (found.stream, found.missed, resumable.is_open(place)) == (lasting, [event(1, "1")], True)
    assert resumable.find(StreamPosition(place.stream, 2)) is None
    lasting.finish("2")
    found = resumable.find(place)
    assert found is not None
    assert (found.stream, found.missed, resumable.is_open(place)) == (None, [event(1, "1"), event(2, "2")], False)
    resumable.sweep()
    assert resumable.find(place) == found
    assert resumable.find(StreamPosition("p2-" + MARK, 0)) is None


@pytest.mark.parametrize(("kind", "optional", "goes_on"), [("p", False, True), ("p", True, False), ("g", False, False)])
def test_what_nobody_comes_back_for_is_given_up_but_never_a_call(
    resumable: ResumableStreams, clock: ManualClock, kind: str, optional: bool, goes_on: bool
) -> None:
    connection, told = SseConnection(), list[str]()
    stream = resumable.open("p" if kind == "p" else "g", connection)
    if optional:
        stream.on_discard(lambda: told.append("given up"))
    stream.send("1")
    clock.advance(RETENTION * 2)
    resumable.sweep()
    assert not stream.is_ended
    stream.connection_lost(connection)
    clock.advance(RETENTION / 2)
    resumable.sweep()
    assert not stream.is_ended
    stream.attach(again := SseConnection(), [])
    clock.advance(RETENTION)
    resumable.sweep()
    assert not stream.is_ended
    stream.connection_lost(again)
    clock.advance(RETENTION)
    resumable.sweep()
    assert stream.is_ended is not goes_on
    assert told == (["given up"] if optional else [])
    assert resumable.is_open(StreamPosition(stream.name, 0)) is goes_on


@pytest.mark.parametrize("id_", [f"p1-{MARK}-0", f"g12-{MARK}-34567"])
def test_an_id_says_its_place(id_: str) -> None:
    place = parse_event_id(id_)
    assert place is not None
    assert f"{place.stream}-{place.number}" == id_
    assert place.is_get_stream is id_.startswith("g")


@pytest.mark.parametrize(
    "id_", ["", f"p1-{MARK}", f"p1-{MARK}-", f"p0-{MARK}-1", f"p1-{MARK}-01", f"p1-{MARK}-1\n", f"p1-{MARK.upper()}-1"]
)
def test_what_is_no_id_of_ours_says_nothing(id_: str) -> None:
    assert parse_event_id(id_) is None
