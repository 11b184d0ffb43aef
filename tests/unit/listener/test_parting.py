"""Hosts that are sent to another gateway: told in time, not cut off, and asked to come back elsewhere."""

import asyncio
import socket
from dataclasses import dataclass
from datetime import timedelta

import pytest

from helpers.host.raw import RawHost, get, post
from helpers.manual_clock import ManualClock
from helpers.waiting import bounded, eventually
from taskgate.listener.acceptor import make_deaf
from taskgate.listener.protocol import MOMENT, HostConnection
from taskgate.streams.event_log import EventBudget, MemoryEventLog
from taskgate.streams.event_stream import PAUSE, ResumableEventStream
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.streams.log_entries import StreamOrigin
from taskgate.streams.sse_connection import SseConnection
from unit.listener.gate import Gate, opened

LONG = timedelta(minutes=1)


async def test_a_gateway_that_retires_serves_on_and_each_answer_ends_its_connection(gate: Gate) -> None:
    """A balancer that keeps connections would otherwise send a request on one just as it is closed."""
    async with gate.host() as before:
        assert "connection" not in (await before.ask(post())).headers
        gate.listener.retire()
        async with gate.host() as after:
            for host in (before, after):
                answer = await host.ask(post())
                assert (answer.status, answer.headers["connection"]) == (200, "close")
                assert await host.at_end()


@pytest.mark.parametrize("path", ["/nowhere", "/mcp"])
async def test_a_refusal_and_a_stream_say_so_as_well(gate: Gate, path: str) -> None:
    async def streaming(exchange: Exchange) -> HttpReply:
        exchange.stream()
        return HttpReply(body="{}")

    gate.engine.script = streaming
    gate.listener.retire()
    async with gate.host() as host:
        assert (await host.ask(post(path=path))).headers["connection"] == "close"
        assert await host.at_end()


async def test_a_stream_that_promised_to_keep_its_connection_keeps_it_for_one_more_answer(gate: Gate) -> None:
    """Its host may send another request the moment it ends, and has not been told that it should not."""
    go_on = asyncio.Event()

    async def streaming(exchange: Exchange) -> HttpReply:
        exchange.stream()
        await go_on.wait()
        return HttpReply(body="{}")

    gate.engine.script = streaming
    async with gate.host() as host:
        await host.send(post())
        assert "connection" not in (await host.head()).headers
        gate.listener.retire()
        go_on.set()
        assert [chunk async for chunk in host.chunks()] == [b"event: message\ndata: {}\n\n"]
        assert (await host.ask(post())).headers["connection"] == "close"
        assert await host.at_end()


@pytest.mark.parametrize("count", [1, 40])
async def test_a_connection_that_was_made_is_served_though_nobody_had_taken_it_up(gate: Gate, count: int) -> None:
    """The system accepts on our behalf: closing the socket would reset connections whose request is on its way."""
    waiting = [socket.create_connection(gate.address) for _ in range(count)]
    for one in waiting:
        one.sendall(post())
    gate.listener.stop_accepting()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*gate.address)
    for one in waiting:
        one.setblocking(False)
        host = RawHost(*await asyncio.open_connection(sock=one))
        assert (await host.answer()).status == 200
        await host.close()


@pytest.mark.real_time
async def test_who_comes_when_no_connection_is_to_begin_is_refused_and_not_reset(gate: Gate) -> None:
    """A balancer sends such a request elsewhere, and one that was reset may have been acted upon."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        if not make_deaf(other):
            pytest.skip("this user may filter no socket")
    before = socket.create_connection(gate.address)
    gate.listener.turn_away()
    coming = asyncio.create_task(asyncio.open_connection(*gate.address))
    await _some_turns()
    assert not coming.done()
    gate.listener.stop_accepting()
    async with bounded():
        with pytest.raises(ConnectionRefusedError):
            await coming
    before.setblocking(False)
    host = RawHost(*await asyncio.open_connection(sock=before))
    assert (await host.ask(post())).status == 200
    await host.close()


async def test_a_socket_that_cannot_be_made_deaf_is_closed_all_the_same(gate: Gate) -> None:
    pair = socket.socketpair()
    with pair[0], pair[1]:
        pair[0].close()
        assert not make_deaf(pair[0])
    gate.listener.stop_accepting()
    gate.listener.turn_away()


async def test_what_was_taken_up_late_is_ended_by_a_close(gate: Gate) -> None:
    with socket.create_connection(gate.address) as one:
        gate.listener.stop_accepting()
        await gate.close()
        one.settimeout(5)
        assert one.recv(1) == b""


async def test_connections_that_wait_are_ended_and_what_is_under_way_is_not(gate: Gate) -> None:
    go_on, get_streams = asyncio.Event(), []

    async def answer(exchange: Exchange) -> HttpReply:
        if exchange.head.method == "GET":
            get_streams.append(exchange.stream())
            await get_streams[0].wait_closed()
            return HttpReply()
        await go_on.wait()
        return HttpReply(body="{}")

    gate.engine.script = answer
    async with gate.host() as idle, gate.host() as asking, gate.host() as listening:
        await asking.send(post())
        await listening.send(get())
        await listening.head()
        await eventually(lambda: len(gate.engine.seen) == 2)
        gate.listener.stop_accepting()
        gate.listener.wind_down()
        assert await idle.at_end()
        assert [chunk async for chunk in listening.chunks()] == []
        assert await listening.at_end()
        go_on.set()
        assert (await asking.answer()).headers["connection"] == "close"
        async with bounded():
            await gate.listener.close(LONG)


async def test_a_request_that_came_as_its_connection_was_to_end_gets_the_last_answer(gate: Gate) -> None:
    """It is with the system, and the loop has not read it yet: closing would lose it without a trace."""
    async with gate.host() as used, gate.host() as fresh:
        assert (await used.ask(post())).status == 200
        await _some_turns()
        for host in (used, fresh):
            host.send_at_once(post())
        gate.listener.wind_down()
        for host in (used, fresh):
            answer = await host.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await host.at_end()


async def test_a_request_of_which_a_part_was_read_gets_the_last_answer(gate: Gate) -> None:
    async with gate.host() as host:
        assert (await host.ask(post())).status == 200
        last = post()
        await host.send(last[:60])
        await _some_turns()
        gate.listener.wind_down()
        await _some_turns()
        answer = await host.ask(last[60:])
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await host.at_end()


async def test_a_connection_that_waits_hears_of_its_end_before_the_loop_goes_on(gate: Gate) -> None:
    """Whoever keeps it for the next request must not take it for good any longer than can be helped."""
    with socket.create_connection(gate.address) as waiting:
        waiting.sendall(post())
        await eventually(gate.emitted.answered)
        await _some_turns()
        gate.listener.wind_down()
        waiting.settimeout(5)
        said = b""
        while piece := waiting.recv(4096):
            said += piece
        assert said.startswith(b"HTTP/1.1 200 ")


async def test_a_stream_that_is_ended_leaves_its_connection_to_one_request_more(gate: Gate) -> None:
    """A balancer takes it for one that is free, and sends the next request there at once."""
    gate.engine.script = _until_it_ends
    async with gate.host() as host:
        await host.send(get())
        await host.head()
        gate.engine.script = None
        gate.listener.retire()
        gate.listener.wind_down()
        assert [chunk async for chunk in host.chunks()] == []
        closing = asyncio.create_task(gate.listener.close(LONG))
        await _some_turns()
        answer = await host.ask(post())
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        async with bounded():
            await closing


async def test_but_not_for_long(gate: Gate) -> None:
    gate.engine.script = _until_it_ends
    async with gate.host() as host:
        await host.send(get())
        await host.head()
        gate.listener.retire()
        gate.listener.wind_down()
        assert [chunk async for chunk in host.chunks()] == []
        assert await host.at_end()


async def _until_it_ends(exchange: Exchange) -> HttpReply:
    await exchange.stream().wait_closed()
    return HttpReply()


@dataclass(frozen=True)
class Opening:
    """Makes streams that can be taken up again; `is_movable` at another process, too."""

    is_movable: bool
    made: list[ResumableEventStream]

    def open(self, kind: str, line: SseConnection) -> ResumableEventStream:
        clock = ManualClock()
        log = MemoryEventLog(clock, budget=EventBudget(), caller="context")
        feed = ResumableEventStream(line, name=f"{kind}1-0", log=log, clock=clock, on_end=lambda _: None)
        if self.is_movable:
            feed.origin = StreamOrigin(request=1, task="t")
        self.made.append(feed)
        return feed


class Waiting:
    """An engine whose streams wait for what comes `at_last`, or until nobody can come back for it."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self.at_last = asyncio.Event()
        self.given_up = False

    async def __call__(self, exchange: Exchange) -> HttpReply:
        exchange.opener = self._opening.open
        exchange.stream().send("{}")
        exchange.on_disconnect(self._give_up)
        await self.at_last.wait()
        return HttpReply(body=None if self.given_up else '{"at":"last"}')

    def _give_up(self) -> None:
        self.given_up = True
        self.at_last.set()


async def test_a_stream_that_others_can_go_on_with_is_not_waited_for(gate: Gate) -> None:
    """Its host is told to come back, which leads to another gateway by then."""
    gate.engine.script = waiting = Waiting(Opening(True, made := []))
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        await eventually(lambda: made)
        gate.listener.wind_down()
        assert not made[0].is_closed, "what ends in good time ends here"
        await gate.close(LONG)
        assert [chunk async for chunk in host.chunks()][-1] == PAUSE
        assert await host.at_end()
    assert (waiting.given_up, made[0].is_ended) == (True, True)


async def test_an_answer_that_comes_in_time_is_not_sent_elsewhere_for(gate: Gate) -> None:
    gate.engine.script = waiting = Waiting(Opening(True, made := []))
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        await eventually(lambda: made)
        closing = asyncio.create_task(gate.listener.close(LONG))
        await _some_turns()
        waiting.at_last.set()
        assert b'{"at":"last"}' in [chunk async for chunk in host.chunks()][-1]
        async with bounded():
            await closing
    assert not waiting.given_up


async def test_a_stream_that_nobody_else_can_go_on_with_is_waited_for(gate: Gate) -> None:
    gate.engine.script = waiting = Waiting(Opening(False, made := []))
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        await eventually(lambda: made)
        closing = asyncio.create_task(gate.listener.close(LONG))
        await asyncio.sleep(LONG.total_seconds() / 2)
        assert not made[0].is_closed
        waiting.at_last.set()
        assert b'{"at":"last"}' in [chunk async for chunk in host.chunks()][-1]
        async with bounded():
            await closing


async def _some_turns() -> None:
    """What the loop does next, it does; nothing tells that something was not done."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_promise_of_a_connection_that_is_lost_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[HostConnection] = []
    keep, begun, go_on = HostConnection.keep_promise, asyncio.Event(), asyncio.Event()

    def keep_promise(self: HostConnection) -> None:
        connections.append(self)
        keep(self)

    class Trail:
        is_full = True

        async def room(self) -> bool:
            begun.set()
            await go_on.wait()
            return True

    monkeypatch.setattr(HostConnection, "keep_promise", keep_promise)
    async with opened(audit_capacity=Trail()) as gate:
        async with gate.host() as host:
            await host.send(post())
            async with bounded():
                await begun.wait()
            gate.listener.wind_down()
            await asyncio.sleep(1.5 * MOMENT)
            assert len(connections) > 1
            host.abort()
            async with bounded():
                await connections[0].lost
        made = len(connections)
        await asyncio.sleep(2 * MOMENT)
        go_on.set()
        assert len(connections) == made
