"""Streams are handed over between processes: whole, once, and never to two at a time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.memory_stream_log import MemoryStreamLog
from helpers.waiting import bounded, eventually
from taskgate.streams.event_stream import ForwardedEventStream, ResumableEventStream
from taskgate.streams.handover import HANDOVER, StreamForwarder, StreamHandover
from taskgate.streams.log_entries import StreamOrigin, replayable_event
from taskgate.streams.resumable import FORWARDER_TIMEOUT, StreamPosition
from taskgate.streams.shared_log import QUIET, RemoteConnection
from taskgate.streams.sse_connection import SseConnection
from unit.streams.replicas import SESSION, Buses, Replica, received

SOON = timedelta(seconds=5)
CALL = StreamOrigin(7)
WAIT = StreamOrigin(7, "task")
LOST = '{"lost":true}'


class Street:
    """Two processes over one log."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryStreamLog("a", "b")
        self.others = Buses()
        self.a, self.b = (Replica(holder, self.log, self.others, self.clock) for holder in "ab")

    async def flush(self) -> None:
        """Have all in the log that was said."""
        assert await self.a.shared.flush(SOON)
        assert await self.b.shared.flush(SOON)

    async def take(self, place: StreamPosition) -> StreamHandover:
        """What b finds of a stream."""
        async with bounded():
            left = await self.b.shared.claim(SESSION, place)
        assert left is not None
        return left


@pytest.fixture
async def street() -> AsyncIterator[Street]:
    street = Street()
    yield street
    for each in (street.a, street.b):
        await each.shared.close()


async def called(street: Street, about: StreamOrigin = CALL) -> tuple[ResumableEventStream, SseConnection]:
    """A stream that answers a request at a."""
    connection = SseConnection()
    stream = street.a.resumable.open("p", connection, about)
    assert stream.send("1")
    assert stream.send("2")
    await received(connection)
    return stream, connection


def carried(
    street: Street, stream: ResumableEventStream, left: StreamHandover
) -> tuple[ForwardedEventStream, SseConnection, "asyncio.Task[None]"]:
    """The same stream as b carries it."""
    connection, carries = SseConnection(), ForwardedEventStream()
    carries.attach(connection, ())
    carriage = StreamForwarder(
        street.b.shared, SESSION, stream.name, left, number=left.entries[-1][0] if left.entries else 0, lost=LOST
    )
    return carries, connection, asyncio.get_running_loop().create_task(carriage.forward(carries))


async def test_what_was_missed_is_found_and_the_connection_there_ends_first(street: Street) -> None:
    stream, connection = await called(street)
    left = await street.take(StreamPosition(stream.name, 1))
    assert (left.origin, left.is_over, left.holder) == (CALL, False, "a")
    assert [replayable_event(entry) for _, entry in left.entries if replayable_event(entry)] == [
        f"id: {stream.name}-2\nevent: message\ndata: 2\n\n".encode()
    ]
    assert connection.is_closed
    assert connection.is_aborted
    assert isinstance(stream.connection, RemoteConnection)
    assert street.a.opened == 1


async def at_once(connection: SseConnection) -> list[bytes]:
    """The data that comes without any timer."""
    for _ in range(100):
        await asyncio.sleep(0)
    lines = b"".join(await received(connection)).splitlines()
    return [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")]


async def test_what_is_said_from_then_on_is_carried_to_the_end_at_once(street: Street) -> None:
    stream, _ = await called(street)
    carries, connection, forwarding = carried(street, stream, await street.take(StreamPosition(stream.name, 2)))
    stream.send("3")
    assert stream.send_now('"a question"')
    assert await at_once(connection) == [b"3", b'"a question"']
    assert await street.a.shared.flush(SOON)
    stream.send("4")
    assert await at_once(connection) == [b"4"]
    stream.finish('"done"')
    assert await at_once(connection) == [b'"done"']
    async with bounded():
        await forwarding
    assert carries.is_closed
    again = await street.take(StreamPosition(stream.name, 4))
    assert again.is_over
    assert [replayable_event(entry).split(b"\n")[0] for _, entry in again.entries if replayable_event(entry)] == [
        f"id: {stream.name}-{number}".encode() for number in (6, 7)
    ]


async def test_only_one_process_carries_a_stream(street: Street) -> None:
    stream, _ = await called(street)
    carries, _, forwarding = carried(street, stream, await street.take(StreamPosition(stream.name, 2)))
    here = SseConnection()
    stream.attach(here, ())
    async with bounded():
        await forwarding
    assert carries.is_closed
    stream.send("3")
    assert b"data: 3" in b"".join(await received(here))


async def test_a_host_that_leaves_its_carrier_leaves_the_stream_without_a_connection(street: Street) -> None:
    stream, _ = await called(street)
    carries, _, forwarding = carried(street, stream, await street.take(StreamPosition(stream.name, 2)))
    carries.close()
    await forwarding
    await eventually(lambda: stream.is_closed)
    assert not stream.is_ended
    assert stream.send("3")


async def test_a_carrier_that_gives_no_sign_of_life_is_taken_for_gone(street: Street) -> None:
    stream, _ = await called(street)
    left = await street.take(StreamPosition(stream.name, 2))
    assert left.forwarder is not None
    street.clock.advance(timedelta(seconds=FORWARDER_TIMEOUT))
    street.a.resumable.hand_over(stream.name, left.forwarder)
    street.clock.advance(timedelta(seconds=FORWARDER_TIMEOUT))
    street.a.resumable.sweep()
    assert not stream.is_closed
    street.clock.advance(timedelta(seconds=1))
    street.a.resumable.sweep()
    assert stream.is_closed


async def test_a_wait_for_a_task_is_given_up_where_it_was_and_goes_on_under_a_new_name(street: Street) -> None:
    stream, connection = await called(street, WAIT)
    given_up = list[str]()
    stream.on_discard(lambda: given_up.append("here"))
    left = await street.take(StreamPosition(stream.name, 1))
    assert (left.origin, left.forwarder, left.is_over) == (StreamOrigin(7, "task", stream.name), None, False)
    assert (given_up, connection.is_closed, stream.is_ended) == (["here"], True, True)
    new = street.b.resumable.adopt("p", left.origin, [entry for _, entry in left.entries])
    assert new.missed_since(0) == [f"id: {new.name}-1\nevent: message\ndata: 2\n\n".encode()]
    await street.flush()
    assert street.log.streams[SESSION, new.name].events == [(1, b"+" + new.missed_since(0)[0])]  # type: ignore[index]


async def test_notes_of_a_task_are_known_by_their_place_on_every_stream_that_follows(street: Street) -> None:
    stream, _ = await called(street, WAIT)
    street.a.resumable.send_note(stream, "3", 1_000)
    street.a.resumable.send_note(stream, "4", 2_000)
    stream.send("5")
    await street.flush()
    left = await street.take(StreamPosition(stream.name, 5))
    assert left.origin.last_note == 2_000
    new = street.b.resumable.adopt("p", left.origin, [])
    await street.flush()
    assert new.origin is not None
    assert (new.origin.last_note, new.origin.wait) == (2_000, stream.name)


async def test_events_that_a_host_has_and_the_log_has_not_are_counted(street: Street) -> None:
    stream, _ = await called(street, WAIT)
    await street.flush()
    street.log.alive.clear()
    assert (await street.take(StreamPosition(stream.name, 5))).ahead == 3


async def test_a_stream_whose_process_is_gone_is_told_as_far_as_it_is_there(street: Street) -> None:
    stream, _ = await called(street)
    await street.flush()
    street.log.alive.clear()
    left = await street.take(StreamPosition(stream.name, 1))
    assert (left.forwarder, len(left.entries)) == (None, 1)
    _, connection, forwarding = carried(street, stream, left)
    async with bounded():
        await forwarding
    assert LOST.encode() in b"".join(await received(connection))


async def test_a_process_that_does_not_answer_is_waited_for_no_longer_than_that(street: Street) -> None:
    loop = asyncio.get_running_loop()
    stream, _ = await called(street)
    await street.flush()
    street.others.deaf = True
    began = loop.time()
    left = await street.take(StreamPosition(stream.name, 1))
    assert HANDOVER <= loop.time() - began < 2 * HANDOVER
    assert (left.forwarder is None, len(left.entries)) == (False, 1)
    assert await street.b.shared.claim(SESSION, StreamPosition("p9-000000000000", 1)) is None


async def test_what_is_not_there_wholly_is_not_told(street: Street) -> None:
    stream, _ = await called(street)
    await street.flush()
    del street.log.streams[SESSION, stream.name].events[0]
    async with bounded():
        assert await street.b.shared.claim(SESSION, StreamPosition(stream.name, 0)) is None


async def test_who_is_alone_waits_for_nobody(street: Street) -> None:
    del street.others.all["a"]
    async with bounded():
        assert await street.b.shared.claim(SESSION, StreamPosition("p9-000000000000", 1)) is None
    assert street.others.sent == []


async def test_a_stream_on_which_nothing_is_said_stays_known(street: Street) -> None:
    stream, _ = await called(street)
    await street.flush()
    street.a.resumable.sweep()
    await street.flush()
    written = len(street.log.calls)
    street.clock.advance(timedelta(seconds=QUIET + 1))
    street.a.resumable.sweep()
    await street.flush()
    street.a.resumable.sweep()
    await street.flush()
    assert street.log.calls[written:] == ["append"]
    assert not stream.is_closed


async def test_the_end_of_a_session_is_in_the_log(street: Street) -> None:
    connection = SseConnection()
    stream = street.a.resumable.open("g", connection)
    stream.close()
    assert (await received(connection))[-1].endswith(b"retry: 1000\n\n")
    street.a.resumable.close()
    await street.flush()
    assert street.log.streams[SESSION, stream.name].over
