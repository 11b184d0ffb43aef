"""Answers that are compressed though no request asks for it."""

import asyncio
import gzip
import tracemalloc
import zlib
from codecs import BOM_UTF8
from collections.abc import AsyncIterator

import pytest

from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.client import HttpTransport
from unit.upstream.exchanges import JSON, NewTransport, answer_again, answered, failure_of, outgoing, start
from unit.upstream.raw_server import RawServer

TEXT = b'{"a": "%s"}' % (b"b" * 200_000)
LIMIT = 2**20


def raw_deflate(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


CODED = {
    "gzip": (b"gzip", gzip.compress(TEXT)),
    "gzip by another name": (b"X-GZip", gzip.compress(TEXT)),
    "gzip and what follows": (b"gzip", gzip.compress(TEXT) + bytes(512)),
    "deflate": (b"deflate", zlib.compress(TEXT)),
    "deflate without its head": (b"deflate", raw_deflate(TEXT)),
    "gzip of what is plain before": (b"identity, gzip", gzip.compress(TEXT)),
    "gzip after a byte order mark in it": (b"gzip", gzip.compress(BOM_UTF8 + TEXT)),
    "plain after a byte order mark": (b"identity", BOM_UTF8 + TEXT),
    **{f"plain, as {word.decode()!r}": (word, TEXT) for word in (b"", b"Identity", b"utf-8", b"none", b"aws-chunked")},
}


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
def transport(server: RawServer, transport_to: NewTransport) -> HttpTransport:
    return transport_to(server.url(), max_result=LIMIT)


def document(coding: bytes, body: bytes) -> bytes:
    return JSON + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s" % (coding, len(body), body)


@pytest.mark.parametrize(("coding", "body"), CODED.values(), ids=CODED)
@pytest.mark.parametrize("piece", [1_000_000, 7], ids=["at once", "in pieces"])
async def test_a_coded_document_is_read(
    server: RawServer, transport: HttpTransport, coding: bytes, body: bytes, piece: int
) -> None:
    answer = document(coding, body)
    # The head, and then the first bytes in small pieces.
    at = answer.index(b"\r\n\r\n") + 4
    cuts = [answer[:at], *(answer[each : each + piece] for each in range(at, at + 21, piece)), answer[at + 21 :]]
    pieces = cuts if piece < 100 else [answer]
    line, status, messages = await answered(server, transport, *pieces)
    assert (status, messages) == (200, [TEXT])
    await answer_again(line, transport)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_each_event_of_a_coded_stream_is_read_when_it_comes(
    server: RawServer, transport: HttpTransport, coding: str
) -> None:
    packing = zlib.compressobj(wbits=zlib.MAX_WBITS + (16 if coding == "gzip" else 0))
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    await line.request()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: {coding}\r\n\r\n"
    await line.say(head.encode())
    async with bounded():
        incoming = await sending
        messages = incoming.messages()
        for event in (b"{}", TEXT, b"[]"):
            coming = asyncio.ensure_future(anext(messages))
            await line.say(packing.compress(b"data: %s\n\n" % event) + packing.flush(zlib.Z_SYNC_FLUSH))
            assert await coming == event
        # Its events came whole, so its end may be missing.
        line.writer.close()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        incoming.release()


FAULTS = {
    "no gzip": (b"gzip", b"{}", "malformed", "its answer is not valid gzip"),
    "no deflate": (b"deflate", b"\xff\xff", "malformed", "its answer is not valid deflate"),
    "a wrong sum": (b"gzip", gzip.compress(TEXT)[:-8] + bytes(8), "malformed", "its answer is not valid gzip"),
    "half of it": (b"gzip", gzip.compress(TEXT)[:-20], "closed", "ended before it was complete"),
    "br": (b"br", b"{}", "malformed", "its answer has the content encoding br, which was not requested"),
    "zstd": (b"ZSTD", b"{}", "malformed", "its answer has the content encoding zstd, which was not requested"),
    "several": (b"gzip, br", b"{}", "malformed", "its answer has the content encoding gzip, br, which"),
}


@pytest.mark.parametrize(("coding", "body", "reason", "text"), FAULTS.values(), ids=FAULTS)
async def test_a_document_that_cannot_be_decoded_is_a_failure_that_says_why(
    server: RawServer, transport: HttpTransport, coding: bytes, body: bytes, reason: str, text: str
) -> None:
    asking = start(transport)
    line = await server.next()
    await line.request()
    await line.say(document(coding, body))
    async with bounded():
        with pytest.raises(UpstreamFailed, match=text) as failed:
            await asking
    assert failed.value.reason == reason


async def test_a_coded_refusal_is_read(server: RawServer, transport: HttpTransport) -> None:
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    await line.request()
    await line.say(document(b"gzip", gzip.compress(b"no")).replace(b"200 OK", b"403 No"))
    async with bounded():
        incoming = await sending
        assert [message async for message in incoming.messages()] == [b"no"]
    incoming.release()


@pytest.mark.parametrize("streams", [False, True], ids=["document", "event"])
async def test_what_unpacks_to_more_than_the_limit_is_not_unpacked(
    server: RawServer, transport: HttpTransport, streams: bool
) -> None:
    packing = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    bomb = packing.compress(b"data: ") + b"".join(packing.compress(bytes(2**20)) for _ in range(256)) + packing.flush()
    answer = document(b"gzip", bomb)
    asking = start(transport)
    line = await server.next()
    await line.request()
    tracemalloc.start()
    try:
        await line.say(answer.replace(b"application/json", b"text/event-stream") if streams else answer)
        assert await failure_of(asking) == ("too_large", True)
        assert tracemalloc.get_traced_memory()[1] < 8 * LIMIT
    finally:
        tracemalloc.stop()


async def test_a_stream_that_unpacks_to_nothing_is_ended(server: RawServer, transport: HttpTransport) -> None:
    asking = start(transport)
    line = await server.next()
    await line.request()
    await line.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: deflate\r\n\r\n")
    empty = b"\0\0\0\xff\xff" * 10_000
    line.writer.write(b"\x78\x9c" + 8 * empty)
    assert await failure_of(asking) == ("too_large", True)
