"""A timer that is late waits once for what has arrived, and a timer in time does not."""

from collections.abc import Callable
from typing import Any

import pytest

from taskgate.system.event_loop import LATE, READING, patient


class Timer:
    """A timer of the loop below."""

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """A loop whose time a test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Timer:
        timer = Timer(self.now + delay, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def wake_at(self, now: float) -> None:
        """Run the timers that are due, as they are now."""
        self.now = now
        due, self.timers = [each for each in self.timers if each.due <= now], [t for t in self.timers if t.due > now]
        for timer in due:
            if timer.callback is not None:
                timer.callback()


@pytest.fixture
def loop() -> Any:
    return patient(Loop)()


@pytest.mark.parametrize("late", [0.0, LATE])
def test_a_timer_in_time_runs_at_once(loop: Any, late: float) -> None:
    ran: list[object] = []
    loop.call_later(2.0, ran.append, "later")
    loop.call_at(2.0, ran.append, "at")
    loop.wake_at(2.0 + late)
    assert ran == ["later", "at"]


def test_a_late_timer_runs_after_a_moment_of_reading(loop: Any) -> None:
    ran: list[object] = []
    loop.call_later(2.0, ran.append, "run")
    loop.wake_at(60.0)
    assert ran == []
    loop.wake_at(60.0 + READING)
    assert ran == ["run"]


def test_a_late_timer_waits_once_however_late_the_loop_is_again(loop: Any) -> None:
    ran: list[object] = []
    loop.call_later(2.0, ran.append, "run")
    loop.wake_at(60.0)
    loop.wake_at(120.0)
    assert ran == ["run"]


@pytest.mark.parametrize("wakes", [[], [60.0]])
def test_a_timer_is_cancelled_before_it_is_due_and_while_it_waits(loop: Any, wakes: list[float]) -> None:
    ran: list[object] = []
    timer = loop.call_at(2.0, ran.append, "run")
    for wake in wakes:
        loop.wake_at(wake)
    timer.cancel()
    timer.cancel()
    assert timer.cancelled()
    loop.wake_at(180.0)
    assert ran == []


def test_a_timer_that_has_run_can_be_cancelled(loop: Any) -> None:
    ran: list[object] = []
    timer = loop.call_later(2.0, ran.append, "run")
    loop.wake_at(2.0)
    assert not timer.cancelled()
    timer.cancel()
    assert (ran, timer.when()) == (["run"], 2.0)
