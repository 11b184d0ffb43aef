"""Messages that come together are announced to the listener of their call, all but the last of a read."""

from collections.abc import Callable
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.upstream.calls import CallBounds, RunningCall
from taskgate.upstream.legacy.event_streams import UntilSilent, read_stream


class Read:
    """Messages that came in reads of so many; see Incoming."""

    unfinished = 0

    def __init__(self, *sizes: int) -> None:
        self._left = [size - 1 - place for size in sizes for place in range(size)]
        self.has_more = False

    def messages(self) -> "Read":
        return self

    def __aiter__(self) -> "Read":
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        self.has_more = self._left.pop(0) > 0
        return b"{}"


class Heard:
    """Notes what a listener and its call are told, in order."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def more_follows(self) -> None:
        self.all.append("more")

    def clog(self) -> None:
        self.all.append("clog")

    async def hear(self, _: bytes, __: RunningCall) -> None:
        self.all.append("message")

    def stream_opened(self, _: str) -> None:
        pass

    stream_ended = stream_opened


@pytest.mark.parametrize("wrap", [lambda read: read, lambda read: UntilSilent(read, 15.0)], ids=["first", "reopened"])
async def test_all_but_the_last_message_of_a_read_are_announced(wrap: Callable[[Any], Any]) -> None:
    heard: Any = Heard()
    call = RunningCall(1, heard, CallBounds(1, 1))
    async with bounded():
        assert await read_stream(heard, heard.hear, call, wrap(Read(1, 3))) is None
    joined = ["more", "message", "clog"]
    assert heard.all == [*joined[1:], *joined, *joined, *joined[1:]]


async def test_a_call_without_a_listener_is_told_nothing() -> None:
    heard: Any = Heard()
    async with bounded():
        await read_stream(heard, heard.hear, RunningCall(1, None, CallBounds(1, 1)), Read(2))  # type: ignore[arg-type]
    assert heard.all == ["message", "message"]
