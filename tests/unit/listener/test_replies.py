"""What becomes of a reply of the engine that is no stream, and of faults behind the door."""

import asyncio
import socket

import pytest

from helpers.host.raw import post
from taskgate.jsontext.large import JsonChunks
from taskgate.listener.endpoint import Endpoint
from taskgate.listener.protocol import HostConnection
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import PLANTED, Gate


async def test_a_reply_without_a_body_has_none(gate: Gate) -> None:
    async def accept(_: Exchange) -> HttpReply:
        return HttpReply(status=202, headers=(("Mcp-Session-Id", "abc"),))

    gate.engine.script = accept
    async with gate.host() as host:
        answer = await host.ask(post())
        assert (answer.status, answer.body, answer.headers["mcp-session-id"]) == (202, b"", "abc")
        assert set(answer.headers) == {"date", "server", "content-length", "mcp-session-id"}


@pytest.mark.parametrize("size", [2, 64 * 1024 - 1, 64 * 1024, 3 * 2**20])
async def test_a_document_arrives_whole_and_the_next_request_is_served(gate: Gate, size: int) -> None:
    document = f'"{"ü" * (size // 2 - 1)}"'

    async def answer(_: Exchange) -> HttpReply:
        return HttpReply(body=document)

    gate.engine.script = answer
    async with gate.host() as host:
        for _ in range(2):
            answered = await host.ask(post())
            assert (answered.status, answered.body.decode()) == (200, document)
            assert set(answered.headers) == {"content-type", "date", "server", "content-length"}
            assert (answered.headers["content-type"], answered.headers["server"]) == ("application/json", "taskgate")


@pytest.mark.parametrize("size", [2, 64 * 1024, 3 * 2**20])
async def test_a_document_of_pieces_arrives_whole_and_the_next_request_is_served(gate: Gate, size: int) -> None:
    pieces = JsonChunks([b'["', memoryview(b"x" * size), '","ü"]'.encode()])

    async def answer(_: Exchange) -> HttpReply:
        return HttpReply(body=pieces)

    gate.engine.script = answer
    async with gate.host() as host:
        for _ in range(2):
            answered = await host.ask(post())
            assert (answered.status, answered.body) == (200, pieces.encode())
            assert set(answered.headers) == {"content-type", "date", "server", "content-length"}


async def test_a_host_that_asks_for_the_end_is_told_of_it_with_its_document(gate: Gate) -> None:
    async def answer(_: Exchange) -> HttpReply:
        return HttpReply(body="{}")

    gate.engine.script = answer
    async with gate.host() as host:
        answered = await host.ask(post(Connection="close"))
        assert (answered.status, answered.body, answered.headers["connection"]) == (200, b"{}", "close")
        assert await host.rest() == b""


async def test_an_answer_does_not_wait_until_the_host_has_acknowledged_the_one_before(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    transports, made = list[asyncio.BaseTransport](), HostConnection.connection_made

    def connection_made(connection: HostConnection, transport: asyncio.BaseTransport) -> None:
        made(connection, transport)
        transports.append(transport)

    monkeypatch.setattr(HostConnection, "connection_made", connection_made)
    async with gate.host() as host:
        assert (await host.ask(post())).status == 200
        at: socket.socket = transports[0].get_extra_info("socket")
        assert at.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_an_engine_that_fails_is_a_500_without_a_word(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: Exchange) -> HttpReply:
        raise ValueError(PLANTED)

    gate.engine.script = fail
    async with gate.host() as host:
        answer = await host.ask(post())
        assert (answer.status, answer.body) == (500, b"")
        gate.engine.script = None
        assert (await host.ask(post())).status == 200
    assert logged_errors(caplog) == [("unexpected error while handling a request", "ValueError")]


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_a_reply_that_cannot_be_written_is_a_fault_without_a_word(
    gate: Gate, caplog: pytest.LogCaptureFixture, streaming: bool
) -> None:
    async def answer(exchange: Exchange) -> HttpReply:
        if streaming:
            exchange.stream()
        return HttpReply(body=f'"{PLANTED}\ud800"')

    gate.engine.script = answer
    async with gate.host() as host:
        answered = await host.ask(post())
        assert (answered.status, answered.body) == (200 if streaming else 500, b"")
        assert (await host.ask(post())).status == answered.status
    assert len(gate.emitted.answered()) == 2
    assert {error for _, error in logged_errors(caplog)} == {"UnicodeEncodeError"}


async def test_a_reply_that_would_split_the_answer_ends_the_connection(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    async def split(_: Exchange) -> HttpReply:
        return HttpReply(headers=(("X-Odd", f"a\r\nX-More: {PLANTED}"),))

    gate.engine.script = split
    async with gate.host() as host:
        await host.send(post())
        assert await host.at_end()
    assert logged_errors(caplog) == [("a connection failed", "ValueError")]


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_a_fault_of_the_listener_is_a_500_or_the_end_and_never_a_second_answer(
    gate: Gate, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    def fail(*_: object) -> None:
        raise ValueError(PLANTED)

    async def answer(exchange: Exchange) -> HttpReply:
        if streaming:
            exchange.stream()
        return HttpReply(body="{}")

    gate.engine.script = answer
    monkeypatch.setattr(Endpoint, "_note_answer", fail)
    async with gate.host() as host:
        answered = await host.ask(post())
        assert (answered.status, b"{}" in answered.body) == ((200, True) if streaming else (500, False))
        assert await host.at_end()
    assert logged_errors(caplog) == [("a request failed", "ValueError")]


async def test_the_headers_of_a_reply_are_not_those_of_the_next(gate: Gate) -> None:
    replies = [
        HttpReply(status=202, headers=(("X-One", "1"),)),
        HttpReply(status=202),
        HttpReply(body="{}", headers=(("X-Two", "2"),)),
        HttpReply(body="{}"),
    ]

    async def answer(_: Exchange) -> HttpReply:
        return replies.pop(0)

    gate.engine.script = answer
    async with gate.host() as host:
        heads = [(await host.ask(post())).headers.keys() & {"x-one", "x-two"} for _ in range(4)]
    assert heads == [{"x-one"}, set(), {"x-two"}, set()]


def logged_errors(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What was logged of faults, and the class that each names."""
    return [(record.getMessage(), vars(record)["error"]) for record in caplog.records if record.levelname == "ERROR"]
