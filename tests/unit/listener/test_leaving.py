"""Hosts that leave at the moment of their answer: whether they have it, for whoever must know."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from helpers.host.raw import RawHost, post
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.jsontext.large import JsonChunks, MessageText
from taskgate.listener.stream import EventStreamAnswer
from taskgate.streams.exchange import Exchange, HttpReply
from unit.listener.gate import Gate


@pytest.mark.parametrize(("is_closed_before", "expected"), [(False, []), (True, ["left"])])
async def test_a_host_that_leaves_with_the_last_event_of_its_stream_left_after_its_answer(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, is_closed_before: bool, expected: list[str]
) -> None:
    left: list[str] = []

    async def answer(exchange: Exchange) -> HttpReply:
        exchange.on_disconnect(lambda: left.append("left"))
        feed = exchange.stream()
        feed.send('{"first":true}')
        if is_closed_before:
            # As for a host that reads too slowly: the answer is not told any more.
            feed.close()
        return HttpReply(body='{"last":true}')

    ending, go_on = asyncio.Event(), asyncio.Event()

    async def send(*_: object) -> None:
        ending.set()
        await go_on.wait()

    monkeypatch.setattr(EventStreamAnswer, "send", send)
    gate.engine.script = answer
    async with gate.host() as host:
        await host.send(post())
        async with bounded():
            await ending.wait()
        host.abort()
        await gate.all_gone()
        go_on.set()
        await eventually(gate.emitted.answered)
    assert left == expected


async def test_a_host_whose_connection_ends_just_before_its_plain_answer_has_left_before_it(gate: Gate) -> None:
    left: list[str] = []

    async def answer(exchange: Exchange) -> HttpReply:
        exchange.on_disconnect(lambda: left.append("left"))
        exchange._request.connection.transport.abort()  # type: ignore[attr-defined]
        return HttpReply(body="{}")

    gate.engine.script = answer
    async with gate.host() as host:
        await host.send(post())
        await eventually(gate.emitted.answered)
    assert left == ["left"]


SIZE = 16 * 2**20


@pytest.fixture
def memory() -> Iterator[Callable[[], int]]:
    """How many more bytes are in memory than before the test; no cycle is collected meanwhile."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    yield lambda: tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    gc.enable()


def text() -> MessageText:
    return f'"{"x" * SIZE}"'


def pieces() -> MessageText:
    return JsonChunks([b'"', memoryview(b"x" * SIZE), b'"'])


@covers("T35")
@pytest.mark.parametrize("is_stream", [False, True], ids=["a document", "a stream"])
@pytest.mark.parametrize("written", [text, pieces])
async def test_a_large_answer_is_let_go_of_when_its_host_leaves_in_the_middle(
    gate: Gate, memory: Callable[[], int], written: Callable[[], MessageText], *, is_stream: bool
) -> None:
    async def answer(exchange: Exchange) -> HttpReply:
        if is_stream:
            exchange.stream()
        return HttpReply(body=written())

    gate.engine.script = answer
    host = await RawHost.connect(gate.address, limit=1024)
    await host.send(post())
    await host.head()
    await eventually(lambda: gate.is_full)
    assert memory() > SIZE
    host.abort()
    await eventually(lambda: memory() < SIZE // 4)
