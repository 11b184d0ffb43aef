"""What frames an answer, or comes before it, is bounded too: nothing of it ever reaches a bound of bodies."""

from collections.abc import AsyncIterator, Callable

import pytest

from helpers.waiting import bounded
from taskgate.upstream.client import HttpTransport
from taskgate.upstream.wire.connection import FRAMING, FRAMING_SHARE
from unit.upstream.exchanges import JSON, STREAM, NewTransport, answered, failure_of, start
from unit.upstream.raw_server import RawServer

CHUNKED = JSON + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
def transport(server: RawServer, transport_to: NewTransport) -> HttpTransport:
    return transport_to(server.url(), max_result=16 * FRAMING)


def times(piece: bytes, size: int) -> bytes:
    return piece * (size // len(piece) + 1)


ENDLESS: dict[str, bytes] = {
    "interim answers": times(b"HTTP/1.1 100 Continue\r\n\r\n", 2 * FRAMING),
    "interim answers with headers": times(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 2 * FRAMING),
    "extensions of chunks": CHUNKED + times(b"1;" + b"a" * 4000 + b"\r\n \r\n", 2 * FRAMING),
    "one extension": CHUNKED + b"1;" + b"a" * 2 * FRAMING,
    "chunks of one byte": CHUNKED + times(b"1\r\n \r\n", 8 * FRAMING),
    "an extension of an event stream": STREAM + b"1;" + b"a" * 2 * FRAMING,
}


@pytest.mark.thorough
@pytest.mark.parametrize("pieces", ENDLESS.values(), ids=ENDLESS)
async def test_an_answer_that_is_mostly_no_answer_fails_its_call(
    server: RawServer, transport: HttpTransport, pieces: bytes
) -> None:
    asking = start(transport)
    line = await server.next()
    await line.request()
    line.writer.write(pieces)
    assert await failure_of(asking) == ("too_large", True)
    assert await line.at_end()


END = b"2\r\n{}\r\n0\r\n\r\n"
USUAL: dict[str, Callable[[], bytes]] = {
    "a few interim answers": lambda: b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 100 + CHUNKED + END,
    "small chunks": lambda: CHUNKED + b"1\r\n \r\n" * 10_000 + END,
    "chunks with extensions": lambda: CHUNKED + b"1;name=value\r\n \r\n" * 10_000 + END,
    "many chunks of few bytes": lambda: CHUNKED + b"2\r\n  \r\n" * (2 * FRAMING // FRAMING_SHARE) + END,
}


@pytest.mark.thorough
@pytest.mark.parametrize("pieces", USUAL.values(), ids=USUAL)
async def test_usual_framing_is_passed_over(
    server: RawServer, transport: HttpTransport, pieces: Callable[[], bytes]
) -> None:
    async with bounded():
        _, status, messages = await answered(server, transport, pieces())
    assert (status, [message.strip() for message in messages]) == (200, [b"{}"])


async def test_each_answer_on_a_connection_is_judged_by_itself(server: RawServer, transport: HttpTransport) -> None:
    usual = USUAL["small chunks"]()
    line, *_ = await answered(server, transport, usual)
    for _ in range(2 * FRAMING // len(usual)):
        asking = start(transport)
        await line.request()
        await line.say(usual)
        async with bounded():
            await asking
    assert len(server.accepted) == 1
