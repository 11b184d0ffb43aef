"""Changes of other processes over a pub/sub connection that may break or fall silent."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import ConnectionError, NoPermissionError

from helpers.records import OWNER
from helpers.waiting import bounded
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import ChangeBatch, OwnerWatch, RecordChange, TaskWatch
from taskgate.stores.redis.records import rows
from taskgate.stores.redis.records.change_subscriber import PATIENCE, ChangeSubscriber

LONG = timedelta(hours=1)
WATCH = OwnerWatch(owner=OWNER)


class Wire:
    """A pub/sub connection that says what the test has it say; nothing, and no more, where that is None."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[dict[str, Any] | Exception | None] = asyncio.Queue()
        self.subscribed: tuple[str, ...] = ()
        self.asked = 0
        self.closed = False

    async def subscribe(self, *channels: str) -> None:
        self.subscribed = channels
        self.said.put_nowait({"type": "subscribe"})

    async def get_message(self, *, timeout: float | None) -> dict[str, Any] | None:
        assert timeout is not None
        said = await self.said.get()
        if isinstance(said, Exception):
            raise said
        return said

    async def ping(self) -> None:
        self.asked += 1

    async def aclose(self) -> None:
        self.closed = True

    def tell(self, revision: int, id: str, *, mark: str = "other-1", holder: str = "") -> None:
        words = (mark, str(revision), rows.owner_name(OWNER), holder, id)
        self.said.put_nowait({"type": "message", "data": "\0".join(words).encode()})


def never(error: BaseException) -> None:
    """What is told of a refusal, where there is none."""
    raise AssertionError(error)


async def at_once() -> None:
    """The server can be asked."""


@pytest.fixture
def wires() -> list[Wire]:
    return []


@pytest.fixture
async def news(wires: list[Wire]) -> AsyncIterator[ChangeSubscriber]:
    def opened() -> Wire:
        wires.append(Wire())
        return wires[-1]

    feed = ChangeSubscriber(opened, "channel", origin="me", on_refused=never, wait_until_usable=at_once)
    assert await feed.wait_until_subscribed(timeout=timedelta(seconds=5))
    yield feed
    await feed.close()


async def look(_: str) -> int:
    return 0


async def heard(news: ChangeSubscriber, since: int | None = None) -> ChangeBatch:
    async with bounded():
        return await news.changed(OwnerWatch(owner=OWNER, since=since), timeout=LONG, look=look)


async def place(news: ChangeSubscriber) -> int:
    return (await news.changed(WATCH, timeout=timedelta(), look=look)).place


async def test_what_others_say_is_news(news: ChangeSubscriber, wires: list[Wire]) -> None:
    since = await place(news)
    wires[0].tell(3, "task", holder="p")
    assert (await heard(news, since)).changes == (RecordChange("task", 3),)
    assert wires[0].subscribed == ("channel",)


async def test_what_this_process_said_itself_is_no_news_unless_it_is_in_doubt(
    news: ChangeSubscriber, wires: list[Wire]
) -> None:
    since = await place(news)
    known, doubted = news.mark(), news.mark()
    news.expect_message(doubted)
    wires[0].tell(1, "known", mark=known)
    wires[0].tell(2, "task", mark=doubted)
    wires[0].tell(3, "another", mark="me")
    told = set(changes := (await heard(news, since)).changes)
    while RecordChange("another", 3) not in told:
        told.update(changes := (await heard(news, since)).changes)
    assert changes == (RecordChange("task", 2), RecordChange("another", 3))


async def test_a_connection_that_breaks_is_made_anew_and_everything_before_is_forgotten(
    news: ChangeSubscriber, wires: list[Wire], caplog: pytest.LogCaptureFixture
) -> None:
    since = await place(news)
    waiting = asyncio.create_task(heard(news, since))
    wires[0].said.put_nowait(ConnectionError("gone, and where it was"))
    assert not (await waiting).complete
    assert not (await heard(news, since)).complete
    assert wires[0].closed
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "where it was" not in caplog.text


async def test_a_server_that_is_away_for_longer_is_complained_of_once(
    news: ChangeSubscriber, wires: list[Wire], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 3

    async def refuse(wire: Wire, *channels: str) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise ConnectionError
        wire.said.put_nowait({"type": "subscribe"})

    since = await place(news)
    monkeypatch.setattr(Wire, "subscribe", refuse)
    loop = asyncio.get_running_loop()
    began = loop.time()
    wires[0].said.put_nowait(ConnectionError())
    assert not (await heard(news, since)).complete
    assert loop.time() - began > 1, "it is not asked all the time"
    assert len(wires) == 5
    assert all(wire.closed for wire in wires[:-1])
    assert len(caplog.records) == 1


async def test_a_silent_connection_is_asked_once_and_then_given_up(news: ChangeSubscriber, wires: list[Wire]) -> None:
    since = await place(news)
    wires[0].said.put_nowait(None)
    wires[0].said.put_nowait(None)
    assert not (await heard(news, since)).complete
    assert (wires[0].asked, wires[0].closed, len(wires)) == (1, True, 2)


async def test_a_connection_that_answers_is_kept(news: ChangeSubscriber, wires: list[Wire]) -> None:
    since = await place(news)
    for said in (None, {"type": "pong"}, None, {"type": "pong"}):
        wires[0].said.put_nowait(said)
    wires[0].tell(1, "task")
    assert (await heard(news, since)).complete
    assert (wires[0].asked, len(wires)) == (2, 1)


async def test_a_place_of_before_a_new_connection_is_not_remembered(news: ChangeSubscriber, wires: list[Wire]) -> None:
    since = await place(news)
    wires[0].said.put_nowait({"type": "subscribe"})
    assert await heard(news, since) == ChangeBatch(place=since + 1, complete=False)
    wires[0].tell(1, "task")
    assert (await heard(news, since + 1)).changes == (RecordChange("task", 1),)


async def test_who_watches_one_task_looks_again_after_a_while(news: ChangeSubscriber) -> None:
    """A message may be lost without anybody noticing: the wait ends early, and its caller looks."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with bounded():
        told = await news.changed(TaskWatch(id="task", revision=0), timeout=LONG, look=look)
    assert (told.changes, told.complete) == ((), True)
    assert loop.time() - began > PATIENCE.total_seconds() / 2


async def test_what_comes_during_the_look_ends_the_wait(news: ChangeSubscriber, wires: list[Wire]) -> None:
    async def slow_look(_: str) -> int:
        news.add("task", 1, owner="o", holder=None)
        return 0

    async with bounded():
        told = await news.changed(TaskWatch(id="task", revision=0), timeout=LONG, look=slow_look)
    assert told.changes == (RecordChange("task", 1),)


async def test_nobody_listens_where_there_is_no_server(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Wire:
        wire = Wire()
        wire.subscribe = subscribe  # type: ignore[method-assign]
        return wire

    async def subscribe(*channels: str) -> None:
        raise ConnectionError

    news = ChangeSubscriber(refuse, "channel", origin="me", on_refused=never, wait_until_usable=at_once)
    assert not await news.wait_until_subscribed(timeout=timedelta(milliseconds=1))
    await news.close()
    with pytest.raises(StoreUnavailable):
        await news.changed(WATCH, timeout=LONG, look=look)
    # It is the operator's affair when the store is opened, and said there.
    assert caplog.records == []


async def test_a_server_that_does_not_let_it_listen_is_told_of_each_time() -> None:
    told: asyncio.Queue[BaseException] = asyncio.Queue()
    refusal = NoPermissionError("the channel is not yours")

    def refuse() -> Wire:
        wire = Wire()
        wire.said.put_nowait(refusal)
        return wire

    news = ChangeSubscriber(refuse, "channel", origin="me", on_refused=told.put_nowait, wait_until_usable=at_once)
    async with bounded():
        assert [await told.get(), await told.get()] == [refusal, refusal]
    await news.close()


async def test_nobody_is_woken_to_look_before_the_server_can_be_asked(wires: list[Wire]) -> None:
    can_be_asked, asked = asyncio.Event(), asyncio.Event()
    can_be_asked.set()

    async def usable() -> None:
        asked.set()
        await can_be_asked.wait()

    def opened() -> Wire:
        wires.append(Wire())
        return wires[-1]

    feed = ChangeSubscriber(opened, "channel", origin="me", on_refused=never, wait_until_usable=usable)
    assert await feed.wait_until_subscribed(timeout=timedelta(seconds=5))
    since = await place(feed)
    waiting = asyncio.create_task(heard(feed, since))
    can_be_asked.clear()
    asked.clear()
    wires[0].said.put_nowait(ConnectionError())
    async with bounded():
        await asked.wait()
    await asyncio.sleep(1)
    assert not waiting.done()
    can_be_asked.set()
    assert not (await waiting).complete
    await feed.close()


async def test_what_cannot_be_read_is_dropped_and_told_once(
    news: ChangeSubscriber, wires: list[Wire], caplog: pytest.LogCaptureFixture
) -> None:
    since = await place(news)
    for garbage in (b"\xff\xfe", b"too\0few", b"m\0one\0o\0h\0id"):
        wires[0].said.put_nowait({"type": "message", "data": garbage})
    wires[0].tell(1, "task")
    assert await heard(news, since) == ChangeBatch(changes=(RecordChange("task", 1),), place=since + 1)
    assert (len(wires), len(caplog.records)) == (1, 1)


async def test_what_nobody_has_foreseen_is_met_as_a_connection_that_breaks(
    news: ChangeSubscriber, wires: list[Wire], caplog: pytest.LogCaptureFixture
) -> None:
    since = await place(news)
    for number in range(2):
        wires[number].said.put_nowait(RuntimeError("never thought of"))
        assert not (await heard(news, since)).complete
        since = await place(news)
        assert wires[number].closed
    wires[2].tell(1, "task")
    assert (await heard(news, since)).changes == (RecordChange("task", 1),)
    assert caplog.text.count("The subscription to task changes failed") == 1
    assert "never thought of" in caplog.text


async def test_a_connection_that_cannot_even_be_made_is_made_later() -> None:
    failures = iter((RuntimeError(), None))

    def opened() -> Wire:
        if (failure := next(failures)) is not None:
            raise failure
        return Wire()

    feed = ChangeSubscriber(opened, "channel", origin="me", on_refused=never, wait_until_usable=at_once)
    assert await feed.wait_until_subscribed(timeout=timedelta(seconds=5))
    await feed.close()
