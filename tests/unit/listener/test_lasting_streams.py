"""Streams that outlive their connection: carried by one after the other, and finished on the last."""

import asyncio

import pytest

from helpers.host.raw import RawHost, get, post
from helpers.manual_clock import ManualClock
from helpers.waiting import bounded, eventually
from taskgate.protocol.sse import event
from taskgate.streams.event_log import EventBudget, MemoryEventLog
from taskgate.streams.event_stream import PAUSE, ResumableEventStream
from taskgate.streams.exchange import Exchange, HttpMethod, HttpReply
from taskgate.streams.resumable import ResumableStreams
from unit.listener.gate import MOMENT, Gate, never_too_slow, opened


class Resuming:
    """An engine with one lasting stream: a POST begins it, a GET takes it up."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.resumable = ResumableStreams(
            mark="0123456789ab", log=MemoryEventLog(clock, budget=EventBudget(), caller="context"), clock=clock
        )
        self.feed: ResumableEventStream | None = None
        self.go_on = asyncio.Event()
        self.last: asyncio.Future[HttpReply] = asyncio.get_running_loop().create_future()
        self.resumed: list[bool] = []
        self.given_up = 0

    async def __call__(self, exchange: Exchange) -> HttpReply:
        if exchange.head.method is HttpMethod.GET:
            await self.go_on.wait()
            assert self.feed is not None
            self.resumed.append(exchange.resume(self.feed, self.feed.missed_since(0) or []))
            if self.resumed[-1]:
                await self.feed.wait_closed()
            return HttpReply()
        exchange.opener = self.resumable.open
        feed = exchange.stream()
        assert isinstance(feed, ResumableEventStream)
        self.feed = feed
        exchange.on_disconnect(self.give_up)
        return await asyncio.shield(self.last)

    def give_up(self) -> None:
        self.given_up += 1


def numbered(number: int, text: str) -> bytes:
    return event(text, f"p1-0123456789ab-{number}")


async def test_a_lasting_stream_changes_connections_and_its_answer_comes_on_the_last(gate: Gate) -> None:
    gate.engine.script = engine = Resuming()
    engine.go_on.set()
    async with gate.host() as first, gate.host() as second, gate.host() as third:
        await first.send(post())
        await first.head()
        assert await first.chunk() == b"id: p1-0123456789ab-0\ndata: \n\n"
        assert engine.feed is not None
        assert engine.feed.send("1")
        assert await first.chunk() == numbered(1, "1")
        await second.send(get())
        await second.head()
        assert await second.chunk() == numbered(1, "1")
        # Its request is still worked on, so this is no end that an answer has.
        assert await first.at_end()
        await third.send(get())
        await third.head()
        assert await third.chunk() == numbered(1, "1")
        assert [chunk async for chunk in second.chunks()] == []
        engine.last.set_result(HttpReply(body="2"))
        assert [chunk async for chunk in third.chunks()] == [numbered(2, "2")]
    assert engine.given_up == 0


async def test_a_stream_that_pauses_sends_what_waits_and_ends_no_answer(gate: Gate) -> None:
    gate.engine.script = engine = Resuming()
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        await host.chunk()
        assert engine.feed is not None
        engine.feed.more_follows()
        assert engine.feed.send("1")
        engine.feed.close()
        assert await host.chunk() == numbered(1, "1") + PAUSE
        assert await host.at_end()
        engine.last.set_result(HttpReply())


async def test_who_left_before_a_stream_was_taken_up_takes_it_from_nobody(gate: Gate) -> None:
    gate.engine.script = engine = Resuming()
    async with gate.host() as first, gate.host() as second:
        await first.send(post())
        await first.head()
        await first.chunk()
        await second.send(get())
        await eventually(lambda: len(gate.engine.seen) == 2)
        second.abort()
        await eventually(lambda: gate.connections == 1)
        engine.go_on.set()
        await eventually(lambda: engine.resumed == [False])
        assert engine.feed is not None
        assert engine.feed.send("1")
        assert await first.chunk() == numbered(1, "1")
        engine.last.set_result(HttpReply(body="2"))
        assert [chunk async for chunk in first.chunks()] == [numbered(2, "2")]


async def test_who_leaves_a_lasting_stream_is_given_up_only_with_it(gate: Gate) -> None:
    gate.engine.script = engine = Resuming()
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        feed = engine.feed
        assert feed is not None
        host.abort()
        await eventually(lambda: feed.is_closed)
    assert engine.given_up == 0
    assert feed.send("1")
    feed.discard()
    assert (engine.given_up, feed.send("2")) == (1, False)
    engine.last.set_result(HttpReply())
    await eventually(gate.emitted.answered)


async def test_a_host_that_does_not_read_a_stream_that_another_connection_has_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = never_too_slow(monkeypatch)
    engine = Resuming()
    engine.go_on.set()
    async with opened(engine, write_timeout=MOMENT) as gate:
        first = await RawHost.connect(gate.address, limit=1024)
        await first.send(post())
        await eventually(lambda: engine.feed is not None)
        assert engine.feed is not None
        while not connections[0].transport.get_write_buffer_size():
            assert engine.feed.send("x" * 2**20)
            await asyncio.sleep(0)
        async with gate.host() as second:
            await second.send(get())
            await second.head()
            async with bounded():
                await connections[0].lost
            engine.last.set_result(HttpReply(body="2"))
            assert [chunk async for chunk in second.chunks()][-1].endswith(b"\ndata: 2\n\n")
        await first.close()
