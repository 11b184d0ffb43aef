"""Streams are handed over between processes: whole, once, and never to two at a time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.memory_stream_log import MemoryStreamLog
from helpers.waiting import bounded, eventually
from taskgate.streams import behind
from taskgate.streams import shared_resumable as module
from taskgate.streams.carrying import Carriage
from taskgate.streams.entries import About, repeated
from taskgate.streams.event_stream import ForwardedEventStream, ResumableEventStream
from taskgate.streams.resumable import CARRIER_SILENT, StreamPosition
from taskgate.streams.shared_log import QUIET, RemoteConnection
from taskgate.streams.shared_resumable import Left
from taskgate.streams.sse_connection import SseConnection
from unit.streams.moving import SESSION, Neighbours, Replica, taken

SOON = timedelta(seconds=5)
CALL = About(7)
WAIT = About(7, "task")
LOST = '{"lost":true}'


class Street:
    """Two processes over one log."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryStreamLog("a", "b")
        self.others = Neighbours()
        self.a, self.b = (Replica(holder, self.log, self.others, self.clock) for holder in "ab")

    async def flush(self) -> None:
        """Have all in the log that was said."""
        assert await self.a.shared.flush(SOON)
        assert await self.b.shared.flush(SOON)

    async def take(self, place: StreamPosition) -> Left:
        """What b finds of a stream."""
        async with bounded():
            left = await self.b.shared.take_up(SESSION, place)
        assert left is not None
        return left


@pytest.fixture
async def street() -> AsyncIterator[Street]:
    street = Street()
    yield street
    for each in (street.a, street.b):
        await each.shared.close()


def called(street: Street, about: About = CALL) -> tuple[ResumableEventStream, SseConnection]:
    """A stream that answers a request at a."""
    line = SseConnection()
    feed = street.a.resumable.of(about).open("p", line)
    assert feed.put("1")
    assert feed.put("2")
    taken(line)
    return feed, line


def carried(
    street: Street, feed: ResumableEventStream, left: Left
) -> tuple[ForwardedEventStream, SseConnection, "asyncio.Task[None]"]:
    """The same stream as b carries it."""
    line, carries = SseConnection(), ForwardedEventStream()
    carries.attach(line, ())
    carriage = Carriage(
        street.b.shared, SESSION, feed.name, left, number=left.entries[-1][0] if left.entries else 0, lost=LOST
    )
    return carries, line, asyncio.get_running_loop().create_task(carriage.carry(carries))


async def test_what_was_missed_is_found_and_the_connection_there_ends_first(street: Street) -> None:
    feed, line = called(street)
    left = await street.take(StreamPosition(feed.name, 1))
    assert (left.about, left.is_over, left.holder) == (CALL, False, "a")
    assert [repeated(entry) for _, entry in left.entries if repeated(entry)] == [
        f"id: {feed.name}-2\nevent: message\ndata: 2\n\n".encode()
    ]
    assert line.closed
    assert line.is_cut
    assert isinstance(feed.line, RemoteConnection)
    assert street.a.opened == 1


async def test_what_is_said_from_then_on_is_carried_to_the_end_at_once(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind, "LINGER", 3_600.0)
    feed, _ = called(street)
    carries, line, carrying = carried(street, feed, await street.take(StreamPosition(feed.name, 2)))
    feed.put("3")
    assert feed.put_now('"a question"')
    await eventually(lambda: len(line._waiting) == 2)
    assert await street.a.shared.flush(SOON)
    feed.put("4")
    await eventually(lambda: len(line._waiting) == 3)
    feed.finish('"done"')
    async with bounded():
        await carrying
    assert [text.split(b"\ndata: ")[1] for text in taken(line).split(b"\n\n")[:-1]] == [
        b"3",
        b'"a question"',
        b"4",
        b'"done"',
    ]
    assert carries.closed
    again = await street.take(StreamPosition(feed.name, 4))
    assert again.is_over
    assert [repeated(entry).split(b"\n")[0] for _, entry in again.entries if repeated(entry)] == [
        f"id: {feed.name}-{number}".encode() for number in (6, 7)
    ]


async def test_only_one_process_carries_a_stream(street: Street) -> None:
    feed, _ = called(street)
    carries, _, carrying = carried(street, feed, await street.take(StreamPosition(feed.name, 2)))
    here = SseConnection()
    feed.attach(here, ())
    async with bounded():
        await carrying
    assert carries.closed
    feed.put("3")
    assert b"data: 3" in taken(here)


async def test_a_host_that_leaves_its_carrier_leaves_the_stream_without_a_connection(street: Street) -> None:
    feed, _ = called(street)
    carries, _, carrying = carried(street, feed, await street.take(StreamPosition(feed.name, 2)))
    carries.close()
    await carrying
    await eventually(lambda: feed.closed)
    assert not feed.is_given_up
    assert feed.put("3")


async def test_a_carrier_that_gives_no_sign_of_life_is_taken_for_gone(street: Street) -> None:
    feed, _ = called(street)
    left = await street.take(StreamPosition(feed.name, 2))
    assert left.carrier is not None
    street.clock.advance(timedelta(seconds=CARRIER_SILENT))
    street.a.resumable.hand_over(feed.name, left.carrier)
    street.clock.advance(timedelta(seconds=CARRIER_SILENT))
    street.a.resumable.sweep()
    assert not feed.closed
    street.clock.advance(timedelta(seconds=1))
    street.a.resumable.sweep()
    assert feed.closed


async def test_a_wait_for_a_task_is_given_up_where_it_was_and_goes_on_under_a_new_name(street: Street) -> None:
    feed, line = called(street, WAIT)
    given_up = list[str]()
    feed.when_given_up(lambda: given_up.append("here"))
    left = await street.take(StreamPosition(feed.name, 1))
    assert (left.about, left.carrier, left.is_over) == (WAIT._replace(wait=feed.name), None, False)
    assert (given_up, line.closed, feed.is_given_up) == (["here"], True, True)
    new = street.b.resumable.go_on("p", left.about, [entry for _, entry in left.entries])
    assert new.missed_since(0) == [f"id: {new.name}-1\nevent: message\ndata: 2\n\n".encode()]
    await street.flush()
    assert street.log.streams[SESSION, new.name].events == [(1, b"+" + new.missed_since(0)[0])]  # type: ignore[index]


async def test_notes_of_a_task_are_known_by_their_place_on_every_stream_that_follows(street: Street) -> None:
    feed, _ = called(street, WAIT)
    street.a.resumable.note(feed, "3", 1_000)
    street.a.resumable.note(feed, "4", 2_000)
    feed.put("5")
    await street.flush()
    left = await street.take(StreamPosition(feed.name, 5))
    assert left.about.heard == 2_000
    new = street.b.resumable.go_on("p", left.about, [])
    await street.flush()
    assert new.about is not None
    assert (new.about.heard, new.about.wait) == (2_000, feed.name)


async def test_events_that_a_host_has_and_the_log_has_not_are_counted(street: Street) -> None:
    feed, _ = called(street, WAIT)
    await street.flush()
    street.log.alive.clear()
    assert (await street.take(StreamPosition(feed.name, 5))).ahead == 3


async def test_a_stream_whose_process_is_gone_is_told_as_far_as_it_is_there(street: Street) -> None:
    feed, _ = called(street)
    await street.flush()
    street.log.alive.clear()
    left = await street.take(StreamPosition(feed.name, 1))
    assert (left.carrier, len(left.entries)) == (None, 1)
    _, line, carrying = carried(street, feed, left)
    async with bounded():
        await carrying
    assert LOST.encode() in taken(line)


async def test_a_process_that_does_not_answer_is_waited_for_no_longer_than_that(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDOVER", 0.01)
    feed, _ = called(street)
    await street.flush()
    street.others.deaf = True
    left = await street.take(StreamPosition(feed.name, 1))
    assert (left.carrier is None, len(left.entries)) == (False, 1)
    assert await street.b.shared.take_up(SESSION, StreamPosition("p9-000000000000", 1)) is None


async def test_what_is_not_there_wholly_is_not_told(street: Street) -> None:
    feed, _ = called(street)
    await street.flush()
    del street.log.streams[SESSION, feed.name].events[0]
    async with bounded():
        assert await street.b.shared.take_up(SESSION, StreamPosition(feed.name, 0)) is None


async def test_who_is_alone_waits_for_nobody(street: Street) -> None:
    del street.others.all["a"]
    async with bounded():
        assert await street.b.shared.take_up(SESSION, StreamPosition("p9-000000000000", 1)) is None
    assert street.others.said == []


async def test_a_stream_on_which_nothing_is_said_stays_known(street: Street) -> None:
    feed, _ = called(street)
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
    assert not feed.closed


async def test_the_end_of_a_session_is_in_the_log(street: Street) -> None:
    line = SseConnection()
    feed = street.a.resumable.open("g", line)
    feed.close()
    assert taken(line).endswith(b"retry: 1000\n\n")
    street.a.resumable.close()
    await street.flush()
    assert street.log.streams[SESSION, feed.name].over
