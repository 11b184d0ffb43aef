"""What is said on streams comes into the log of all processes: in order, soon, and within bounds."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from helpers.memory_stream_log import MemoryStreamLog
from helpers.waiting import bounded, eventually
from taskgate.streams import behind as module
from taskgate.streams.behind import WriteBehind

SOON = timedelta(seconds=5)


@pytest.fixture
def log() -> MemoryStreamLog:
    return MemoryStreamLog("a")


@pytest.fixture
async def behind(log: MemoryStreamLog) -> AsyncIterator[WriteBehind]:
    behind = WriteBehind(log, "a")
    yield behind
    async with bounded():
        await behind.close()


async def test_what_is_said_in_a_moment_is_written_together_and_in_order(
    log: MemoryStreamLog, behind: WriteBehind
) -> None:
    behind.begin("s", "p1", b"about")
    for number in range(1, 101):
        behind.append("s", "p1", number, b"%d" % number)
    behind.append("s", "p2", 1, b"nobody began it")
    assert await behind.flush(SOON)
    stream = log.streams["s", "p1"]
    assert (stream.holder, stream.about, stream.over) == ("a", b"about", False)
    assert stream.events == [(number, b"%d" % number) for number in range(1, 101)]
    assert log.calls.count("append") == 2
    assert ("s", "p2") not in log.streams


async def test_it_is_written_without_being_asked_for(log: MemoryStreamLog, behind: WriteBehind) -> None:
    behind.begin("s", "p1", b"")
    await eventually(lambda: ("s", "p1") in log.streams)
    behind.append("s", "p1", 1, b"one")
    await eventually(lambda: log.streams["s", "p1"].events)
    behind.end("s", "p1", 2, b"two")
    await eventually(lambda: log.streams["s", "p1"].over)
    assert log.streams["s", "p1"].events == [(1, b"one"), (2, b"two")]


async def test_what_is_said_while_the_store_does_not_answer_is_written_later(
    log: MemoryStreamLog, behind: WriteBehind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.0)
    log.down = True
    behind.begin("s", "p1", b"")
    behind.append("s", "p1", 1, b"one", at_once=True)
    assert not await behind.flush(timedelta(milliseconds=1))
    behind.end("s", "p1", 2, b"two")
    log.down = False
    assert await behind.flush(SOON)
    assert log.streams["s", "p1"].events == [(1, b"one"), (2, b"two")]
    assert log.streams["s", "p1"].over


async def test_what_waits_has_a_bound_and_the_newest_stays(
    log: MemoryStreamLog, behind: WriteBehind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 100)
    monkeypatch.setattr(module, "RETRY", 0.0)
    log.down = True
    behind.begin("s", "p1", b"")
    for number in range(1, 12):
        behind.append("s", "p1", number, b"x" * 10)
    assert behind._size == 10
    log.down = False
    assert await behind.flush(SOON)
    assert log.streams["s", "p1"].events == [(11, b"x" * 10)]
    assert behind._size == 0


async def test_a_stream_that_is_silent_is_kept(log: MemoryStreamLog, behind: WriteBehind) -> None:
    behind.begin("s", "p1", b"")
    assert await behind.flush(SOON)
    behind.touch("s", "p1")
    assert await behind.flush(SOON)
    assert log.calls == ["begin", "append"]


async def test_after_the_end_nothing_is_written(log: MemoryStreamLog, behind: WriteBehind) -> None:
    behind.begin("s", "p1", b"")
    behind.append("s", "p1", 1, b"one")
    await behind.close()
    assert log.calls == []
