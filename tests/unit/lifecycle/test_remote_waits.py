"""Notes of tasks reach hosts that wait at another process: each once, in order, and none where nobody waits."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.memory_stream_log import MemoryStreamLog
from helpers.records import new_record
from helpers.virtual_time import turns
from helpers.waiting import bounded, eventually
from taskgate.domain.record import Lease, TaskRecord, evolve
from taskgate.lifecycle.task_streams import (
    LAST_NOTES,
    RETRY,
    AwaitsNotes,
    RemoteNotifications,
    RemoteWait,
    WaitPosition,
)
from taskgate.streams.event_log import RETENTION
from taskgate.streams.event_stream import ResumableEventStream
from taskgate.streams.log_entries import StreamOrigin
from taskgate.streams.sse_connection import SseConnection
from unit.streams.replicas import SESSION, Buses, Replica


class Street:
    """A task that runs at a, and a host that waits for it at b."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryStreamLog("a", "b")
        self.others = Buses()
        self.a, self.b = (Replica(holder, self.log, self.others, self.clock) for holder in "ab")
        self.at_a, self.at_b = (RemoteNotifications(each.shared, clock=self.clock) for each in (self.a, self.b))
        self.task = new_record().id
        self.at_a.begin(self.task)
        self.listenings: list[RemoteWait] = []

    def record(self, holder: str | None = "a") -> TaskRecord:
        """The task, run by somebody."""
        lease = None if holder is None else Lease(holder=holder, until=self.clock.now())
        return evolve(new_record(id=self.task), lease=lease)

    def wait(self, heard: WaitPosition | None = None) -> tuple[ResumableEventStream, RemoteWait]:
        """A stream that waits at b."""
        about = StreamOrigin(7, self.task, None if heard is None else heard.wait)
        feed = self.b.resumable.open("p", SseConnection(), about)
        listening = self.at_b.listen(self.b.resumable, feed, SESSION, heard)
        self.listenings.append(listening)
        return feed, listening

    async def known(self) -> None:
        """Wait until a knows of the wait."""
        count = len(self.listenings)
        await eventually(lambda: self.said(AwaitsNotes) >= count)
        await turns(20)

    def said(self, kind: type) -> int:
        """How often something was said."""
        return sum(isinstance(word, kind) for word in self.others.sent)


@pytest.fixture
async def street() -> AsyncIterator[Street]:
    street = Street()
    yield street
    async with bounded():
        for listening in street.listenings:
            await listening.close()
        await street.a.shared.close()
        await street.b.shared.close()


def heard_on(feed: ResumableEventStream) -> list[str]:
    return [event.split(b"data: ")[1].strip().decode() for event in feed.missed_since(0) or ()]


async def test_notes_are_heard_where_the_task_is_waited_for(street: Street) -> None:
    feed, listening = street.wait()
    assert not street.at_a.send(street.task, "nobody waits yet")
    assert listening.follow(street.record())
    await street.known()
    for number in range(100):
        assert street.at_a.send(street.task, str(number))
    street.at_a.end(street.task)
    async with bounded():
        await listening.finish()
    assert heard_on(feed) == [str(number) for number in range(100)]
    assert not street.at_a.send(street.task, "over")


async def test_nothing_is_sent_where_the_task_runs_where_it_is_waited_for(street: Street) -> None:
    _, listening = street.wait()
    assert not listening.follow(street.record("b"))
    assert not listening.follow(street.record(None))
    async with bounded():
        await listening.finish()
    assert street.said(AwaitsNotes) == 0
    assert ("notes" in str(street.log.streams)) is False


async def test_the_newest_wait_hears_a_note_and_no_other(street: Street) -> None:
    one, first = street.wait()
    first.follow(street.record())
    await street.known()
    two, second = street.wait()
    second.follow(street.record())
    await street.known()
    street.at_a.send(street.task, "1")
    await eventually(lambda: heard_on(two))
    assert (heard_on(one), heard_on(two)) == ([], ["1"])


async def test_a_wait_that_moved_hears_what_was_not_heard_before(street: Street) -> None:
    feed, listening = street.wait()
    listening.follow(street.record())
    await street.known()
    street.at_a.send(street.task, "1")
    street.at_a.send(street.task, "2")
    await eventually(lambda: heard_on(feed) == ["1", "2"])
    await listening.close()
    street.at_a.send(street.task, "3")
    street.at_a.send(street.task, "4")
    log = await street.log.read(SESSION, f"{feed.name}/notes", after=0)
    assert log is not None
    place, _ = log.events[1]
    moved, goes_on = street.wait(WaitPosition(feed.name, place, ahead=1))
    goes_on.follow(street.record())
    await eventually(lambda: heard_on(moved))
    assert heard_on(moved) == ["4"]


async def test_a_wait_that_moved_to_where_the_task_runs_hears_it_the_same_way(street: Street) -> None:
    street.at_a._on_moved_away(SESSION, StreamOrigin(7, street.task, "p1-0"))
    street.at_a.send(street.task, "1")
    feed = street.a.resumable.open("p", SseConnection(), StreamOrigin(7, street.task, "p1-0"))
    listening = street.at_a.listen(street.a.resumable, feed, SESSION, WaitPosition("p1-0"))
    street.listenings.append(listening)
    assert listening.follow(street.record("a"))
    street.at_a.send(street.task, "2")
    await eventually(lambda: heard_on(feed) == ["1", "2"])


async def test_whoever_takes_the_task_over_is_asked_for_its_notes(street: Street) -> None:
    feed, listening = street.wait()
    listening.follow(street.record())
    await street.known()
    street.at_a.send(street.task, "1")
    street.at_a.end(street.task)
    street.clock.advance(timedelta(seconds=1))
    street.at_b.begin(street.task)
    assert listening.follow(street.record("b"))
    assert street.at_b.send(street.task, "2")
    await eventually(lambda: heard_on(feed) == ["1", "2"])


@pytest.mark.parametrize("answers", [True, False])
async def test_who_does_not_run_the_task_says_so_and_who_does_not_answer_is_waited_for_briefly(
    street: Street, answers: bool
) -> None:
    street.at_a.end(street.task)
    street.others.deaf = not answers
    _, listening = street.wait()
    listening.follow(street.record())
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with bounded():
        await listening.finish()
    assert (loop.time() - began < LAST_NOTES) is answers


async def test_a_wait_of_which_nothing_is_heard_any_more_counts_no_longer(street: Street) -> None:
    _, listening = street.wait()
    listening.follow(street.record())
    await street.known()
    await listening.close()
    assert street.at_a.send(street.task, "1")
    street.clock.advance(RETENTION + timedelta(seconds=1))
    assert not street.at_a.send(street.task, "2")


async def test_a_store_that_does_not_answer_is_asked_again_after_a_pause(street: Street) -> None:
    street.log.down = True
    feed, listening = street.wait()
    listening.follow(street.record())
    await asyncio.sleep(2.5 * RETRY)
    assert street.log.calls.count("read") == 3
    street.log.down = False
    await asyncio.sleep(RETRY)
    await street.known()
    street.at_a.send(street.task, "1")
    await eventually(lambda: heard_on(feed) == ["1"])
