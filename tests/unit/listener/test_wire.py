"""Connections under TLS: the same as without, and nothing of what a peer makes of its handshake matters to others."""

import asyncio
import logging
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.certificates import Authority
from helpers.host.raw import RawHost, get, post
from helpers.waiting import bounded, eventually
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.telemetry.events import StreamEnded
from unit.listener.gate import MOMENT, PLANTED
from unit.listener.secure import Papers, papers

LARGE = '{"result":"' + "x" * 2**24 + '"}'
"""More than the kernel takes for a host that does not read."""

GARBAGE = {
    "a plain request": post(f'"{PLANTED}"', Authorization=PLANTED),
    "noise": b"\x00\xff" * 50 + PLANTED.encode(),
    "a record of no known kind": b"\x7f\x03\x03\x00\x10" + PLANTED.encode() * 2,
    "a hello that is none": b"\x16\x03\x01\x00\x2a\x01\x00\x00\x26" + PLANTED.encode() * 3,
    "a record that is too long": b"\x16\x03\x01\xff\xff" + PLANTED.encode() * 10,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return papers(tmp_path_factory.mktemp("papers"))


async def test_requests_are_answered_one_after_another(made: Papers) -> None:
    async with made.opened() as gate, made.host(gate) as host:
        for number in (1, 2, 3):
            assert (await host.ask(post())).body == b'{"answer":%d}' % number
        assert host.tls.version() == "TLSv1.3"
        assert gate.emitted.answered() == [("mcp", "POST", 200)] * 3


async def test_a_request_in_many_small_records_is_put_together(made: Papers) -> None:
    async with made.opened() as gate, made.host(gate) as host:
        assert (await host.ask(*(bytes([each]) for each in post('{"a":1}')))).status == 200
        assert gate.engine.bodies == [b'{"a":1}']


@pytest.mark.parametrize("megabytes", [3, 12])
async def test_an_answer_of_megabytes_comes_whole(made: Papers, megabytes: int) -> None:
    text = '{"result":"' + "x" * (megabytes * 2**20) + '"}'

    async def answer(_: Exchange) -> HttpReply:
        return HttpReply(body=text)

    async with made.opened(answer) as gate, made.host(gate) as host:
        for _ in range(2):
            assert (await host.ask(post())).body == text.encode()


async def test_a_body_of_megabytes_comes_whole(made: Papers) -> None:
    text = '{"x":"' + "y" * 3 * 2**20 + '"}'
    async with made.opened(max_body=2**22) as gate, made.host(gate) as host:
        assert (await host.ask(post(text))).status == 200
        assert gate.engine.bodies[0] == text.encode()


async def test_an_event_stream_comes_message_by_message(made: Papers) -> None:
    told = asyncio.Event()

    async def answer(exchange: Exchange) -> HttpReply:
        feed = exchange.stream()
        feed.send('{"number":1}')
        await told.wait()
        return HttpReply(body="{}")

    async with made.opened(answer) as gate, made.host(gate) as host:
        await host.send(post())
        assert (await host.head()).headers["content-type"] == "text/event-stream"
        assert await host.chunk() == b'event: message\ndata: {"number":1}\n\n'
        told.set()
        assert [chunk async for chunk in host.chunks()] == [b"event: message\ndata: {}\n\n"]
        assert (await host.ask(post())).status == 200


@pytest.mark.parametrize("how", ["goodbye", "reset"])
async def test_a_host_that_leaves_ends_its_stream(made: Papers, how: str) -> None:
    async def answer(exchange: Exchange) -> HttpReply:
        await exchange.stream().wait_closed()
        return HttpReply()

    async with made.opened(answer) as gate, made.host(gate) as host:
        await host.send(get())
        await host.head()
        if how == "goodbye":
            await host.close()
        else:
            host.abort()
        await eventually(lambda: StreamEnded("downstream", "get") in gate.emitted.all)
        await gate.all_gone()


async def test_a_refusal_comes_before_the_end_of_the_connection(made: Papers) -> None:
    async with made.opened() as gate, made.host(gate) as host:
        answer = await host.ask(post("x" * 5000))
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await host.at_end()
    async with made.opened() as gate, made.host(gate) as host:
        assert (await host.ask(f"{PLANTED}\r\n\r\n")).status == 400
        assert await host.at_end()
        await host.send(PLANTED)


async def test_a_host_that_does_not_read_its_answer_is_dropped(made: Papers) -> None:
    async def work(_: Exchange) -> HttpReply:
        return HttpReply(body=LARGE)

    async with made.opened(work, write_timeout=MOMENT) as gate, made.host(gate, limit=1024) as host:
        await host.send(post())
        await gate.all_gone()
        host.abort()


async def test_what_waits_for_a_slow_host_is_seen_and_bounded(made: Papers) -> None:
    sent: list[int] = []

    async def pour(exchange: Exchange) -> HttpReply:
        feed = exchange.stream()
        while feed.send("x" * 2**16):
            sent.append(1)
            await eventually(lambda: feed.connection is None or not feed.connection.has_pieces)
        return HttpReply()

    async with made.opened(pour, write_timeout=MOMENT) as gate, made.host(gate, limit=1024) as host:
        await host.send(post())
        await gate.all_gone()
        host.abort()
    # What the kernel took, and not what a feed may hold for ever.
    assert sum(sent) * 2**16 < 2**25


@pytest.mark.parametrize("start", GARBAGE.values(), ids=GARBAGE)
async def test_what_is_no_handshake_ends_its_own_connection_alone(
    made: Papers, start: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with made.opened() as gate, made.host(gate) as other:
        async with gate.host() as host:
            # Nothing is waited for here: the listener may have had enough before all has left.
            host.send_at_once(start)
            assert PLANTED.encode() not in await host.rest()
        assert (await other.ask(post())).status == 200
        assert gate.emitted.answered() == [("mcp", "POST", 200)]
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_a_flood_of_bad_handshakes_leaves_nothing_and_delays_nobody(made: Papers) -> None:
    async with made.opened() as gate, made.host(gate) as other:
        for _ in range(10):
            knocking = [RawHost.connect(gate.address) for _ in range(20)]
            hosts = await asyncio.gather(*knocking)
            for number, host in enumerate(hosts):
                host.send_at_once([*GARBAGE.values()][number % len(GARBAGE)])
                if number % 2:
                    host.abort()
            assert (await other.ask(post())).status == 200
            for host in hosts:
                await host.close()
        await eventually(lambda: gate.connections == 1)


@pytest.mark.parametrize(
    "start", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], ids=["silent", "half a hello"]
)
async def test_a_handshake_that_takes_too_long_is_not_waited_for(made: Papers, start: bytes) -> None:
    async with made.opened(tls={"handshake_timeout": MOMENT}) as gate:
        async with gate.host() as host:
            await host.send(start)
            assert await host.at_end()
        assert not gate.connections
        assert gate.emitted.all == []


async def test_the_time_for_the_handshake_ends_with_it(made: Papers) -> None:
    async with made.opened(tls={"handshake_timeout": MOMENT}) as gate:
        trust = made.authority.trusting()
        async with made.host(gate, trust) as host, gate.host() as silent:
            assert await silent.at_end()
            assert (await host.ask(post())).status == 200


async def test_a_head_that_does_not_come_after_the_handshake_is_not_waited_for(made: Papers) -> None:
    async with made.opened(head_timeout=MOMENT) as gate, made.host(gate) as host:
        assert await host.at_end()


async def test_closing_ends_handshakes_idle_connections_and_what_hangs(made: Papers) -> None:
    hung = asyncio.Event()

    async def hang(_: Exchange) -> HttpReply:
        hung.set()
        await asyncio.Event().wait()
        return HttpReply()

    never = {"handshake_timeout": timedelta(minutes=1)}
    async with (
        made.opened(hang, tls=never) as gate,
        gate.host() as greeting,
        made.host(gate) as idle,
        made.host(gate) as working,
    ):
        await greeting.send(b"\x16\x03\x01")
        await working.send(post())
        async with bounded():
            await hung.wait()
        await eventually(lambda: gate.connections == 3)
        await gate.close(timedelta(seconds=0.01))
        assert not gate.connections
        assert await greeting.at_end()
        assert await idle.at_end()
        assert await working.at_end()


async def test_closing_waits_for_an_answer_and_for_no_handshake(made: Papers) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(_: Exchange) -> HttpReply:
        begun.set()
        await go_on.wait()
        return HttpReply(body="{}")

    never = {"handshake_timeout": timedelta(minutes=1)}
    async with made.opened(work, tls=never) as gate, gate.host() as greeting, made.host(gate) as host:
        await host.send(post())
        async with bounded():
            await begun.wait()
        closing = asyncio.create_task(gate.close(timedelta(minutes=1)))
        assert await greeting.at_end()
        go_on.set()
        assert (await host.answer()).headers["connection"] == "close"
        assert await host.at_end()
        async with bounded():
            await closing


async def test_a_connection_that_nobody_said_hello_on_can_be_closed_at_once(made: Papers) -> None:
    async with made.opened() as gate, gate.host() as host:
        await eventually(lambda: gate.connections)
        await gate.close()
        assert not gate.connections
        assert await host.at_end()


async def test_hosts_with_another_authority_do_not_come_in(made: Papers, tmp_path: Path) -> None:
    async with made.opened() as gate:
        with pytest.raises(ssl.SSLCertVerificationError):
            async with made.host(gate, Authority(tmp_path).trusting()):
                pass
        await gate.all_gone()
