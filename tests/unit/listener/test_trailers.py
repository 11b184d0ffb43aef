"""The trailer of a chunked body is dropped: nothing of it becomes a header, of its own request or of the next one."""

import asyncio

import pytest

from helpers.host.raw import post
from requirements import covers
from taskgate.listener.chunks import MAX_OVERHEAD, ChunkFraming
from unit.listener.gate import PLANTED, Gate

CHUNKED = post("", Content_Length="", Transfer_Encoding="chunked")
BODY = b'2\r\n{"\r\n5\r\na":1}\r\n'
TRAILERS = {
    "a token": f"Authorization: Bearer {PLANTED}\r\n",
    "a session": f"Mcp-Session-Id: {PLANTED}\r\n",
    "a host": "Host: evil.example\r\n",
    "a type": "content-type: text/plain\r\n",
    "two": f"X: y\r\nAuthorization: Bearer {PLANTED}\r\n",
    "an empty one": "Authorization:\r\n",
}
UNCERTAIN = {
    "a length": "Content-Length: 5\r\n",
    "a coding": "Transfer-Encoding: chunked\r\n",
    "no colon": f"{PLANTED}\r\n",
    "a bare LF": f"Authorization: {PLANTED}\n",
    "a folded line": f"X: y\r\n {PLANTED}\r\n",
    "a line that is too long": f"X: {'y' * (16 * 1024)}\r\n",
    "many lines": "X: y\r\n" * 101,
}


def whole(trailer: str) -> bytes:
    """A request with a trailer."""
    return CHUNKED + BODY + f"0\r\n{trailer}\r\n".encode()


def assert_nothing_leaked(gate: Gate, requests: int) -> None:
    """Check that so many pairs of requests came as they were sent: one with a trailer, and a plain one."""
    assert gate.engine.bodies == [b'{"a":1}', b"{}"] * requests
    assert all((head.authorization, head.host_session) == ((), None) for head in gate.engine.seen)


@covers("T26")
@pytest.mark.parametrize("trailer", TRAILERS.values(), ids=TRAILERS)
async def test_a_trailer_is_no_header_of_the_next_request(gate: Gate, trailer: str) -> None:
    async with gate.host() as host:
        await host.send((whole(trailer) + post()) * 3)
        assert [(await host.answer()).status for _ in range(6)] == [200] * 6
        assert (await host.ask(whole(trailer))).status == 200
        assert (await host.ask(post())).status == 200
    assert_nothing_leaked(gate, 4)


@covers("T26")
async def test_a_trailer_is_no_header_of_the_next_request_wherever_a_read_ends(gate: Gate) -> None:
    sent = whole(TRAILERS["two"]) + post()
    async with gate.host() as host:
        for at in range(1, len(sent)):
            await host.send(sent[:at])
            await read()
            await host.send(sent[at:])
            assert [(await host.answer()).status for _ in range(2)] == [200, 200]
    assert_nothing_leaked(gate, len(sent) - 1)


async def test_a_trailer_that_comes_byte_by_byte_is_dropped(gate: Gate) -> None:
    async with gate.host() as host:
        for each in whole(TRAILERS["two"]) + post():
            await host.send(bytes([each]))
            await read()
        assert [(await host.answer()).status for _ in range(2)] == [200, 200]
    assert_nothing_leaked(gate, 1)


@covers("T26")
@pytest.mark.parametrize("trailer", UNCERTAIN.values(), ids=UNCERTAIN)
async def test_behind_an_uncertain_trailer_nothing_is_answered(gate: Gate, trailer: str) -> None:
    async with gate.host() as host:
        assert (await host.ask(whole(trailer) + post())).status == 400
        assert await host.at_end()
    assert gate.engine.seen == []


async def test_a_trailer_without_end_is_refused(gate: Gate) -> None:
    async with gate.host() as host:
        answer = await host.ask(CHUNKED + b"0\r\n", *[f"X: {'y' * 990}\r\n"] * (MAX_OVERHEAD // 990))
        assert answer.status == 400
        assert await host.at_end()
    assert gate.engine.seen == []


@pytest.mark.parametrize("shift", [-1, 1], ids=["too early", "too late"])
async def test_a_body_of_which_the_parser_finds_another_end_is_refused_and_nothing_behind_it_is_answered(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    found = ChunkFraming.find_end
    monkeypatch.setattr(ChunkFraming, "find_end", lambda *given: found(*given) + shift)
    async with gate.host() as host:
        assert (await host.ask(CHUNKED + BODY + b"0\r\n\r\n" + post() * 2)).status == 400
        assert await host.at_end()
    assert gate.engine.seen == []


async def read() -> None:
    """Let the gateway, which is on this event loop, read what has come."""
    for _ in range(6):
        await asyncio.sleep(0)


async def test_an_uncertain_trailer_behind_the_end_of_a_chunk_is_refused_at_once(gate: Gate) -> None:
    async with gate.host() as host:
        await host.send(CHUNKED + b"2\r\n{}")
        await read()
        assert (await host.ask(b"\r\n0\r\nX : y\r\n\r\n")).status == 400
