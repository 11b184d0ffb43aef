"""That a request leaves is told when its first byte is written: not before, and not where nothing is."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from helpers.departing import Departing
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.client import HttpTransport
from taskgate.upstream.wire.connection import Connection
from unit.upstream.exchanges import DOCUMENT, NewTransport, answered, outgoing
from unit.upstream.raw_server import RawServer

HEAD = b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


class Told:
    """How often it was told, and whether anything had been written on any connection by then."""

    def __init__(self, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self.written = 0
        made = transport._pool.made

        def watch(connection: Connection) -> None:
            assert connection.transport is not None
            write = connection.transport.write

            def count(piece: bytes) -> None:
                assert self.times > self.written, "written before it was told"
                self.written += 1
                write(piece)

            # A transport of the event loop's has slots: it is stood in for by one attribute.
            monkeypatch.setattr(connection, "transport", _Watched(connection.transport, count))
            made(connection)

        monkeypatch.setattr(transport._pool, "made", watch)

    def __call__(self) -> None:
        self.times += 1
        assert self.written == self.times - 1


class _Watched:
    def __init__(self, inner: asyncio.Transport, write: object) -> None:
        self._inner = inner
        self.write = write

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


async def send(transport: HttpTransport, told: Told) -> None:
    incoming = await transport.send(replace(outgoing(), call=Departing(told)))
    assert [message async for message in incoming.messages()] == [b"{}"]
    incoming.release()


async def test_it_is_told_right_before_the_first_byte_on_a_new_connection_and_on_a_kept_one(
    server: RawServer, transport_to: NewTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_to(server.url())
    told = Told(transport, monkeypatch)
    sending = asyncio.create_task(send(transport, told))
    line = await server.next()
    for times in (1, 2):
        await line.request()
        assert (told.times, told.written) == (times, times)
        await line.say(DOCUMENT)
        async with bounded():
            await sending
        sending = asyncio.create_task(send(transport, told))
    await line.request()
    await line.say(DOCUMENT)
    async with bounded():
        await sending
    assert len(server.accepted) == 1


async def test_a_kept_connection_that_turned_out_dead_is_passed_over_and_the_request_leaves_once(
    server: RawServer, transport_to: NewTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_to(server.url())
    line, *_ = await answered(server, transport, DOCUMENT)
    (kept,) = transport._pool._idle
    assert kept.transport is not None
    kept.transport.abort()
    told = Told(transport, monkeypatch)
    sending = asyncio.create_task(send(transport, told))
    other = await server.next()
    assert other is not line
    await other.request()
    await other.say(DOCUMENT)
    async with bounded():
        await sending
    assert (told.times, told.written) == (1, 1)


async def test_nothing_is_told_while_a_connection_is_made(
    server: RawServer, transport_to: NewTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_to(server.url("https"))
    told = Told(transport, monkeypatch)
    sending = asyncio.create_task(send(transport, told))
    line = await server.next()
    sending.cancel()
    assert await line.at_end()
    await asyncio.wait((sending,))
    assert told.times == 0


@pytest.mark.parametrize("state", ["it is no more", "it is ending"])
async def test_a_connection_that_ended_before_anything_was_written_was_sent_nothing(
    server: RawServer, transport_to: NewTransport, state: str
) -> None:
    transport = transport_to(server.url())
    told: list[None] = []
    connection = await transport._pool.dial(None)
    line = await server.next()
    if state == "it is no more":
        line.writer.close()
        await eventually(lambda: connection.transport is None)
    else:
        connection.drop()
        assert connection.transport is not None
    async with bounded():
        # Not in a task of its own: it would begin only after the end was told.
        with pytest.raises(UpstreamFailed) as failed:
            await connection.ask(HEAD, None, None, lambda: told.append(None))
    assert (failed.value.reason, failed.value.dispatched, told) == ("unreachable", False, [])
