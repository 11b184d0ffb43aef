"""What a server says beside its answer is counted, read in pieces, and too much in a short time ends the stream."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from aiohttp.http_parser import RawResponseMessage
from aiohttp.http_writer import HttpVersion11
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from requirements import covers
from taskgate.errors import UpstreamFailed
from taskgate.protocol.sse import EventDecoder
from taskgate.upstream.notification_limits import SAID_A_SECOND, LeftOut
from taskgate.upstream.wire.connection import Target
from taskgate.upstream.wire.heads import UNTIL_CLOSE, AnswerHead
from taskgate.upstream.wire.transport import A_TURN, NOISE, HttpIncoming

ANSWER = b'data: {"answer":true}\n\n'
LIMIT = 4 * SAID_A_SECOND


@dataclass(slots=True)
class Connection:
    """Has an answer on it, whose body has come whole."""

    body: bytes
    length: int = UNTIL_CLOSE
    has_ended: bool = True
    released: list[bool] = field(default_factory=list)

    def take(self) -> bytes:
        taken, self.body = self.body, b""
        return taken

    def release(self, *, linger: bool) -> None:
        self.released.append(linger)


def incoming(*chunks: bytes) -> HttpIncoming:
    """An event stream that has come whole, in those pieces."""
    headers = CIMultiDictProxy(CIMultiDict({"Content-Type": "text/event-stream"}))
    head = AnswerHead(RawResponseMessage(HttpVersion11, 200, "OK", headers, (), False, None, False, False))
    target, connection = Target(URL("http://reports.example")), Connection(b"".join(chunks))
    return HttpIncoming(connection, head, target, LIMIT, None, LeftOut("reports"))  # type: ignore[arg-type]


async def read(stream: HttpIncoming) -> list[bytes]:
    return [message async for message in stream.messages()]


async def test_a_message_says_whether_another_came_with_it() -> None:
    messages = incoming(b"data: 1\n\ndata: 2\n\ndata: 3\n\n", ANSWER).messages()
    assert not messages.has_more
    assert [messages.has_more async for _ in messages] == [True, True, True, False]


NOISES: dict[str, Callable[[int], bytes]] = {
    "comments": lambda size: b": ping\n" * (size // 7 + 1),
    "empty lines": lambda size: b"\n" * size,
    "events of another type": lambda size: b"event: ping\ndata: 1\n\n" * (size // 21 + 1),
    "empty events": lambda size: b"data:\n\n" * (size // 7 + 1),
    "pauses": lambda size: b"retry: 5\n" * (size // 9 + 1),
    "ids": lambda size: b"id: 1\n" * (size // 6 + 1) + b"\n",
    "unknown fields": lambda size: b"x: 1\n" * (size // 5 + 1),
}


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
async def test_more_noise_than_is_read_ends_the_stream(noise: Callable[[int], bytes]) -> None:
    with pytest.raises(UpstreamFailed, match="sent too much data") as failed:
        await read(incoming(noise(2 * NOISE + 2 * A_TURN), ANSWER))
    assert failed.value.reason == "too_large"


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
async def test_usual_noise_is_passed_over(noise: Callable[[int], bytes]) -> None:
    assert await read(incoming(noise(NOISE // 2), ANSWER)) == [b'{"answer":true}']


async def test_noise_over_a_long_time_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = incoming(b": ping\n" * NOISE, ANSWER), 0.0

    def time() -> float:
        nonlocal now
        now += 17.0
        return now

    monkeypatch.setattr(asyncio.get_running_loop(), "time", time)
    assert await read(stream) == [b'{"answer":true}']


MESSAGE = b"event: message\nid: 12345\ndata: %s\n\n" % (b"x" * 2000)


async def test_more_messages_than_are_read_end_the_stream() -> None:
    stream, heard = incoming(MESSAGE * (3 * LIMIT // len(MESSAGE)), ANSWER), 0

    async def hear() -> None:
        nonlocal heard
        async for _ in stream.messages():
            heard += 1

    with pytest.raises(UpstreamFailed, match="sent too much data"):
        await hear()
    assert LIMIT < heard * len(MESSAGE) < 2 * LIMIT + 2 * A_TURN


async def test_answers_do_not_count_on_a_stream_that_has_many() -> None:
    number, heard = 3 * LIMIT // len(MESSAGE), 0
    stream = incoming(MESSAGE * number)
    async for message in stream.messages():
        heard += 1
        stream.answered(len(message))
    assert heard == number


PROGRESS = b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":%d}}\n\n'


def progress(count: int) -> bytes:
    """An event stream of that much progress."""
    return b"".join(PROGRESS % number for number in range(count))


@pytest.fixture
async def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds for which was paused; they are over at once, and time stands still."""
    sleep, paused, now = asyncio.sleep, list[float](), asyncio.get_running_loop().time()

    async def at_once(delay: float) -> None:
        paused.extend([delay] if delay else [])
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    return paused


@covers("T43")
async def test_a_flood_of_progress_before_an_answer_ends_in_the_newest(pauses: list[float]) -> None:
    *heard, newest, answer = await read(incoming(progress(8000), ANSWER))
    assert json.loads(newest)["params"]["progress"] == 7999
    assert answer == b'{"answer":true}'
    assert len(heard) < 2000


async def test_of_a_flood_of_twice_the_size_little_more_is_passed_on(pauses: list[float]) -> None:
    few, many = [len(await read(incoming(progress(count)))) for count in (4000, 8000)]
    # One of each turn.
    assert many - few <= len(progress(4000)) // A_TURN + 2


async def test_progress_that_comes_at_once_is_heard_whole(pauses: list[float]) -> None:
    assert len(await read(incoming(progress(1000)))) == 1000
    assert pauses == []


@covers("T43")
async def test_messages_without_end_are_read_with_pauses_that_grow_with_them(pauses: list[float]) -> None:
    small = b'data: {"method":"n"}\n\n'
    sums = []
    for count in (10_000, 20_000):
        pauses.clear()
        assert len(await read(incoming(small * count))) == count
        # Time stands still, so each pause is as long as all before it and its own together.
        sums.append(max(pauses))
    assert sums[0] == pytest.approx(1.0, abs=0.5)
    assert sums[1] == pytest.approx(3.0, abs=0.5)


async def test_a_notification_that_is_too_large_is_passed_over_and_the_answer_is_read() -> None:
    note = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%s"}}\n\n'
    messages = await read(incoming(note % (b"x" * 2**17), note % b"x", ANSWER))
    assert messages == [(note % b"x")[6:-2], b'{"answer":true}']


async def test_the_answer_may_have_its_whole_size_after_many_messages() -> None:
    messages = await read(incoming(MESSAGE * (LIMIT // len(MESSAGE)), b"data: %s\n\n" % (b"y" * LIMIT)))
    assert messages[-1] == b"y" * LIMIT


async def turns(stream: HttpIncoming) -> int:
    """How often everybody else has a turn while a stream is read."""
    count = 0

    async def others() -> AsyncIterator[None]:
        while True:
            yield
            await asyncio.sleep(0)

    async def counting() -> None:
        nonlocal count
        async for _ in others():
            count += 1

    other = asyncio.create_task(counting())
    await asyncio.sleep(0)
    began = count
    await read(stream)
    other.cancel()
    await asyncio.wait([other])
    return count - began


async def test_the_more_came_at_once_the_more_turns_do_others_have() -> None:
    few, many = [await turns(incoming(MESSAGE * (size * A_TURN // len(MESSAGE)))) for size in (8, 16)]
    assert (few >= 7, many >= 2 * few - 1) == (True, True)


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_where_the_chunks_fall_never_changes_what_is_noise(cut: int) -> None:
    stream = b": c\r\n\r\nevent: ping\r\ndata: 1\r\n\r\nid: 1\r\ndata: 2\r\n\r\nx: 3\r\n\r\n\r\n"
    whole, parts = EventDecoder(100), EventDecoder(100)
    whole.feed(stream)
    parts.feed(stream[:cut])
    parts.feed(stream[cut:])
    assert whole.noise == parts.noise > 0
