"""Waits of one length share one timer, and ring when they are due; a wait of another length has its own."""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from functools import partial
from typing import Any

from taskgate.system.alarms import Alarms

USUAL = 10.0


class LoopByHand(asyncio.SelectorEventLoop):
    """An event loop that takes the time from the test."""

    hour = 1000.0

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


def test_each_wait_rings_once_when_its_own_time_is_over() -> None:
    async def scenario() -> None:
        loop, alarms, rung = by_hand(), Alarms(USUAL), list[str]()
        alarms.after(USUAL, partial(rung.append, "first"))
        await loop.at(4)
        alarms.after(USUAL, partial(rung.append, "second"))
        await loop.at(9.9)
        assert rung == []
        await loop.at(10)
        assert rung == ["first"]
        await loop.at(13.9)
        assert rung == ["first"]
        await loop.at(60)
        assert rung == ["first", "second"]

    run(scenario())


def test_waits_that_are_due_together_ring_in_the_order_they_began() -> None:
    async def scenario() -> None:
        loop, alarms, rung = by_hand(), Alarms(USUAL), list[int]()
        for number in range(5):
            alarms.after(USUAL, partial(rung.append, number))
        await loop.at(10)
        assert rung == [0, 1, 2, 3, 4]

    run(scenario())


def test_a_cancelled_wait_does_not_ring_and_the_next_one_is_not_late() -> None:
    async def scenario() -> None:
        loop, alarms, rung = by_hand(), Alarms(USUAL), list[str]()
        given_up = alarms.after(USUAL, partial(rung.append, "given up"))
        await loop.at(1)
        alarms.after(USUAL, partial(rung.append, "kept"))
        given_up.cancel()
        given_up.cancel()
        await loop.at(10.5)
        assert rung == []
        await loop.at(11)
        assert rung == ["kept"]

    run(scenario())


def test_a_wait_of_another_length_rings_by_its_own_time() -> None:
    async def scenario() -> None:
        loop, alarms, rung = by_hand(), Alarms(USUAL), list[str]()
        alarms.after(USUAL, partial(rung.append, "usual"))
        alarms.after(2.0, partial(rung.append, "short"))
        alarms.after(3.0, partial(rung.append, "given up")).cancel()
        await loop.at(3)
        assert rung == ["short"]

    run(scenario())


def test_a_wait_that_begins_when_another_rings_has_its_whole_time() -> None:
    async def scenario() -> None:
        loop, alarms, rung = by_hand(), Alarms(USUAL), list[str]()
        alarms.after(USUAL, lambda: alarms.after(USUAL, partial(rung.append, "again")))
        await loop.at(10)
        await loop.at(19.9)
        assert rung == []
        await loop.at(20)
        assert rung == ["again"]

    run(scenario())


def test_many_waits_leave_one_timer_and_none_after_they_are_closed() -> None:
    async def scenario() -> None:
        loop, alarms, rung = by_hand(), Alarms(USUAL), list[int]()
        for number in range(100):
            alarms.after(USUAL, partial(rung.append, number))
        assert len(loop._scheduled) == 1  # type: ignore[attr-defined]
        alarms.close()
        alarms.close()
        assert all(timer.cancelled() for timer in loop._scheduled)  # type: ignore[attr-defined]
        alarms.after(USUAL, partial(rung.append, 100))
        await loop.at(20)
        assert rung == [100]

    run(scenario())


def test_the_timer_that_all_share_is_nobodys() -> None:
    whose = ContextVar("whose", default="nobody's")
    rung: list[str] = []

    async def scenario() -> None:
        alarms = Alarms(USUAL)
        whose.set("Alice's")
        alarms.after(USUAL, lambda: rung.append(whose.get()))
        whose.set("Bob's")
        alarms.after(USUAL, lambda: rung.append(whose.get()))
        await by_hand().at(USUAL)

    run(scenario())
    assert rung == ["nobody's"] * 2
