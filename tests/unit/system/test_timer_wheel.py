"""Timers of the usual length share one timer of the loop and expire when they are due."""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from functools import partial
from typing import Any
from weakref import ref

import pytest

from taskgate.system.timer_wheel import TimerWheel

USUAL = 10.0


class LoopByHand(asyncio.SelectorEventLoop):
    """An event loop that takes the time from the test."""

    hour = 1000.0

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[asyncio.TimerHandle] = []

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        self.timers.append(super().call_at(when, callback, *args, context=context))
        return self.timers[-1]

    def time(self) -> float:
        return self.hour

    async def at(self, hour: float) -> None:
        """Let everything happen that is due `hour` seconds after the start."""
        self.hour = 1000.0 + hour
        for _ in range(3):
            await asyncio.sleep(0)


def run(scenario: "Coroutine[Any, Any, None]") -> None:
    """Run a scenario on such a loop."""
    with asyncio.Runner(loop_factory=LoopByHand) as runner:
        runner.run(scenario)


def by_hand() -> LoopByHand:
    """The loop of the scenario that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LoopByHand)
    return loop


def test_each_timer_expires_once_at_its_own_time() -> None:
    async def scenario() -> None:
        loop, wheel, expired = by_hand(), TimerWheel(USUAL), list[str]()
        wheel.call_later(USUAL, partial(expired.append, "first"))
        await loop.at(4)
        wheel.call_later(USUAL, partial(expired.append, "second"))
        await loop.at(9.9)
        assert expired == []
        await loop.at(10)
        assert expired == ["first"]
        await loop.at(13.9)
        assert expired == ["first"]
        await loop.at(60)
        assert expired == ["first", "second"]

    run(scenario())


def test_timers_that_are_due_together_expire_in_the_order_of_their_start() -> None:
    async def scenario() -> None:
        loop, wheel, expired = by_hand(), TimerWheel(USUAL), list[int]()
        for number in range(5):
            wheel.call_later(USUAL, partial(expired.append, number))
        await loop.at(10)
        assert expired == [0, 1, 2, 3, 4]

    run(scenario())


def test_a_cancelled_timer_does_not_expire_and_the_next_one_is_not_late() -> None:
    async def scenario() -> None:
        loop, wheel, expired = by_hand(), TimerWheel(USUAL), list[str]()
        given_up = wheel.call_later(USUAL, partial(expired.append, "given up"))
        await loop.at(1)
        wheel.call_later(USUAL, partial(expired.append, "kept"))
        given_up()
        given_up()
        await loop.at(10.5)
        assert expired == []
        await loop.at(11)
        assert expired == ["kept"]

    run(scenario())


def test_a_timer_of_another_length_expires_at_its_own_time() -> None:
    async def scenario() -> None:
        loop, wheel, expired = by_hand(), TimerWheel(USUAL), list[str]()
        wheel.call_later(USUAL, partial(expired.append, "usual"))
        wheel.call_later(2.0, partial(expired.append, "short"))
        wheel.call_later(3.0, partial(expired.append, "given up"))()
        await loop.at(3)
        assert expired == ["short"]

    run(scenario())


def test_a_timer_that_starts_when_another_expires_has_its_whole_time() -> None:
    async def scenario() -> None:
        loop, wheel, expired = by_hand(), TimerWheel(USUAL), list[str]()
        wheel.call_later(USUAL, lambda: wheel.call_later(USUAL, partial(expired.append, "again")))
        await loop.at(10)
        await loop.at(19.9)
        assert expired == []
        await loop.at(20)
        assert expired == ["again"]

    run(scenario())


def test_timers_that_start_when_others_expire_need_one_timer_of_the_loop_at_a_time() -> None:
    async def scenario() -> None:
        loop, wheel = by_hand(), TimerWheel(USUAL)

        def start_again() -> None:
            wheel.call_later(USUAL, start_again)

        for start in (0, 1):
            await loop.at(start)
            start_again()
        for expiry in (10, 11, 20, 21, 30, 31):
            await loop.at(expiry)
        # The first, and one after each expiry.
        assert len(loop.timers) == 7

    run(scenario())


def test_many_timers_leave_one_timer_and_none_after_they_are_closed() -> None:
    async def scenario() -> None:
        loop, wheel, expired = by_hand(), TimerWheel(USUAL), list[int]()
        for number in range(100):
            wheel.call_later(USUAL, partial(expired.append, number))
        [timer] = loop.timers
        wheel.close()
        wheel.close()
        assert timer.cancelled()
        wheel.call_later(USUAL, partial(expired.append, 100))
        await loop.at(20)
        assert expired == [100]

    run(scenario())


def test_a_callback_that_raises_does_not_end_the_timers_of_others() -> None:
    async def scenario() -> None:
        loop, wheel, expired = by_hand(), TimerWheel(USUAL), list[str]()
        faults: list[str] = []
        loop.set_exception_handler(lambda _, fault: faults.append(str(fault["exception"])))

        def fail() -> None:
            raise ArithmeticError("a mistake")

        wheel.call_later(USUAL, fail)
        wheel.call_later(USUAL, partial(expired.append, "beside it"))
        await loop.at(5)
        wheel.call_later(USUAL, partial(expired.append, "later"))
        await loop.at(10)
        await loop.at(10)
        assert (expired, faults) == (["beside it"], ["a mistake"])
        wheel.call_later(USUAL, partial(expired.append, "last"))
        await loop.at(20)
        await loop.at(20)
        assert expired == ["beside it", "later", "last"]

    run(scenario())


@pytest.mark.parametrize("starts", [False, True], ids=["call_later", "start"])
def test_the_shared_timer_of_the_loop_has_no_context_variables_of_a_caller(starts: bool) -> None:
    whose = ContextVar("whose", default="nobody's")
    expired: list[str] = []

    class Asking:
        def on_alarm(self) -> None:
            expired.append(whose.get())

    async def scenario() -> None:
        wheel = TimerWheel(USUAL)
        whose.set("Alice's")
        if starts:
            wheel.start(Asking(), USUAL, by_hand().time())
        else:
            wheel.call_later(USUAL, Asking().on_alarm)
        whose.set("Bob's")
        wheel.call_later(USUAL, Asking().on_alarm)
        await by_hand().at(USUAL)

    run(scenario())
    assert expired == ["nobody's"] * 2


class Alarm:
    """It notes when its time is up."""

    def __init__(self) -> None:
        self.rang: list[float] = []

    def on_alarm(self) -> None:
        self.rang.append(by_hand().hour - 1000)


def test_what_has_a_timer_is_told_once_and_not_after_a_stop() -> None:
    async def scenario() -> None:
        loop, wheel = by_hand(), TimerWheel(USUAL)
        kept, stopped, short, given_up = (Alarm() for _ in range(4))
        for alarm, seconds in ((kept, USUAL), (stopped, USUAL), (short, 2.0), (given_up, 3.0)):
            wheel.start(alarm, seconds, loop.time())
        assert len(loop.timers) == 3, "one for all of the usual length"
        for alarm in (stopped, given_up, given_up, Alarm()):
            wheel.stop(alarm)
        for hour in (1.9, 2, 3, 9.9, 10, 30):
            await loop.at(hour)
        assert [alarm.rang for alarm in (kept, stopped, short, given_up)] == [[10], [], [2], []]
        held = [ref(each) for each in (kept, stopped, short, given_up)]
        del kept, stopped, short, given_up, alarm
        loop.timers.clear()
        assert [each() for each in held] == [None] * 4

    run(scenario())


def test_a_timer_starts_again_with_another_length() -> None:
    async def scenario() -> None:
        loop, wheel, alarm = by_hand(), TimerWheel(USUAL), Alarm()
        wheel.start(alarm, USUAL, loop.time())
        await loop.at(10)
        wheel.start(alarm, 1.5, loop.time())
        wheel.stop(alarm)
        wheel.start(alarm, 2.5, loop.time())
        for hour in (11.5, 12.5, 30):
            await loop.at(hour)
        assert alarm.rang == [10, 12.5]

    run(scenario())


def test_long_timers_of_one_second_share_a_timer_of_the_loop_and_are_at_most_a_second_late() -> None:
    async def scenario() -> None:
        loop, wheel = by_hand(), TimerWheel(USUAL)
        alarms = [Alarm() for _ in range(4)]
        for alarm, seconds in zip(alarms, (100.1, 100.5, 100.9, 101.5), strict=True):
            wheel.start(alarm, seconds, loop.time())
        assert len(loop.timers) == 2
        wheel.stop(alarms[1])
        for hour in (100.95, 101, 101.6, 102):
            await loop.at(hour)
        assert [alarm.rang for alarm in alarms] == [[101], [], [101], [102]]

    run(scenario())


def test_long_timers_that_are_stopped_leave_one_timer_of_the_loop() -> None:
    async def scenario() -> None:
        loop, wheel = by_hand(), TimerWheel(USUAL)
        for second in range(50):
            await loop.at(second)
            for _ in range(3):
                alarm = Alarm()
                wheel.start(alarm, 3600.5)
                wheel.stop(alarm)
        assert len(loop.timers) == 50
        assert sum(not timer.cancelled() for timer in loop.timers) == 1
        wheel.close()
        assert all(timer.cancelled() for timer in loop.timers)

    run(scenario())


def test_a_long_timer_whose_time_is_up_may_raise_and_may_stop_another() -> None:
    async def scenario() -> None:
        loop, wheel, faults = by_hand(), TimerWheel(USUAL), list[str]()
        loop.set_exception_handler(lambda _, fault: faults.append(str(fault["exception"])))
        alarms = [Alarm() for _ in range(3)]

        class Failing:
            def on_alarm(self) -> None:
                wheel.stop(alarms[0])
                raise ArithmeticError("a mistake")

        failing = [Failing() for _ in range(3)]
        for each in (*failing, *alarms[1:]):
            wheel.start(each, 90.5, loop.time())
        wheel.start(alarms[0], 95.5, loop.time())
        for hour in (91, 91, 91, 96):
            await loop.at(hour)
        assert [alarm.rang for alarm in alarms] == [[], [91], [91]]
        assert faults == ["a mistake"] * 3

    run(scenario())
