"""Which connections carry another request, and which are dropped."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from helpers.certificates import Authority
from helpers.virtual_time import turns
from helpers.waiting import bounded
from taskgate.upstream.base import Outgoing
from taskgate.upstream.calls import RunningCall, briefly
from taskgate.upstream.client import HttpTransport
from taskgate.upstream.settings import UpstreamTls
from taskgate.upstream.wire.connection import LINGER
from taskgate.upstream.wire.transport import REUSE_WITHIN, SHORTENED, SOON, Pool
from unit.upstream.exchanges import (
    DOCUMENT,
    EVENT,
    JSON,
    STREAM,
    NewTransport,
    answer_again,
    answered,
    failure_of,
    outgoing,
    start,
)
from unit.upstream.raw_server import Line, RawServer


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
def transport(server: RawServer, transport_to: NewTransport) -> HttpTransport:
    return transport_to(server.url())


KEPT = {
    "a document": (DOCUMENT,),
    "a document byte by byte": tuple(bytes([byte]) for byte in DOCUMENT),
    "an empty document": (b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n",),
    "chunks": (JSON + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n{\r\n", b"1\r\n}\r\n", b"0\r\n\r\n"),
    "HTTP/1.0 that asks for it": (
        DOCUMENT.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"),
    ),
    "an error": (b"HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nohh",),
    "interim answers before": (
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + DOCUMENT,
    ),
}


@pytest.mark.parametrize("pieces", KEPT.values(), ids=KEPT)
async def test_a_connection_whose_answer_came_to_its_end_carries_the_next_call(
    server: RawServer, transport: HttpTransport, pieces: tuple[bytes, ...]
) -> None:
    line, status, messages = await answered(server, transport, *pieces)
    assert pieces[-1].startswith(f"HTTP/1.1 {status}".encode()) or (status, messages) == (200, [b"{}"])
    await answer_again(line, transport)
    assert len(server.accepted) == 1


DROPPED = {
    "the server says that it closes": DOCUMENT.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
    "HTTP/1.0": DOCUMENT.replace(b"1.1", b"1.0"),
    "an answer that nobody asked for": DOCUMENT + DOCUMENT,
    "the beginning of one": DOCUMENT + b"HTTP/1.1 2",
    "a head of one": DOCUMENT + STREAM,
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n",
    "another protocol with its words": b"HTTP/1.1 101 Ok\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n" + DOCUMENT,
    "another protocol without a name": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "a body that is not read": b"HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\noh",
    "interim answers that say it closes": b"HTTP/1.1 103 Hm\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("answer", DROPPED.values(), ids=DROPPED)
async def test_a_connection_that_may_not_be_clean_is_dropped(
    server: RawServer, transport: HttpTransport, answer: bytes
) -> None:
    asking = start(transport)
    line = await server.next()
    await line.request()
    await line.say(answer)
    if b"103" in answer:
        await line.say(DOCUMENT)
    async with bounded():
        await asyncio.wait((asking,))
    asking.exception()
    # At once: an idle connection ends by itself after a while.
    await answered(server, transport, DOCUMENT)
    assert len(server.accepted) == 2
    assert await line.at_end()


@pytest.mark.parametrize("way", ["bytes nobody asked for", "end of what the server says", "reset"])
async def test_an_idle_connection_that_hears_anything_is_dropped_at_once(
    server: RawServer, transport: HttpTransport, way: str
) -> None:
    line, *_ = await answered(server, transport, DOCUMENT)
    if way == "reset":
        option = socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        line.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, *option)
        line.writer.transport.abort()
        await turns()
    else:
        await line.say(b"HTTP/1.1 408 Too late\r\n\r\n") if way.startswith("bytes") else line.writer.write_eof()
        async with bounded(REUSE_WITHIN / 2):
            assert await line.at_end()
    _, status, messages = await answered(server, transport, DOCUMENT)
    assert (status, messages) == (200, [b"{}"])


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_connection_that_the_server_has_just_closed_is_not_used(
    transport_to: NewTransport, tmp_path: Path, secure: bool
) -> None:
    """The loop has not read its end yet when the next request is sent."""
    authority = Authority(tmp_path)
    async with RawServer(tls=authority.server_context("127.0.0.1") if secure else None) as server:
        url, tls = server.url("https" if secure else "http"), UpstreamTls(ca_file=authority.file)
        transport = transport_to(url, tls=tls if secure else UpstreamTls())
        line, *_ = await answered(server, transport, DOCUMENT)
        await answer_again(line, transport)
        answering = asyncio.create_task(answer_next(server))
        await turns()
        end(line)
        # Not in a task of its own, before which the loop would read.
        incoming = await transport.send(outgoing())
        assert incoming.status == 200
        incoming.release()
        await answering
        assert len(server.accepted) == 2


HARMLESS = {
    "a request that says so": lambda: replace(outgoing(), runs_nothing=True),
    "a call that says so": lambda: replace(outgoing(), call=call_that(runs_nothing=True)),
}


def call_that(*, runs_nothing: bool) -> RunningCall:
    call = RunningCall(1, None, briefly(timedelta(seconds=9)))
    call.runs_nothing = runs_nothing
    return call


@pytest.mark.parametrize("after", [0, 2 * SOON])
@pytest.mark.parametrize("harmless", HARMLESS.values(), ids=HARMLESS)
async def test_what_runs_nothing_is_sent_once_more_if_its_kept_connection_closes_without_an_answer(
    server: RawServer, transport: HttpTransport, harmless: Callable[[], Outgoing], after: float
) -> None:
    line, *_ = await answered(server, transport, DOCUMENT)
    sending = asyncio.create_task(transport.send(harmless()))
    await line.request()
    await asyncio.sleep(after)
    line.writer.transport.abort()
    await answer_next(server)
    async with bounded():
        incoming = await sending
    assert incoming.status == 200
    incoming.release()
    assert len(server.accepted) == 2


async def test_what_runs_nothing_is_sent_no_third_time(server: RawServer, transport: HttpTransport) -> None:
    lines = [(await answered(server, transport, DOCUMENT))[0]]
    sending = asyncio.create_task(transport.send(HARMLESS["a request that says so"]()))
    await lines[0].request()
    lines[0].writer.transport.abort()
    another = await server.next()
    await another.request()
    another.writer.transport.abort()
    assert await failure_of(sending) == ("closed", True)
    assert len(server.accepted) == 2


@pytest.mark.parametrize("said", [b"", b"H"], ids=["a call", "an answer that began"])
async def test_what_may_have_run_is_not_sent_again(server: RawServer, transport: HttpTransport, said: bytes) -> None:
    line, *_ = await answered(server, transport, DOCUMENT)
    sending = asyncio.create_task(transport.send(replace(outgoing(), call=call_that(runs_nothing=bool(said)))))
    await line.request()
    await line.say(said)
    line.writer.close()
    assert await failure_of(sending) == ("closed", True)
    assert len(server.accepted) == 1


async def end_unread(line: Line, transport: HttpTransport) -> None:
    """A call on that kept connection, which ends as the call comes."""
    asking = start(transport)
    await line.request()
    line.writer.transport.abort()
    assert await failure_of(asking) == ("closed", True)


async def test_no_connection_is_kept_for_a_while_after_one_ended_as_soon_as_it_was_kept(
    server: RawServer, transport: HttpTransport
) -> None:
    line, *_ = await answered(server, transport, DOCUMENT)
    await end_unread(line, transport)
    for _ in range(3):
        # Each comes on a new one.
        await answered(server, transport, DOCUMENT)
    await asyncio.sleep(SHORTENED)
    line, *_ = await answered(server, transport, DOCUMENT)
    await answer_again(line, transport)


async def test_connections_are_kept_half_as_long_after_one_ended_as_it_was_used_again(
    server: RawServer, transport: HttpTransport
) -> None:
    line, *_ = await answered(server, transport, DOCUMENT)
    await asyncio.sleep(REUSE_WITHIN / 2)
    await end_unread(line, transport)
    line, *_ = await answered(server, transport, DOCUMENT)
    await asyncio.sleep(REUSE_WITHIN / 8)
    await answer_again(line, transport)
    await asyncio.sleep(REUSE_WITHIN / 3)
    await answered(server, transport, DOCUMENT)


async def test_the_end_of_a_server_that_had_the_request_for_longer_changes_nothing(
    server: RawServer, transport: HttpTransport
) -> None:
    line, *_ = await answered(server, transport, DOCUMENT)
    asking = start(transport)
    await line.request()
    await asyncio.sleep(2 * SOON)
    line.writer.transport.abort()
    assert await failure_of(asking) == ("closed", True)
    line, *_ = await answered(server, transport, DOCUMENT)
    await answer_again(line, transport)


async def answer_next(server: RawServer) -> None:
    """Answer one request on the next connection."""
    line = await server.next()
    await line.request()
    await line.say(DOCUMENT)


def end(line: Line) -> None:
    """Have the kernel end what the server says, at once and past the loop."""
    with socket.socket(fileno=os.dup(line.writer.get_extra_info("socket").fileno())) as connection:
        connection.shutdown(socket.SHUT_WR)


async def test_the_connection_that_was_used_last_is_used_next(server: RawServer, transport: HttpTransport) -> None:
    asking = [start(transport), start(transport)]
    lines = [await server.next(), await server.next()]
    for line in lines:
        await line.request()
    for line in reversed(lines):
        await line.say(DOCUMENT)
        async with bounded():
            await asyncio.wait(asking, return_when="FIRST_COMPLETED")
        asking = [task for task in asking if not task.done()]
    await answer_again(lines[0], transport)


async def test_each_idle_connection_ends_by_itself_in_its_time(server: RawServer, transport: HttpTransport) -> None:
    loop, since = asyncio.get_running_loop(), list[float]()
    asking = [start(transport), start(transport)]
    lines = [await server.next(), await server.next()]
    for line in lines:
        await line.request()
        await line.say(DOCUMENT)
        since.append(loop.time())
        await asyncio.sleep(REUSE_WITHIN / 2)
    await asyncio.gather(*asking)
    for line, began in zip(lines, since, strict=True):
        assert await line.at_end()
        assert REUSE_WITHIN <= loop.time() - began < 1.4 * REUSE_WITHIN


async def test_a_connection_that_should_have_ended_by_now_is_not_used(
    server: RawServer, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "_sweep", lambda _: None)
    await answered(server, transport, DOCUMENT)
    await asyncio.sleep(REUSE_WITHIN)
    await answered(server, transport, DOCUMENT)
    assert await server.accepted[0].at_end()


async def test_an_answer_that_is_released_twice_does_not_share_its_connection(
    server: RawServer, transport: HttpTransport
) -> None:
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    await line.request()
    await line.say(DOCUMENT)
    incoming = await sending
    incoming.release()
    other = start(transport)
    await line.request()
    incoming.release()
    another = start(transport)
    await (await server.next()).request()
    assert len(server.accepted) == 2
    for accepted in server.accepted:
        await accepted.say(DOCUMENT)
    async with bounded():
        assert await asyncio.gather(other, another) == [(200, [b"{}"])] * 2


async def test_a_stream_that_does_not_end_after_its_answer_is_dropped_soon(
    server: RawServer, transport: HttpTransport
) -> None:
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    await line.say(STREAM, EVENT)
    incoming = await sending
    assert await anext(incoming.messages()) == b"{}"
    released = asyncio.get_running_loop().time()
    incoming.release(answered=True)
    incoming.release()
    assert await line.at_end()
    assert asyncio.get_running_loop().time() - released >= LINGER


@pytest.mark.parametrize("end", [b"0\r\n\r\n", b"0\r\n\r\nHTTP/1."], ids=["its end", "its end and more"])
async def test_a_stream_that_ends_soon_after_its_answer_gives_its_connection_back(
    server: RawServer, transport: HttpTransport, end: bytes
) -> None:
    sending = asyncio.create_task(transport.send(outgoing()))
    line = await server.next()
    await line.request()
    await line.say(STREAM, EVENT)
    incoming = await sending
    assert await anext(incoming.messages()) == b"{}"
    incoming.release(answered=True)
    await line.say(end)
    if end.endswith(b"."):
        assert await line.at_end()
        return
    await turns()
    await answer_again(line, transport)
