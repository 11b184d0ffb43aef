"""Whoever is not let in is told so before the body has come, and nothing more is received from them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from helpers.host.raw import RawAnswer, RawHost, get, post, request_head
from helpers.virtual_time import turns
from helpers.waiting import eventually
from requirements import covers
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import MOMENT, Gate, bodies_kept, opened

CHUNKED = {"Content_Length": "", "Transfer_Encoding": "chunked"}
DENIED = HttpReply(status=401, body='{"error":{}}', headers=(("WWW-Authenticate", "Bearer"),))


async def deny(_: Exchange) -> HttpReply:
    return DENIED


async def deny_strangers(exchange: Exchange) -> HttpReply | None:
    return None if exchange.head.authorization else DENIED


@asynccontextmanager
async def leaving(gate: Gate) -> AsyncIterator[RawHost]:
    """A host that is gone before the engine knows whether it is let in."""

    async def dither(exchange: Exchange) -> None:
        gone = asyncio.Event()
        exchange.on_disconnect(gone.set)
        host.abort()
        await gone.wait()

    gate.engine.turn_away = dither
    async with gate.host() as host:
        yield host
        await eventually(gate.emitted.answered)


def turned_away(answer: RawAnswer) -> bool:
    """Whether this is the engine's own refusal, whole."""
    return (answer.status, answer.headers["www-authenticate"], answer.body) == (401, "Bearer", b'{"error":{}}')


@pytest.mark.parametrize("body", [b"", b"x" * 2**16], ids=["nothing", "some"])
@pytest.mark.parametrize(
    ("framing", "size"), [({"Content_Length": str(3 * 2**20)}, b""), (CHUNKED, b"20000\r\n")], ids=["length", "chunks"]
)
async def test_whoever_is_not_let_in_is_told_so_before_the_body_has_come(
    framing: dict[str, str], size: bytes, body: bytes
) -> None:
    async with opened(max_body=2**22) as gate, gate.host() as host:
        gate.engine.turn_away = deny
        answer = await host.ask(post("", **framing), size + body)
        assert turned_away(answer)
        assert answer.headers["connection"] == "close"
        assert await host.at_end()
        assert gate.engine.bodies == []
    assert gate.emitted.answered() == [("mcp", "POST", 401)]


@covers("T32")
async def test_of_whoever_is_not_let_in_nothing_more_is_kept() -> None:
    async with opened(max_body=2**24) as gate, gate.host() as host:
        gate.engine.turn_away = deny
        await host.send(post("", Content_Length=str(2**24)))
        assert turned_away(await host.answer())
        assert bodies_kept() == 0
        await host.send(*[b"x" * 2**20] * 15)
        assert bodies_kept() == 0
        host.stop_sending()
        assert await host.at_end()


async def test_whoever_leaves_before_the_refusal_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as gate:
        host = socket.create_connection(gate.address)

        async def deny_who_is_gone(_: Exchange) -> HttpReply:
            # The answer is sent all the same, and answered by the system that nobody is there.
            host.close()
            return DENIED

        gate.engine.turn_away = deny_who_is_gone
        host.sendall(post("", Content_Length="2"))
        await eventually(lambda: gate.emitted.answered() == [("mcp", "POST", 401)])
        await gate.all_gone()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_whoever_is_not_let_in_is_never_told_to_go_on() -> None:
    async with opened() as gate, gate.host() as host:
        gate.engine.turn_away = deny_strangers
        question = {"Content_Length": "2", "Expect": "100-continue"}
        assert turned_away(await host.ask(post("", **question)))
        assert await host.at_end()
        async with gate.host() as known:
            await known.send(post("", **question, Authorization="Bearer a"))
            assert (await known.head()).status == 100
            assert (await known.ask("{}")).status == 200


@pytest.mark.parametrize("size", [2, 2**17 - 1, 2**17 + 1, 200_000], ids=str)
async def test_whoever_is_not_let_in_with_a_body_that_has_come_may_ask_again(size: int) -> None:
    async def deny_later(exchange: Exchange) -> HttpReply | None:
        if exchange.head.authorization:
            return None
        # The rest of a body is not read before it is asked for.
        await turns()
        return DENIED

    async with opened(max_body=2**20) as gate, gate.host() as host:
        gate.engine.turn_away = deny_later
        answer = await host.ask(post("x" * size))
        assert turned_away(answer)
        if answer.headers.get("connection") == "close":
            assert size > 2**17
            assert await host.at_end()
        else:
            assert (await host.ask(post("{}", Authorization="Bearer a"))).status == 200


@pytest.mark.parametrize("get_or_delete", [get(), request_head("DELETE", "/mcp", Host="gate.example")])
async def test_a_request_without_a_body_that_is_not_let_in_leaves_the_connection_open(get_or_delete: bytes) -> None:
    async with opened() as gate, gate.host() as host:
        gate.engine.turn_away = deny
        for _ in range(2):
            answer = await host.ask(get_or_delete)
            assert turned_away(answer)
            assert "connection" not in answer.headers


async def test_a_slow_host_that_is_let_in_is_not_waited_for() -> None:
    async with opened(read_timeout=MOMENT) as gate, gate.host() as host:
        gate.engine.turn_away = deny_strangers
        assert (await host.ask(post(Content_Length="100", Authorization="Bearer a"))).status == 408
        assert await host.at_end()
        assert gate.engine.bodies == []


async def test_a_host_that_leaves_before_its_body_is_asked_for_is_not_served(gate: Gate) -> None:
    async with leaving(gate) as host:
        await host.send(post())
    assert gate.engine.bodies == []
    assert gate.emitted.answered() == [("mcp", "POST", 400)]


@pytest.mark.parametrize("length", ["", "0"])
async def test_a_session_is_ended_though_its_host_leaves_before_it_is_let_in(gate: Gate, length: str) -> None:
    async with leaving(gate) as host:
        await host.send(request_head("DELETE", "/mcp", Host="gate.example", Content_Length=length))
    assert gate.engine.bodies == [b""]
    assert gate.emitted.answered() == [("mcp", "DELETE", 0)]


async def test_an_engine_that_fails_before_the_body_has_come_ends_the_connection(gate: Gate) -> None:
    async def fail(_: Exchange) -> None:
        raise RuntimeError

    gate.engine.turn_away = fail
    async with gate.host() as host:
        assert (await host.ask(post(Content_Length="100"))).status == 500
        assert await host.at_end()


async def test_an_answer_that_needs_no_body_is_the_last_where_one_was_to_come(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    async def know_already(_: Exchange) -> HttpReply:
        return HttpReply(body="{}")

    gate.engine.turn_away = know_already
    async with gate.host() as host:
        assert (await host.ask(post())).headers.get("connection") is None
        answer = await host.ask(post(Content_Length="100"))
        assert (answer.status, answer.body, answer.headers["connection"]) == (200, b"{}", "close")
        assert await host.at_end()
        # The host does not leave before anything could be sent a second time.
        await asyncio.sleep(2)
    await gate.close()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
