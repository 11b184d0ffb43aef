"""An answer that became an event stream: what its host sees, and what the engine learns when the host leaves."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from helpers.host.raw import get, post
from helpers.waiting import bounded, eventually
from taskgate.listener.protocol import HostConnection
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.streams.sse_connection import SseConnection
from taskgate.telemetry.events import StreamEnded, StreamOpened
from taskgate.telemetry.request_context import RequestContext
from unit.listener.gate import PLANTED, Gate, opened

KEEP_ALIVE = b": keep-alive\n\n"


class Held:
    """An engine that streams, and leaves the rest to the test."""

    def __init__(self) -> None:
        self.feeds: list[EventStream] = []
        self.last: asyncio.Future[HttpReply] = asyncio.get_running_loop().create_future()
        self.left = 0

    async def __call__(self, exchange: Exchange) -> HttpReply:
        exchange.on_disconnect(self.forget)
        self.feeds.append(exchange.stream())
        assert exchange.stream() is self.feeds[-1]
        return await asyncio.shield(self.last)

    def forget(self) -> None:
        self.left += 1


def event(text: str) -> bytes:
    return f"event: message\ndata: {text}\n\n".encode()


def streams(gate: Gate) -> list[object]:
    """The events about streams, and the answers between them."""
    return [
        event.status or 0 if isinstance(event, RequestContext) else event
        for event in gate.emitted.all
        if isinstance(event, StreamOpened | StreamEnded | RequestContext)
    ]


async def test_the_head_leaves_before_there_is_anything_to_say(gate: Gate) -> None:
    gate.engine.script = held = Held()
    async with gate.host() as host:
        await host.send(post())
        head = await host.head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        assert (head.headers["cache-control"], head.headers["x-accel-buffering"]) == ("no-cache", "no")
        assert (head.headers["transfer-encoding"], head.headers["server"]) == ("chunked", "taskgate")
        assert not held.feeds[0].is_closed
        held.last.set_result(HttpReply())


async def test_messages_come_in_order_and_the_reply_is_the_last(gate: Gate) -> None:
    gate.engine.script = held = Held()
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        assert held.feeds[0].send('{"number":1}')
        assert await host.chunk() == event('{"number":1}')
        assert held.feeds[0].send('{"number":\r\n2}')
        held.last.set_result(HttpReply(body='{"result":"é"}'))
        assert [chunk async for chunk in host.chunks()] == [event('{"number":  2}'), event('{"result":"é"}')]
        gate.engine.script = None
        assert (await host.ask(post())).body == b'{"answer":2}'
    assert held.feeds[0].is_closed
    assert held.left == 0
    assert streams(gate) == [StreamOpened("downstream", "response"), StreamEnded("downstream", "response"), 200, 200]


async def test_messages_of_one_read_of_the_server_leave_in_one_chunk(gate: Gate) -> None:
    gate.engine.script = held = Held()
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        feed = held.feeds[0]
        for number in range(2):
            feed.more_follows()
            feed.send(str(number))
        feed.send("2")
        assert await host.chunk() == event("0") + event("1") + event("2")
        feed.send("3")
        assert await host.chunk() == event("3")
        held.last.set_result(HttpReply())


class Recorded:
    """A transport that keeps what is written on it, write by write."""

    def __init__(self, transport: asyncio.Transport, writes: list[bytes]) -> None:
        self.transport = transport
        self.writes = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))
        self.transport.write(data)


async def test_the_first_messages_leave_with_the_head_and_the_reply_with_the_end(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []
    made = HostConnection.connection_made

    def connection_made(self: HostConnection, transport: asyncio.Transport) -> None:
        made(self, cast("asyncio.Transport", Recorded(transport, writes)))

    async def work(exchange: Exchange) -> HttpReply:
        feed = exchange.stream()
        feed.send("1")
        feed.send("2")
        await eventually(lambda: writes)
        return HttpReply(body="3")

    monkeypatch.setattr(HostConnection, "connection_made", connection_made)
    gate.engine.script = work
    async with gate.host() as host:
        await host.send(post())
        assert (await host.head()).status == 200
        assert [chunk async for chunk in host.chunks()] == [event("1") + event("2"), event("3")]
    head, last = writes
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(event("2") + b"\r\n")
    assert last.endswith(event("3") + b"\r\n0\r\n\r\n")


async def test_a_stream_ends_without_a_last_message_where_there_is_none(gate: Gate) -> None:
    gate.engine.script = held = Held()
    async with gate.host() as host:
        await host.send(get())
        await host.head()
        held.last.set_result(HttpReply())
        assert [chunk async for chunk in host.chunks()] == []
    assert streams(gate) == [StreamOpened("downstream", "get"), StreamEnded("downstream", "get"), 200]


async def test_silence_is_broken_by_comments() -> None:
    held = Held()
    async with opened(held, sse_keepalive=timedelta(seconds=0.01)) as gate, gate.host() as host:
        await host.send(post())
        await host.head()
        assert [await host.chunk() for _ in range(3)] == [KEEP_ALIVE] * 3
        held.last.set_result(HttpReply(body="{}"))
        assert [chunk async for chunk in host.chunks()][-1] == event("{}")


async def test_silence_begins_anew_with_each_message() -> None:
    held, loop = Held(), asyncio.get_running_loop()
    async with opened(held, sse_keepalive=timedelta(seconds=0.1)) as gate, gate.host() as host:
        await host.send(post())
        await host.head()
        assert await host.chunk() == KEEP_ALIVE
        await asyncio.sleep(0.06)
        said = loop.time()
        held.feeds[0].send("{}")
        assert await host.chunk() == event("{}")
        assert await host.chunk() == KEEP_ALIVE
        assert loop.time() - said > 0.09
        held.last.set_result(HttpReply())


async def test_a_message_that_finds_the_writer_waiting_does_not_wake_it() -> None:
    passed: list[bytes] = []

    def pass_on(piece: bytes) -> bool:
        passed.append(piece)
        return piece != b"later"

    line = SseConnection(write_through=pass_on)
    assert line.send(b"early")
    assert await line.receive(10) == b"early"
    reader = asyncio.create_task(line.receive(10))
    await asyncio.sleep(0)
    assert line.send(b"now")
    await asyncio.sleep(0)
    assert not reader.done()
    assert line.send(b"later")
    assert line.send(b"last")
    async with bounded():
        assert await reader == b"later"
    assert await line.receive(10) == b"last"
    assert passed == [b"now", b"later"]


async def test_a_stream_to_http_1_0_has_no_chunks(gate: Gate) -> None:
    gate.engine.script = held = Held()
    async with gate.host() as host:
        await host.send("GET /mcp HTTP/1.0\r\nHost: gate.example\r\n\r\n")
        await host.head()
        held.feeds[0].send("{}")
        held.last.set_result(HttpReply(body="[]"))
        assert await host.rest() == event("{}") + event("[]")


async def test_a_stream_to_http_1_0_ends_with_the_connection(gate: Gate) -> None:
    gate.engine.script = held = Held()
    held.last.set_result(HttpReply(body="{}"))
    async with gate.host() as host:
        await host.send("GET /mcp HTTP/1.0\r\nHost: gate.example\r\nConnection: keep-alive\r\n\r\n")
        head, _, body = (await host.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK\r\n")
        assert b"ransfer-" not in head
        assert body == event("{}")


@pytest.mark.parametrize("request_bytes", [post(), get()], ids=["POST", "GET"])
async def test_a_host_that_leaves_closes_the_feed_and_is_reported_once(gate: Gate, request_bytes: bytes) -> None:
    gate.engine.script = held = Held()
    async with gate.host() as host:
        await host.send(request_bytes)
        await host.head()
        async with bounded():
            leaving = asyncio.create_task(held.feeds[0].wait_closed())
            await asyncio.sleep(0)
            host.abort()
            await leaving
    assert held.left == 1
    assert not held.feeds[0].send("{}")
    held.last.set_result(HttpReply(body='{"late":true}'))
    await eventually(gate.emitted.answered)
    assert held.left == 1
    assert gate.emitted.all.count(StreamEnded("downstream", "get" if request_bytes == get() else "response")) == 1


async def test_a_host_that_leaves_before_a_plain_answer_is_reported_and_its_work_goes_on(gate: Gate) -> None:
    left, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(exchange: Exchange) -> HttpReply:
        exchange.on_disconnect(left.set)
        await go_on.wait()
        # Whoever asks late learns at once, and gets a feed that takes nothing.
        late: list[str] = []
        exchange.on_disconnect(lambda: late.append("left"))
        assert late == ["left"]
        assert exchange.stream().is_closed
        done.set()
        return HttpReply(body="{}")

    gate.engine.script = work
    async with gate.host() as host:
        await host.send(post())
        await eventually(lambda: gate.engine.seen)
        host.abort()
        async with bounded():
            await left.wait()
        assert not done.is_set()
        go_on.set()
        async with bounded():
            await done.wait()
        await eventually(gate.emitted.answered)
    assert not [event for event in gate.emitted.all if isinstance(event, StreamOpened)]


async def test_a_host_that_leaves_after_its_answer_is_not_reported(gate: Gate) -> None:
    left: list[str] = []

    async def answer(exchange: Exchange) -> HttpReply:
        exchange.on_disconnect(lambda: left.append("left"))
        return HttpReply(body="{}")

    gate.engine.script = answer
    async with gate.host() as host:
        assert (await host.ask(post())).status == 200
    await gate.all_gone()
    assert left == []


async def test_requests_behind_a_stream_wait_for_its_end(gate: Gate) -> None:
    gate.engine.script = held = Held()
    async with gate.host() as host:
        await host.send(post(), post())
        await host.head()
        assert len(gate.engine.seen) == 1
        held.last.set_result(HttpReply(body="{}"))
        assert [chunk async for chunk in host.chunks()] == [event("{}")]
        assert (await host.answer()).body == event("{}")
    assert len(gate.engine.seen) == 2


async def test_garbage_behind_a_stream_is_refused_after_its_end(gate: Gate) -> None:
    gate.engine.script = held = Held()
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        await host.send(f"{PLANTED}\r\n\r\n")
        held.last.set_result(HttpReply(body="{}"))
        assert [chunk async for chunk in host.chunks()] == [event("{}")]
        assert (await host.answer()).status == 400
        assert await host.at_end()


async def test_an_engine_that_fails_ends_its_stream(gate: Gate) -> None:
    async def fail(exchange: Exchange) -> HttpReply:
        exchange.stream()
        raise ValueError(PLANTED)

    gate.engine.script = fail
    async with gate.host() as host:
        answer = await host.ask(post())
        assert (answer.status, answer.body) == (200, b"")


async def test_a_message_that_cannot_be_written_closes_the_feed(gate: Gate) -> None:
    async def answer(exchange: Exchange) -> HttpReply:
        feed = exchange.stream()
        feed.send(f'"{PLANTED}\ud800"')
        await feed.wait_closed()
        return HttpReply()

    gate.engine.script = answer
    async with gate.host() as host:
        assert (await host.ask(post())).body == b""


async def test_a_message_in_the_midst_that_cannot_be_written_ends_the_stream(gate: Gate) -> None:
    gate.engine.script = held = Held()
    async with gate.host() as host:
        await host.send(post())
        await host.head()
        assert not held.feeds[0].send(f'"{PLANTED}\ud800"')
        await eventually(lambda: held.feeds[0].is_closed)
        held.last.set_result(HttpReply())


async def test_an_answer_of_megabytes_comes_whole(gate: Gate) -> None:
    text = '{"result":"' + "x" * 2**22 + '"}'
    gate.engine.script = held = Held()
    held.last.set_result(HttpReply(body=text))
    async with gate.host() as host:
        assert (await host.ask(post())).body == event(text)


async def test_a_call_that_goes_on_after_its_host_was_answered_writes_nothing_more_to_that_host(gate: Gate) -> None:
    seen: list[Exchange] = []

    async def script(exchange: Exchange) -> HttpReply:
        seen.append(exchange)
        return HttpReply(status=202) if len(seen) == 1 else HttpReply(body="{}")

    gate.engine.script = script
    async with gate.host() as host:
        assert (await host.ask(post())).status == 202
        feed = seen[0].stream()
        assert feed.is_closed
        assert not feed.send_now("late")
        assert not seen[0].is_streaming
        answer = await host.ask(post())
        assert (answer.status, answer.body) == (200, b"{}")
