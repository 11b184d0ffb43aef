"""An answer that begins as a document before its text is known: what its host gets on the wire."""

import asyncio

import pytest

from helpers.host.raw import post
from helpers.waiting import eventually
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import PLANTED, Gate

TEXT = '{"result":"é"}'


class Late:
    """An engine that begins a document, and leaves the rest to the test."""

    def __init__(self, spaces: int = 1) -> None:
        self.spaces = spaces
        self.reply: asyncio.Future[HttpReply] = asyncio.get_running_loop().create_future()
        self.exchange: Exchange | None = None
        self.left = 0
        self.sent: list[bool] = []

    async def __call__(self, exchange: Exchange) -> HttpReply:
        exchange.on_disconnect(self.forget)
        exchange.on_sent(self.sent.append)
        for _ in range(self.spaces):
            assert exchange.begin_document()
        assert (exchange.has_begun, exchange.is_streaming) == (True, False)
        self.exchange = exchange
        return await asyncio.shield(self.reply)

    def forget(self) -> None:
        self.left += 1


async def test_space_comes_before_the_text(gate: Gate) -> None:
    gate.engine.script = late = Late(spaces=2)
    async with gate.host() as host:
        await host.send(post())
        head = await host.head()
        assert (head.status, head.headers["content-type"]) == (200, "application/json")
        assert (head.headers["cache-control"], head.headers["x-accel-buffering"]) == ("no-cache, no-transform", "no")
        assert [await host.chunk(), await host.chunk()] == [b" ", b" "]
        late.reply.set_result(HttpReply(body=TEXT))
        assert [chunk async for chunk in host.chunks()] == [TEXT.encode()]
        # A call may go on for other hosts.
        assert late.exchange is not None
        assert late.exchange.begin_document()
        gate.engine.script = None
        assert (await host.ask(post())).body == b'{"answer":2}'
    assert late.sent == [True]


async def test_a_text_of_megabytes_comes_whole(gate: Gate) -> None:
    gate.engine.script = late = Late()
    text = f'{{"result":"{"xé" * 2**20}"}}'
    late.reply.set_result(HttpReply(body=text))
    async with gate.host() as host:
        assert (await host.ask(post())).body == b" " + text.encode()


async def test_a_host_on_http_1_0_gets_no_chunks(gate: Gate) -> None:
    gate.engine.script = late = Late()
    late.reply.set_result(HttpReply(body=TEXT))
    async with gate.host() as host:
        await host.send(post(Connection="keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, body = (await host.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK\r\n")
        assert b"ransfer-" not in head
        assert body == b" " + TEXT.encode()


async def test_a_status_that_comes_too_late_is_not_sent(gate: Gate) -> None:
    gate.engine.script = late = Late()
    late.reply.set_result(HttpReply(403, TEXT, (("WWW-Authenticate", "Bearer"),)))
    async with gate.host() as host:
        answer = await host.ask(post())
    assert (answer.status, answer.body, "www-authenticate" in answer.headers) == (200, b" " + TEXT.encode(), False)


async def test_a_request_that_its_host_cancelled_gets_no_text(gate: Gate) -> None:
    gate.engine.script = late = Late()
    late.reply.set_result(HttpReply(202))
    async with gate.host() as host:
        assert (await host.ask(post())).body == b" "
        gate.engine.script = None
        assert (await host.ask(post())).body == b'{"answer":2}'


@pytest.mark.parametrize("reply", [HttpReply(500), HttpReply(body=f'"{PLANTED}\ud800"')], ids=["none", "no text"])
async def test_a_document_without_a_text_is_cut(gate: Gate, reply: HttpReply) -> None:
    gate.engine.script = late = Late()
    late.reply.set_result(reply)
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        assert await host.rest() == b"1\r\n \r\n"
    assert late.sent == [False]


async def test_a_host_that_leaves_is_reported_and_gets_no_space(gate: Gate) -> None:
    gate.engine.script = late = Late()
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        host.abort()
        await eventually(lambda: late.left == 1)
    assert late.exchange is not None
    assert late.exchange.begin_document()
    assert (late.left, late.sent) == (1, [False])
    late.reply.set_result(HttpReply(body=TEXT))


async def test_a_stream_after_the_document_has_begun_is_closed(gate: Gate) -> None:
    gate.engine.script = late = Late()
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        assert late.exchange is not None
        assert not late.exchange.stream().send("{}")
        late.reply.set_result(HttpReply(body=TEXT))
        assert [chunk async for chunk in host.chunks()] == [b" ", TEXT.encode()]


async def test_an_event_stream_does_not_become_a_document(gate: Gate) -> None:
    async def work(exchange: Exchange) -> HttpReply:
        exchange.stream()
        assert not exchange.begin_document()
        return HttpReply(body=TEXT)

    gate.engine.script = work
    async with gate.host() as host:
        assert (await host.ask(post())).headers["content-type"] == "text/event-stream"
