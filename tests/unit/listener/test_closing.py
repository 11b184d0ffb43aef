"""Closing the listener: what is under way may finish, what would not end is ended, and nothing is left."""

import asyncio
import socket
from datetime import timedelta

import pytest

from helpers.host.raw import RawHost, get, post
from helpers.waiting import bounded, eventually
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import PLANTED, Gate, new_listener, opened

LONG = timedelta(minutes=1)


class Work:
    """An engine whose answers wait for the test; `streaming` makes event streams of them."""

    def __init__(self, *, streaming: bool = False) -> None:
        self.streaming = streaming
        self.go_on = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, exchange: Exchange) -> HttpReply:
        if self.streaming:
            exchange.stream()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return HttpReply(body="{}")


async def streaming_until_closed(exchange: Exchange) -> HttpReply:
    await exchange.stream().wait_closed()
    return HttpReply()


async def test_nobody_new_gets_in_once_the_listener_accepts_no_more(gate: Gate) -> None:
    async with gate.host() as host:
        assert (await host.ask(post())).status == 200
        gate.listener.stop_accepting()
        assert (await host.ask(post())).status == 200
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*gate.address)


async def test_the_port_is_free_after_the_close(gate: Gate) -> None:
    await gate.close()
    with socket.create_server(gate.address):
        pass


async def test_closing_twice_does_nothing_more(gate: Gate) -> None:
    await gate.close()
    await gate.close()


async def test_a_listener_that_never_started_can_be_closed() -> None:
    async with bounded():
        await new_listener().close(LONG)


async def test_idle_connections_end_at_once(gate: Gate) -> None:
    async with gate.host() as used, gate.host() as fresh:
        assert (await used.ask(post())).status == 200
        await gate.close(LONG)
        assert await used.at_end()
        assert await fresh.at_end()


async def test_get_streams_end_at_once_and_in_good_order(gate: Gate) -> None:
    gate.engine.script = streaming_until_closed
    async with gate.host() as host:
        await host.send(get())
        await host.head()
        await gate.close(LONG)
        assert [chunk async for chunk in host.chunks()] == []
        assert await host.at_end()


async def test_an_answer_under_way_is_finished_and_is_the_last(gate: Gate) -> None:
    gate.engine.script = work = Work()
    async with gate.host() as host:
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        closing = asyncio.create_task(gate.close(LONG))
        await eventually(lambda: gate.is_closing)
        work.go_on.set()
        answer = await host.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await host.at_end()
        async with bounded():
            await closing


async def test_a_stream_of_a_post_is_finished_too(gate: Gate) -> None:
    gate.engine.script = work = Work(streaming=True)
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        closing = asyncio.create_task(gate.close(LONG))
        await eventually(lambda: gate.is_closing)
        work.go_on.set()
        assert [chunk async for chunk in host.chunks()] == [b"event: message\ndata: {}\n\n"]
        assert await host.at_end()
        async with bounded():
            await closing


@pytest.mark.parametrize(("path", "status"), [("/mcp", 200), ("/nowhere", 404)])
async def test_a_request_that_came_just_before_the_close_gets_the_last_answer(
    gate: Gate, path: str, status: int
) -> None:
    async with gate.host() as host:
        assert (await host.ask(post())).status == 200
        host.send_at_once(post(path=path))
        await gate.close(LONG)
        answer = await host.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert await host.at_end()


async def test_requests_that_wait_behind_the_last_answer_get_none(gate: Gate) -> None:
    gate.engine.script = work = Work()
    async with gate.host() as host:
        await host.send(post() + post())
        await eventually(lambda: gate.engine.seen)
        closing = asyncio.create_task(gate.close(LONG))
        await eventually(lambda: gate.is_closing)
        work.go_on.set()
        assert (await host.answer()).headers["connection"] == "close"
        assert await host.at_end()
        async with bounded():
            await closing
    assert len(gate.engine.seen) == 1


async def test_a_request_whose_body_comes_during_the_close_is_answered_and_is_the_last(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(post("", Content_Length="2", Expect="100-continue"))
        assert (await host.head()).status == 100
        closing = asyncio.create_task(gate.close(LONG))
        await eventually(lambda: gate.is_closing)
        assert (await host.ask("{}")).headers["connection"] == "close"
        async with bounded():
            await closing


async def test_a_get_stream_that_begins_during_the_close_ends_at_once(gate: Gate) -> None:
    gate.engine.script = streaming_until_closed
    async with gate.host() as host:
        await host.send(get(Accept="*/*", Content_Length="2", Expect="100-continue"))
        assert (await host.head()).status == 100
        closing = asyncio.create_task(gate.close(LONG))
        await eventually(lambda: gate.is_closing)
        await host.send("{}")
        async with bounded():
            await closing
        assert (await host.answer()).headers["connection"] == "close"


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_what_hangs_is_dropped_after_the_grace(gate: Gate, streaming: bool) -> None:
    gate.engine.script = work = Work(streaming=streaming)
    async with gate.host() as host:
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        await gate.close(timedelta(seconds=0.01))
        assert work.cancelled == 1
        await host.rest()


async def test_a_host_that_does_not_read_cannot_hold_the_close(gate: Gate) -> None:
    async def answer(_: Exchange) -> HttpReply:
        return HttpReply(body="x" * 2**24)

    gate.engine.script = answer
    host = await RawHost.connect(gate.address, limit=1024)
    await host.send(post())
    await eventually(gate.emitted.answered)
    await gate.close(timedelta(seconds=0.01))
    await host.close()


async def test_a_get_stream_that_outlives_the_grace_is_reported_gone_once(gate: Gate) -> None:
    left: list[str] = []

    async def answer(exchange: Exchange) -> HttpReply:
        exchange.on_disconnect(lambda: left.append("left"))
        exchange.stream()
        await asyncio.Event().wait()
        return HttpReply()

    gate.engine.script = answer
    async with gate.host() as host:
        await host.send(get())
        await host.head()
        await gate.close(timedelta(seconds=0.01))
        assert left == ["left"]


async def test_work_whose_host_has_left_gets_the_grace_as_well(gate: Gate) -> None:
    gate.engine.script = work = Work()
    async with gate.host() as host:
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        host.abort()
        await gate.all_gone()
        closing = asyncio.create_task(gate.close(LONG))
        await eventually(lambda: gate.is_closing)
        assert not closing.done()
        work.go_on.set()
        async with bounded():
            await closing
    assert work.cancelled == 0


STUCK = {
    "half a head": "GET /mcp HT",
    "half a body": post(Content_Length="10"),
    "a refusal that is not left": f"{PLANTED}\r\n\r\n",
}


@pytest.mark.parametrize("start", STUCK.values(), ids=STUCK)
async def test_a_host_that_stays_cannot_hold_the_close(gate: Gate, start: str | bytes) -> None:
    async with gate.host() as host:
        await host.send(start)
        await gate.has_read()
        await gate.close(timedelta(seconds=0.01))
        await host.rest()
    assert gate.engine.seen == []


async def test_a_listener_that_was_closed_can_start_again() -> None:
    async with opened() as gate:
        await gate.close()
        bound = socket.create_server(("127.0.0.1", 0))
        assert await gate.listener.start(bound) == bound.getsockname()
        gate.address = bound.getsockname()
        async with gate.host() as host:
            assert (await host.ask(post())).status == 200
