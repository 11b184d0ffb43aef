"""That a request leaves is told when its first byte is written: not before, and not where nothing is."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from yarl import URL

from helpers.departing import Departing
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.upstream.client import HttpTransport
from taskgate.upstream.settings import UpstreamTls
from taskgate.upstream.wire.transport import Pool
from unit.upstream.exchanges import DOCUMENT, NewTransport, outgoing
from unit.upstream.raw_server import RawServer

HEAD = b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with RawServer() as server:
        yield server


@pytest.fixture
async def pool(server: RawServer) -> AsyncIterator[Pool]:
    pool = Pool(URL(server.url()), connect=10, reuse_within=60, max_header=8192, silence=None, tls=UpstreamTls())
    yield pool
    async with bounded():
        await pool.close()


class Told:
    """Whether it was told, and what was written to the server, in order."""

    def __init__(self, server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.order: list[str] = []
        send = socket.socket.send

        def noted(sender: socket.socket, data: bytes, *flags: int) -> int:
            if sender.getpeername()[1] == server.port:
                self.order.append("written")
            return send(sender, data, *flags)

        monkeypatch.setattr(socket.socket, "send", noted)

    def __call__(self) -> None:
        self.order.append("told")


async def send(transport: HttpTransport, told: Told) -> None:
    incoming = await transport.send(replace(outgoing(), call=Departing(told)))
    assert [message async for message in incoming.messages()] == [b"{}"]
    incoming.release()


async def test_it_is_told_right_before_the_first_byte_on_a_new_connection_and_on_a_kept_one(
    server: RawServer, transport_to: NewTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_to(server.url())
    told = Told(server, monkeypatch)
    sending = asyncio.create_task(send(transport, told))
    line = await server.next()
    for times in (1, 2):
        await line.request()
        assert told.order == ["told", "written"] * times
        await line.say(DOCUMENT)
        async with bounded():
            await sending
        sending = asyncio.create_task(send(transport, told))
    await line.request()
    await line.say(DOCUMENT)
    async with bounded():
        await sending
    assert len(server.accepted) == 1


async def test_a_kept_connection_that_turned_out_dead_is_passed_over(pool: Pool, server: RawServer) -> None:
    connection = await pool.dial(None)
    pool.keep(connection)
    assert connection.transport is not None
    connection.transport.abort()
    assert pool.take() is None


async def test_nothing_is_told_while_a_connection_is_made(
    server: RawServer, transport_to: NewTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_to(server.url("https"))
    told = Told(server, monkeypatch)
    sending = asyncio.create_task(send(transport, told))
    line = await server.next()
    sending.cancel()
    assert await line.at_end()
    await asyncio.wait((sending,))
    assert "told" not in told.order


@pytest.mark.parametrize("state", ["it is no more", "it is ending"])
async def test_a_connection_that_ended_before_anything_was_written_was_sent_nothing(
    pool: Pool, server: RawServer, state: str
) -> None:
    told: list[None] = []
    connection = await pool.dial(None)
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
