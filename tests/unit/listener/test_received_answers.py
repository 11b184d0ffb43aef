"""Whether a host has received its answer, as the engine learns it."""

import asyncio
import socket
import struct

import pytest

from helpers.host.raw import RawHost, post
from helpers.virtual_time import keep_busy
from helpers.waiting import eventually
from taskgate.listener.protocol import CONFIRMED
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import Gate, opened

LARGE = "x" * 16_000_000
"""More than the system takes for a host that reads nothing."""
HEADERS = (("X-More", "yes"),)


class Answers:
    """An engine that notes what it learns of each answer. With `streams` each is the last event of a stream."""

    def __init__(self, reply: HttpReply | None = None, *, streams: bool = False) -> None:
        self.received: list[bool] = []
        self._reply, self._streams = reply or HttpReply(body="{}"), streams

    async def __call__(self, exchange: Exchange) -> HttpReply:
        exchange.on_sent(self.received.append)
        if self._streams:
            exchange.stream()
        return self._reply


async def some_turns() -> None:
    """Let the loop do what is ready, in which no answer comes to count as received for the time alone."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("headers", [(), HEADERS])
async def test_an_answer_is_received_when_the_next_request_comes(
    streams: bool, headers: tuple[tuple[str, str], ...]
) -> None:
    engine = Answers(HttpReply(body="{}", headers=headers), streams=streams)
    async with opened(engine) as gate, gate.host() as host:
        await host.ask(post())
        await some_turns()
        assert engine.received == []
        await host.ask(post())
        assert engine.received == [True]
    await eventually(lambda: engine.received == [True, True])


async def test_an_answer_is_received_when_a_moment_has_passed() -> None:
    engine = Answers()
    async with opened(engine) as gate, gate.host() as host:
        await host.ask(post())
        await eventually(lambda: engine.received == [True])


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("closes", [False, True])
async def test_an_answer_whose_host_resets_the_connection_is_not_received(streams: bool, closes: bool) -> None:
    engine = Answers(streams=streams)
    async with opened(engine) as gate, gate.host() as host:
        await host.send(post(Connection="close") if closes else post())
        await host.head()
        host.reset()
        await some_turns()
        assert engine.received == [False]


@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_that_has_not_left_whole_is_not_received(streams: bool) -> None:
    engine = Answers(HttpReply(body=LARGE), streams=streams)
    async with opened(engine) as gate:
        host = await RawHost.connect(gate.address, limit=1024)
        await host.send(post())
        await host.some(1024)
        await asyncio.sleep(10 * CONFIRMED)
        assert engine.received == []
        host.reset()
        await eventually(lambda: engine.received == [False])


async def test_an_answer_that_the_system_of_its_host_has_no_room_for_is_not_received() -> None:
    """It has left the gateway whole, and waits in the system of the machine."""
    engine, loop = Answers(HttpReply(body=f'"{"x" * 60_000}"')), asyncio.get_running_loop()
    async with opened(engine) as gate:
        with socket.socket() as host:
            host.setblocking(False)
            host.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(host, gate.address)
            await loop.sock_sendall(host, post())
            await asyncio.sleep(10 * CONFIRMED)
            assert engine.received == []
        await eventually(lambda: engine.received == [False])


async def test_a_host_that_is_gone_receives_nothing(gate: Gate) -> None:
    received: list[bool] = []
    go_on = asyncio.Event()

    async def work(exchange: Exchange) -> HttpReply:
        exchange.on_sent(received.append)
        await go_on.wait()
        exchange.on_sent(received.append)
        return HttpReply(body="{}")

    gate.engine.script = work
    async with gate.host() as host:
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        host.abort()
        await eventually(lambda: received == [False])
        go_on.set()
        await eventually(lambda: received == [False, False])


async def test_an_answer_is_received_by_a_host_that_reads_it_and_leaves() -> None:
    engine = Answers()
    async with opened(engine) as gate, gate.host() as host:
        await host.ask(post())
        await host.close()
        await some_turns()
        assert engine.received == [True]


async def test_a_reset_that_the_look_for_receipt_sees_first_is_a_loss() -> None:
    engine, loop = Answers(), asyncio.get_running_loop()
    async with opened(engine) as gate:
        with socket.socket() as host:
            host.setblocking(False)
            host.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await loop.sock_connect(host, gate.address)
            await loop.sock_sendall(host, post())
            await loop.sock_recv(host, 65536)
            # Both timers are due at the next turn: the reset comes after the loop has looked at its sockets.
            loop.call_later(0, host.close)
            keep_busy(2 * CONFIRMED)
            await eventually(lambda: engine.received)
    assert engine.received == [False]
