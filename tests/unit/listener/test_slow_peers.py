"""A peer that is slow, silent or does not read loses its connection, and nothing else happens."""

import asyncio
from datetime import timedelta

import pytest

from helpers.host.raw import RawHost, get, post
from helpers.virtual_time import keep_busy, turns
from helpers.waiting import bounded, eventually
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.telemetry.events import StreamEnded
from unit.listener.gate import MOMENT, PLANTED, Gate, bodies_kept, never_too_slow, opened

LARGE = '{"result":"' + "x" * 2**24 + '"}'
"""More than the kernel takes for a host that does not read."""


async def a_moment(gate: Gate) -> None:
    """Let the time pass that `gate` gives to a silent peer."""
    async with gate.host() as silent:
        assert await silent.at_end()


async def test_a_peer_that_says_nothing_is_left() -> None:
    async with opened(head_timeout=MOMENT) as gate, gate.host() as host:
        assert await host.at_end()
        assert gate.emitted.all == []


@pytest.mark.parametrize("start", ["P", f"POST /{PLANTED} HTT", f"POST /mcp HTTP/1.1\r\nAuthorization: {PLANTED}"])
async def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(start: str) -> None:
    async with opened(head_timeout=MOMENT) as gate, gate.host() as host:
        answer = await host.ask(start)
        assert (answer.status, answer.body) == (408, b"Request not received in time\n")
        assert answer.headers["connection"] == "close"
        assert await host.at_end()
        assert gate.emitted.answered() == [("other", "_OTHER", 408)]
        assert gate.engine.seen == []


async def test_a_second_head_is_not_waited_for_longer_than_the_first() -> None:
    async with opened(head_timeout=MOMENT) as gate, gate.host() as host:
        assert (await host.ask(post())).status == 200
        assert (await host.ask(get()[:-1])).status == 408
        assert await host.at_end()


async def test_an_empty_line_after_a_request_is_not_the_start_of_another() -> None:
    async with opened(head_timeout=MOMENT) as gate, gate.host() as host:
        assert (await host.ask(post())).status == 200
        await host.send("\r\n")
        await a_moment(gate)
        await a_moment(gate)
        assert (await host.ask(post())).status == 200


async def test_a_head_that_drips_gets_no_more_time() -> None:
    async with opened(head_timeout=MOMENT, max_header=2**20) as gate, gate.host() as host:
        await host.send("GET /mcp HTTP/1.1\r\nX-Slow: ")

        async def drip() -> None:
            while True:
                await host.send("x")
                await asyncio.sleep(0)

        dripping = asyncio.create_task(drip())
        assert (await host.answer()).status == 408
        dripping.cancel()
        await asyncio.wait([dripping])
        assert gate.engine.seen == []


async def test_a_slow_head_behind_a_request_waits_for_its_answer_and_is_then_refused() -> None:
    go_on = asyncio.Event()

    async def work(_: Exchange) -> HttpReply:
        await go_on.wait()
        return HttpReply(body="{}")

    async with opened(work, head_timeout=MOMENT) as gate, gate.host() as host:
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        await host.send("GET /mcp HT")
        for _ in range(2):
            await a_moment(gate)
        go_on.set()
        assert [(await host.answer()).status for _ in range(2)] == [200, 408]
        assert await host.at_end()


async def test_a_head_that_came_while_the_gateway_did_not_read_is_answered() -> None:
    go_on = asyncio.Event()

    async def work(_: Exchange) -> HttpReply:
        await go_on.wait()
        return HttpReply(body="{}")

    async with opened(work, head_timeout=MOMENT, max_body=10**6, max_header=2**16) as gate, gate.host() as host:
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        # Reading stops in the midst of the third head: so much waits by then.
        last = post(X="y" * 10_000)
        await host.send(post("x" * (256 * 1024 - 5_000)) + last[:30])
        await turns()
        for piece in (last[30:9_000], last[9_000:]):
            await host.send(piece)
            await turns()
        await a_moment(gate)
        await a_moment(gate)
        go_on.set()
        assert [(await host.answer()).status for _ in range(3)] == [200] * 3


async def test_a_body_whose_time_is_over_as_a_chunk_ends_is_not_waited_for() -> None:
    async with opened(read_timeout=MOMENT) as gate, gate.host() as host:
        await host.send(post("2\r\n{}", Content_Length="", Transfer_Encoding="chunked"))
        await turns()
        await host.send("\r\n")
        # Both become due meanwhile.
        keep_busy(2 * MOMENT.total_seconds())
        assert (await host.answer()).status == 408


async def test_an_idle_connection_whose_next_head_has_begun_is_not_closed() -> None:
    async with opened(idle_timeout=MOMENT) as gate, gate.host() as host:
        assert (await host.ask(post())).status == 200
        next_one = post()
        await host.send(next_one[:60])
        async with gate.host() as idle:
            assert (await idle.ask(post())).status == 200
            assert await idle.at_end()
        assert (await host.ask(next_one[60:])).status == 200


async def test_an_idle_connection_is_closed() -> None:
    async with opened(idle_timeout=MOMENT) as gate, gate.host() as host:
        assert (await host.ask(post())).status == 200
        assert await host.at_end()
        assert gate.emitted.answered() == [("mcp", "POST", 200)]


async def test_a_connection_that_waits_for_its_answer_is_not_idle() -> None:
    go_on = asyncio.Event()

    async def work(_: Exchange) -> HttpReply:
        await go_on.wait()
        return HttpReply(body="{}")

    async with opened(work, idle_timeout=MOMENT, head_timeout=MOMENT, read_timeout=MOMENT) as gate, gate.host() as host:
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        await a_moment(gate)
        await a_moment(gate)
        go_on.set()
        assert (await host.answer()).status == 200


async def test_a_host_that_does_not_read_its_stream_loses_it() -> None:
    gone = asyncio.Event()

    async def pour(exchange: Exchange) -> HttpReply:
        exchange.on_disconnect(gone.set)
        feed = exchange.stream()
        while feed.send("x" * 2**16):
            await asyncio.sleep(0)
        await gone.wait()
        return HttpReply()

    async with opened(pour, write_timeout=MOMENT) as gate:
        host = await RawHost.connect(gate.address, limit=1024)
        await host.send(post())
        await eventually(gate.emitted.answered)
        assert gone.is_set()
        assert StreamEnded("downstream", "response") in gate.emitted.all
        await host.close()


async def test_a_host_that_does_not_read_its_answer_is_dropped() -> None:
    async def work(_: Exchange) -> HttpReply:
        return HttpReply(body=LARGE)

    async with opened(work, write_timeout=MOMENT) as gate:
        host = await RawHost.connect(gate.address, limit=1024)
        await host.send(post())
        await gate.all_gone()
        await host.close()


async def test_a_host_that_does_not_read_its_last_answer_is_dropped_too() -> None:
    async def work(_: Exchange) -> HttpReply:
        return HttpReply(body=LARGE)

    async with opened(work, write_timeout=MOMENT) as gate:
        host = await RawHost.connect(gate.address, limit=1024)
        await host.send(post(Connection="close"))
        await gate.all_gone()
        await host.close()


async def test_a_host_that_reads_slowly_is_served_to_the_end() -> None:
    async def work(_: Exchange) -> HttpReply:
        return HttpReply(body=LARGE)

    async with opened(work, write_timeout=5 * MOMENT, head_timeout=MOMENT) as gate:
        host = await RawHost.connect(gate.address, limit=1024)
        await host.send(post())
        head = await host.head()
        left = int(head.headers["content-length"])
        for _ in range(7):
            left -= await read_off(host, 2**21)
            await a_moment(gate)
        assert await read_off(host, left) == left
        await host.close()


async def test_a_host_that_has_caught_up_is_not_watched_any_more() -> None:
    async def work(_: Exchange) -> HttpReply:
        return HttpReply(body=LARGE)

    async with opened(work, write_timeout=MOMENT, head_timeout=MOMENT) as gate, gate.host() as host:
        for _ in range(2):
            assert len((await host.ask(post())).body) == len(LARGE)
            for _ in range(3):
                await a_moment(gate)


async def test_a_host_that_leaves_a_little_unread_at_the_end_is_dropped_too() -> None:
    # So little that nobody who writes had to wait for it.
    async def work(_: Exchange) -> HttpReply:
        return HttpReply(body="x" * 2**15)

    async with opened(work, write_timeout=MOMENT) as gate:
        host = await RawHost.connect(gate.address, limit=1024)
        while not gate.is_full:
            count = len(gate.emitted.answered())
            await host.send(post())
            await eventually(lambda before=count: len(gate.emitted.answered()) > before)
        gate.engine.script = None
        await host.send(post(Connection="close"))
        await gate.all_gone()
        await host.close()


async def read_off(host: RawHost, size: int) -> int:
    """Read so many bytes of a body away."""
    left = size
    while left and (piece := await host.some(left)):
        left -= len(piece)
    return size - left


@pytest.mark.parametrize("start", [f"{PLANTED}\r\n\r\n", post(path="/nowhere", Content_Length="10")])
async def test_a_refused_peer_that_stays_is_left(start: str | bytes) -> None:
    async with opened() as gate, gate.host() as host:
        assert (await host.ask(start)).status >= 400
        await asyncio.sleep(0.5)
        assert gate.connections, "it may finish what it sends"
        await asyncio.sleep(1)
        assert not gate.connections


async def test_comments_do_not_pile_up_for_a_host_that_has_stopped() -> None:
    full, go_on = asyncio.Event(), asyncio.Event()

    async def pour(exchange: Exchange) -> HttpReply:
        feed = exchange.stream()
        while not gate.is_full:
            feed.send("x" * 5000)
            await asyncio.sleep(0)
        # More than the connection takes before it waits.
        feed.send("x" * 2**17)
        full.set()
        await go_on.wait()
        return HttpReply()

    async with opened(pour, sse_keepalive=timedelta(seconds=0.001), head_timeout=MOMENT) as gate:
        host = await RawHost.connect(gate.address, limit=1024)
        await host.send(get())
        async with bounded():
            await full.wait()
        await host.head()
        await a_moment(gate)
        go_on.set()
        comments = b"".join([chunk async for chunk in host.chunks()]).count(b": keep-alive\n\n")
        # Some before the host had stopped; those of the moment would be more.
        assert comments < 10
        await host.close()


async def test_a_host_that_sends_nothing_more_and_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(_: Exchange) -> HttpReply:
        # Written in one piece, as it is no usual answer.
        return HttpReply(status=201, body=LARGE)

    connections = never_too_slow(monkeypatch)
    async with opened(work, write_timeout=MOMENT) as gate:
        host = await RawHost.connect(gate.address, limit=1024)
        await host.send(post())
        await eventually(lambda: connections and connections[0].transport.get_write_buffer_size())
        host.stop_sending()
        async with bounded():
            await connections[0].lost
        await host.close()


async def test_nothing_more_is_read_while_much_waits_behind_a_request_and_it_is_answered_later() -> None:
    go_on = asyncio.Event()

    async def work(_: Exchange) -> HttpReply:
        await go_on.wait()
        return HttpReply(body="{}")

    async with opened(work, max_body=10**6, waiting_bytes=21_000) as gate, gate.host() as host:
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        await host.send(post("x" * 20_000))
        await turns()
        await host.send(post("x" * 900_000))
        await turns()
        go_on.set()
        assert [(await host.answer()).status for _ in range(3)] == [200] * 3
        assert list(map(len, gate.engine.bodies[1:])) == [20_000, 900_000]


@pytest.mark.parametrize("behind", ["a request", "bytes that are none"])
async def test_of_all_connections_no_more_waits_behind_requests_than_allowed(
    behind: str,
) -> None:
    go_on = asyncio.Event()

    async def work(_: Exchange) -> HttpReply:
        await go_on.wait()
        return HttpReply(body="{}")

    async with (
        opened(work, max_body=10**6, waiting_bytes=50_000) as gate,
        gate.host() as first,
        gate.host() as second,
        gate.host() as third,
    ):
        for number, host in enumerate((first, second, third), 1):
            await host.send(post())
            await eventually(lambda number=number: len(gate.engine.seen) == number)
        await first.send(post("x" * 30_000))
        await turns()
        await second.send(post("x" * 30_000) + (b"" if behind == "a request" else b"\0\r\n\r\n"))
        await third.send(post("x" * 10_000))
        await turns()
        go_on.set()
        assert [(await first.answer()).status for _ in range(2)] == [200, 200]
        assert [(await second.answer()).status for _ in range(2)] == [200, 429]
        assert await second.at_end()
        assert [(await third.answer()).status for _ in range(2)] == [200, 200], "a little may always wait"


async def test_what_waits_behind_a_request_ends_with_its_connection() -> None:
    go_on = asyncio.Event()

    async def work(_: Exchange) -> HttpReply:
        await go_on.wait()
        return HttpReply(body="{}")

    async with opened(work, max_body=10**6) as gate:
        async with gate.host() as host:
            await host.send(post())
            await eventually(lambda: gate.engine.seen)
            await host.send(post("x" * 15_000)[:-1])
            await eventually(bodies_kept)
        await eventually(lambda: not bodies_kept())
        go_on.set()
