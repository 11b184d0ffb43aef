"""The messages of a call's stream: those that come together are announced, and progress needs no wait."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.upstream.call_streams import read_stream
from taskgate.upstream.calls import CallBounds, RunningCall
from taskgate.upstream.legacy.event_streams import UntilSilent

PROGRESS = (
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d,"message":"on"}}'
)


class Read:
    """Messages that came in reads of so many; see Incoming. `take` is what they are to be offered to."""

    unfinished = 0

    def __init__(self, *sizes: int, message: bytes = b"{}") -> None:
        self._left = [size - 1 - place for size in sizes for place in range(size)]
        self._message = message
        self.has_more = False
        self.take: Callable[[Sequence[bytes]], int] | None = None

    def messages(self) -> "Read":
        return self

    def offer_to(self, take: Callable[[Sequence[bytes]], int]) -> None:
        self.take = take

    def __aiter__(self) -> "Read":
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        self.has_more = self._left.pop(0) > 0
        return self._message


class Heard:
    """Notes what a listener and its call are told, in order. `room`: what a slow host makes its server wait for."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self.room: asyncio.Future[None] | None = None

    def more_follows(self) -> None:
        self.all.append("more")

    def clog(self) -> asyncio.Future[None] | None:
        self.all.append("clog")
        return self.room

    def on_notification(self, notification: Any) -> None:
        self.all.append(f"progress {notification.done}")

    async def hear(self, _: bytes, __: RunningCall) -> None:
        self.all.append("message")

    def stream_opened(self, _: str) -> None:
        pass

    stream_ended = stream_opened


@pytest.fixture
def heard() -> Any:
    return Heard()


@pytest.mark.parametrize("wrap", [lambda read: read, lambda read: UntilSilent(read, 15.0)], ids=["first", "reopened"])
@pytest.mark.parametrize(("message", "as_what"), [(b"{}", "message"), (PROGRESS % 1, "progress 1")])
async def test_all_but_the_last_message_of_a_read_are_announced(
    heard: Any, wrap: Callable[[Any], Any], message: bytes, as_what: str
) -> None:
    call = RunningCall(1, heard, CallBounds(1, 1))
    async with bounded():
        assert await read_stream(heard, heard.hear, call, wrap(Read(1, 3, message=message))) is None
    joined = ["more", as_what, "clog"]
    assert heard.all == [*joined[1:], *joined, *joined, *joined[1:]]


async def test_a_call_without_a_listener_is_told_nothing(heard: Any) -> None:
    async with bounded():
        await read_stream(heard, heard.hear, RunningCall(1, None, CallBounds(1, 1)), Read(2))
    assert heard.all == ["message", "message"]


@pytest.fixture
async def take(heard: Any) -> Callable[[Sequence[bytes]], int]:
    """What a stream of call 1 offers its messages to."""
    read = Read()
    async with bounded():
        await read_stream(heard, heard.hear, RunningCall(1, heard, CallBounds(1, 1)), read)
    assert read.take is not None
    return read.take


async def test_progress_that_comes_first_is_taken_and_announced_once(
    heard: Any, take: Callable[[Sequence[bytes]], int]
) -> None:
    assert take([PROGRESS % 1]) == 1
    assert heard.all == ["progress 1", "clog"]
    heard.all.clear()
    assert take([PROGRESS % 2, PROGRESS % 3, b"{}", PROGRESS % 4]) == 2
    assert heard.all == ["more", "progress 2", "clog", "progress 3", "clog"]


async def test_progress_of_another_call_is_not_taken(heard: Any, take: Callable[[Sequence[bytes]], int]) -> None:
    assert take([(PROGRESS % 1).replace(b'Token":1', b'Token":2')]) == 0
    assert heard.all == []


async def test_while_a_host_is_slow_nothing_more_is_taken(heard: Any, take: Callable[[Sequence[bytes]], int]) -> None:
    heard.room = asyncio.get_running_loop().create_future()
    assert take([PROGRESS % 1, PROGRESS % 2]) == 1
    assert take([PROGRESS % 2]) == 0
    assert heard.all == ["more", "progress 1", "clog"]


async def test_a_message_waits_until_a_slow_host_has_read_those_before_it(heard: Any) -> None:
    heard.room = room = asyncio.get_running_loop().create_future()
    call = RunningCall(1, heard, CallBounds(1, 1))
    reading = asyncio.create_task(read_stream(heard, heard.hear, call, Read(1, 1)))
    for _ in range(4):
        await asyncio.sleep(0)
    assert heard.all == ["message", "clog"]
    heard.room = None
    room.set_result(None)
    async with bounded():
        await reading
    assert heard.all == ["message", "clog"] * 2
