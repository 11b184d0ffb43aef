"""One request and its answer on a connection: broken, early, large, slow, or not waited for."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from helpers.virtual_time import keep_busy, turns
from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.client import HttpTransport
from unit.upstream.exchanges import (
    DOCUMENT,
    EVENT,
    JSON,
    LONG,
    STREAM,
    NewTransport,
    answer_again,
    answered,
    failure_of,
    outgoing,
    start,
)
from unit.upstream.raw_server import RawServer


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
def transport(server: RawServer, transport_to: NewTransport) -> HttpTransport:
    return transport_to(server.url())


BROKEN = {
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "malformed"),
    "a status that is none": (b"HTTP/1.1 2x0 OK\r\n\r\n", "malformed"),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-Ty", "closed"),
    "an interim answer alone": (b"HTTP/1.1 100 Continue\r\n\r\n", "closed"),
    "nothing": (b"", "closed"),
    "too little": (JSON + b"Content-Length: 9\r\n\r\n{}", "closed"),
    "a chunk that is none": (JSON + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nxyz\r\n", "malformed"),
    "chunks without an end": (JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", "closed"),
}


@pytest.mark.parametrize(("answer", "reason"), BROKEN.values(), ids=BROKEN)
async def test_an_answer_that_is_broken_is_never_asked_for_again(
    server: RawServer, transport: HttpTransport, answer: bytes, reason: str
) -> None:
    asking = start(transport)
    line = await server.next()
    await line.request()
    await line.say(answer)
    line.writer.write_eof()
    assert await failure_of(asking) == (reason, True)
    assert await line.at_end()
    assert len(server.accepted) == 1


async def test_a_body_that_turns_out_broken_while_it_is_read_has_broken_off(
    server: RawServer, transport: HttpTransport
) -> None:
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    await line.say(STREAM, EVENT)
    messages = (await sending).messages()
    assert await anext(messages) == b"{}"
    reading = asyncio.create_task(anext(messages))
    await line.say(b"xyz\r\n")
    assert await failure_of(reading) == ("closed", True)
    assert await line.at_end()


async def test_a_body_without_a_length_ends_with_its_connection(server: RawServer, transport: HttpTransport) -> None:
    asking = start(transport)
    line = await server.next()
    await line.say(JSON + b"\r\n{", b"}")
    line.writer.write_eof()
    async with bounded():
        assert await asking == (200, [b"{}"])


@pytest.mark.parametrize(
    ("code", "fields", "is_read"),
    [
        (400, b"", True),
        (400, b"Content-Type: text/plain; charset=utf-8\r\n", True),
        (503, b"Content-Type: application/problem+json\r\n", True),
        (200, b"", False),
        (200, b"Content-Type: text/plain\r\n", False),
        (400, b"Content-Type: text/html\r\n", False),
        (400, b"Content-Type: text/plain\r\nContent-Encoding: br\r\n", False),
    ],
)
async def test_text_under_an_error_status_is_read_and_no_other(
    server: RawServer, transport: HttpTransport, code: int, fields: bytes, is_read: bool
) -> None:
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    await line.request()
    await line.say(b"HTTP/1.1 %d Oh\r\n%sContent-Length: 2\r\n\r\nno" % (code, fields))
    async with bounded():
        incoming = await sending
        if is_read:
            assert [message async for message in incoming.messages()] == [b"no"]
        else:
            with pytest.raises(UpstreamFailed, match=r"neither JSON nor an event stream|content encoding"):
                await anext(incoming.messages())
        incoming.release()


@pytest.mark.parametrize("code", [204, 304])
async def test_what_has_no_body_by_its_status_has_none(server: RawServer, transport: HttpTransport, code: int) -> None:
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    await line.say(b"HTTP/1.1 %d No\r\n\r\n" % code)
    if code == 304:
        assert await failure_of(sending) == ("redirect", True)
        return
    async with bounded():
        incoming = await sending
        assert incoming.status == 204
        incoming.release()


async def test_a_large_body_arrives_whole(server: RawServer, transport: HttpTransport) -> None:
    body = bytes(range(256)) * (LONG // 256)
    sending = asyncio.create_task(transport.send(outgoing(body)))
    line = await server.next()
    _, heard = await line.request()
    assert heard == body
    await line.say(DOCUMENT)
    async with bounded():
        incoming = await sending
        assert [message async for message in incoming.messages()] == [b"{}"]
    incoming.release()
    await answer_again(line, transport)


async def test_an_answer_before_the_end_of_a_large_body_is_heard_and_its_connection_dropped(
    server: RawServer, transport: HttpTransport
) -> None:
    sending = asyncio.create_task(transport.send(outgoing(bytes(LONG))))
    line = await server.next()
    await line.head()
    await line.say(b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n")
    async with bounded():
        incoming = await sending
    assert incoming.status == 413
    incoming.release()
    assert await line.at_end()
    await answered(server, transport, DOCUMENT)


async def test_a_body_that_nobody_reads_is_not_taken_from_the_server(
    server: RawServer, transport_to: NewTransport
) -> None:
    transport = transport_to(server.url(), max_result=8 * LONG)
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    await line.request()
    size = 8 * LONG
    await line.say(JSON + b"Content-Length: %d\r\n\r\n" % size)
    incoming = await sending
    said = 0

    async def say() -> None:
        nonlocal said
        while said < size:
            await line.say(bytes(2**16))
            said += 2**16

    saying = asyncio.create_task(say())
    await turns(2000)
    # What the system holds, at most.
    assert said < size // 4
    async with bounded():
        messages = [message async for message in incoming.messages()]
    assert [len(message) for message in messages] == [size]
    await saying
    incoming.release()
    await answer_again(line, transport)


@pytest.mark.parametrize("when", ["before the head", "within the body"])
async def test_a_cancelled_call_ends_its_connection(server: RawServer, transport: HttpTransport, when: str) -> None:
    asking = start(transport)
    line = await server.next()
    await line.request()
    if when == "within the body":
        await line.say(JSON + b"Content-Length: 2\r\n\r\n{")
        await turns()
    asking.cancel()
    assert await line.at_end()
    assert asking.cancelled() or await asyncio.wait((asking,))


@pytest.mark.parametrize("bound", ["first_byte", "idle"])
async def test_silence_ends_the_connection(server: RawServer, transport: HttpTransport, bound: str) -> None:
    asking = start(transport, **{bound: 0.05})
    line = await server.next()
    if bound == "idle":
        await line.say(JSON + b"Content-Length: 2\r\n\r\n{")
    assert await failure_of(asking) == ("timeout", True)
    assert await line.at_end()


async def test_a_silence_that_is_over_as_a_chunk_ends_ends_the_call(
    server: RawServer, transport: HttpTransport
) -> None:
    asking = start(transport, idle=0.05)
    line = await server.next()
    await line.request()
    await line.say(JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}")
    await turns()
    await line.say(b"\r\n")
    # Both become due meanwhile.
    keep_busy(0.1)
    assert await failure_of(asking) == ("timeout", True)


async def test_an_event_that_comes_as_the_silence_is_over_is_heard_and_so_is_the_next(
    server: RawServer, transport: HttpTransport
) -> None:
    sending = asyncio.create_task(transport.send(outgoing(idle=0.2)))
    line = await server.next()
    await line.request()
    await line.say(STREAM)
    messages = (await sending).messages()
    reading = asyncio.create_task(anext(messages))
    for _ in range(100):
        await asyncio.sleep(0)
    await line.say(EVENT)
    # Both become due meanwhile.
    keep_busy(0.3)
    async with bounded():
        assert await reading == b"{}"
        await line.say(EVENT)
        assert await anext(messages) == b"{}"
