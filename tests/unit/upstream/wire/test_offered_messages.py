"""Messages that are offered as they arrive: whoever takes them spares their reader the wait."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import cast
from weakref import ref

import pytest
from yarl import URL

from helpers.waiting import bounded
from taskgate.errors import UpstreamFailed
from taskgate.upstream.notification_limits import MESSAGES, LeftOut
from taskgate.upstream.wire.connection import Connection, ConnectionObserver, Target
from taskgate.upstream.wire.heads import AnswerHeads
from taskgate.upstream.wire.transport import A_TURN, HttpIncoming
from unit.upstream.exchanges import STREAM
from unit.upstream.wire.test_answers import Network, Pool

LIMIT = 4 * A_TURN
IDLE = 30.0
WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


class Defect(Exception):
    """What a taker may raise."""


@dataclass(eq=False)
class Taker:
    """Takes messages up to the first that begins with a star, and notes what it is offered."""

    offered: list[list[bytes]] = field(default_factory=list)
    contexts: list[str] = field(default_factory=list)
    error: Exception | None = None

    def take(self, arrived: Sequence[bytes]) -> int:
        self.offered.append(list(arrived))
        self.contexts.append(WHO.get())
        if self.error is not None:
            raise self.error
        return next((place for place, each in enumerate(arrived) if each.startswith(b"*")), len(arrived))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def events(*messages: bytes) -> bytes:
    return chunk(b"".join(b"data: %b\n\n" % each for each in messages))


class Stream:
    """An event stream on a connection, whose reader waits for its messages."""

    def __init__(self, taker: Taker) -> None:
        loop = asyncio.get_running_loop()
        self.connection = Connection(loop, cast("ConnectionObserver", Pool()), AnswerHeads(loop, 8192))
        self.connection.connection_made(cast("asyncio.Transport", Network()))
        head = self.connection.ask(b"", None, None)
        self.arrive(STREAM)
        target, left_out = Target(URL("http://reports.example")), LeftOut("reports")
        self.incoming = HttpIncoming(self.connection, head.result(), target, LIMIT, IDLE, left_out)
        self.messages = self.incoming.messages()
        self.messages.offer_to(taker.take)

    def arrive(self, data: bytes) -> None:
        """Have data arrive in the context of the connection."""
        Context().run(self.connection.data_received, data)

    async def reader(self) -> "asyncio.Task[bytes]":
        """Begin to wait for a message."""

        async def read() -> bytes:
            return await anext(self.messages)

        reader = asyncio.create_task(read())
        await turns()
        return reader


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def end_of(reader: Awaitable[bytes]) -> bytes:
    async with bounded():
        return await reader


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
async def stream(taker: Taker) -> Stream:
    return Stream(taker)


async def test_only_a_message_that_is_not_taken_ends_the_wait_of_the_reader(stream: Stream, taker: Taker) -> None:
    reader = await stream.reader()
    stream.arrive(events(b"1"))
    assert taker.offered == [[b"1"]]
    stream.arrive(events(b"2", b"3"))
    await turns()
    assert not reader.done()
    stream.arrive(events(b"4", b"*5", b"6"))
    assert await end_of(reader) == b"*5"
    assert stream.messages.has_more
    assert await anext(stream.messages) == b"6"
    assert taker.offered == [[b"1"], [b"2", b"3"], [b"4", b"*5", b"6"]]


async def test_messages_that_came_before_the_reader_are_offered_when_it_reads(stream: Stream, taker: Taker) -> None:
    stream.arrive(events(b"1", b"*2"))
    assert taker.offered == []
    assert await end_of(await stream.reader()) == b"*2"
    assert taker.offered == [[b"1", b"*2"]]


async def test_messages_are_taken_in_the_context_in_which_they_were_offered(taker: Taker) -> None:
    WHO.set("the call")
    stream = Stream(taker)
    reader = await stream.reader()
    stream.arrive(events(b"1"))
    stream.arrive(events(b"*2"))
    await end_of(reader)
    assert taker.contexts == ["the call", "the call"]


async def test_ids_are_reported_in_the_context_in_which_messages_were_offered(taker: Taker) -> None:
    WHO.set("the call")
    stream = Stream(taker)
    placed: list[str] = []
    stream.incoming.placed = lambda id: placed.append(f"{id} by {WHO.get()}")
    reader = await stream.reader()
    stream.arrive(chunk(b"id: a\ndata:\n\n"))
    stream.arrive(chunk(b"id: b\ndata: 1\n\n"))
    stream.arrive(events(b"*2"))
    await end_of(reader)
    assert placed == ["a by the call", "b by the call"]


async def test_an_id_is_reported_once_what_came_with_it_was_taken(stream: Stream) -> None:
    placed: list[str] = []
    stream.incoming.placed = placed.append
    reader = await stream.reader()
    stream.arrive(chunk(b"id: a\ndata: 1\n\nid: b\ndata: 2\n\n"))
    assert placed == ["b"]
    stream.arrive(chunk(b"id: c\ndata: 3\n\nid: d\ndata: *4\n\n"))
    assert await end_of(reader) == b"*4"
    assert placed == ["b"]
    reader = await stream.reader()
    assert placed == ["b", "d"]
    stream.arrive(events(b"*5"))
    await end_of(reader)


async def test_a_failure_to_take_a_message_is_one_of_the_reader(stream: Stream, taker: Taker) -> None:
    taker.error = ValueError("a defect")
    reader = await stream.reader()
    stream.arrive(events(b"1"))
    with pytest.raises(ValueError, match="a defect"):
        await end_of(reader)


async def test_a_failure_goes_with_its_stream(stream: Stream, taker: Taker) -> None:
    # It leads to all that was read of the body, so nothing may lead from there to it.
    taker.error = Defect()
    failure = ref(taker.error)
    reader = await stream.reader()
    stream.arrive(events(b"1"))
    async with bounded():
        await asyncio.wait([reader])
    stream.incoming.release()
    taker.error = None
    assert isinstance(reader.exception(), Defect)
    del reader
    assert failure() is None


async def test_a_server_that_says_too_much_is_not_read_for_a_while_although_all_of_it_was_taken(
    stream: Stream, taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, now = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    monkeypatch.setattr(loop, "time", lambda: now)
    reader = await stream.reader()
    # What comes first is not counted.
    stream.arrive(events(b"1" * (A_TURN - len("data: \n\n"))))
    many = events(*[b"1"] * (MESSAGES.burst // 2))
    for _ in range(3):
        stream.arrive(many)
    await turns()
    stream.arrive(events(b"*2"))
    await turns()
    assert [len(offered) for offered in taker.offered] == [1, *[MESSAGES.burst // 2] * 3]
    now += MESSAGES.burst // 2 * MESSAGES.every
    assert await end_of(reader) == b"*2"


async def test_an_event_above_the_limit_fails_the_reader_that_waits(stream: Stream) -> None:
    reader = await stream.reader()
    for _ in range(LIMIT // A_TURN + 1):
        stream.arrive(chunk(b"data: " + b"x" * (A_TURN - 6)))
    with pytest.raises(UpstreamFailed) as failed:
        await end_of(reader)
    assert failed.value.reason == "too_large"


async def test_the_end_behind_messages_is_that_of_the_reader(stream: Stream, taker: Taker) -> None:
    reader = await stream.reader()
    stream.arrive(events(b"1") + b"0\r\n\r\n")
    with pytest.raises(StopAsyncIteration):
        await end_of(reader)
    assert taker.offered == [[b"1"]]


async def test_messages_that_are_taken_are_no_silence_and_framing_is(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, now = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    monkeypatch.setattr(loop, "time", lambda: now)
    reader = await stream.reader()
    now += IDLE - 1
    stream.arrive(events(b"1"))
    await turns()
    now += 2
    await turns()
    assert not reader.done()
    stream.arrive(b"5;x")
    now += IDLE - 1.5
    await turns()
    assert reader.done()
    with pytest.raises(UpstreamFailed) as failed:
        await reader
    assert failed.value.reason == "timeout"
