"""The ticker that tells how late the loop is."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from helpers.waiting import bounded
from taskgate.telemetry.metrics import gateway
from taskgate.telemetry.metrics.gateway import PERIOD, LoopLag


class _Loop:
    """A loop whose time is the test's, with the one method that the ticker needs of it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
        self.cancelled = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[..., None], *args: Any) -> "_Loop":
        self.timers.append((when, call, args))
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def run(self, now: float) -> None:
        self.now = now
        [(_, call, args)] = self.timers
        self.timers.clear()
        call(*args)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> _Loop:
    made = _Loop()
    monkeypatch.setattr(gateway.asyncio, "get_running_loop", lambda: made)
    return made


def test_each_tick_tells_how_late_it_came(loop: _Loop) -> None:
    seen: list[float] = []
    LoopLag(seen.append).start()
    for now in (100.25, 101.0, 101.25 - 1e-9):
        assert loop.timers[0][0] == loop.now + PERIOD
        loop.run(now)
    assert seen == [0.0, 0.5, 0.0]


def test_a_second_start_changes_nothing(loop: _Loop) -> None:
    ticker = LoopLag([].append)
    ticker.start()
    ticker.start()
    assert len(loop.timers) == 1


def test_a_stop_ends_the_ticks_and_may_come_at_any_time(loop: _Loop) -> None:
    ticker = LoopLag([].append)
    ticker.stop()
    ticker.start()
    ticker.stop()
    ticker.stop()
    assert loop.cancelled == 1
    ticker.start()
    assert len(loop.timers) == 2


async def test_it_ticks_on_a_real_loop_and_leaves_nothing() -> None:
    ticks: asyncio.Queue[float] = asyncio.Queue()
    ticker = LoopLag(ticks.put_nowait)
    ticker.start()
    async with bounded():
        seen = [await ticks.get() for _ in range(3)]
    ticker.stop()
    assert all(each >= 0 for each in seen)
