"""Signs of life: who gives them, for how long, and what they bring back."""

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import EPOCH, ManualClock
from helpers.shared_memory import LeasesInMemory
from helpers.waiting import PATIENCE, bounded, eventually
from taskgate.errors import StoreUnavailable
from taskgate.lifecycle.leases import Heartbeat, LeaseRules
from taskgate.stores.shared import HeartbeatReply, LeaseStore
from unit.lifecycle.alone import Alone
from unit.lifecycle.several_runners import RULES

SECOND = timedelta(seconds=1)


async def test_a_loop_that_shows_no_life_is_vouched_for_until_a_lease_has_passed_and_not_longer() -> None:
    rules = LeaseRules(timedelta(milliseconds=15), timedelta(milliseconds=5))
    one = Alone(rules=rules)
    leases, beat, beaten = list[timedelta](), one.leases.beat, threading.Semaphore(0)

    async def noted(holder: str, held: Any, *, lease: timedelta) -> HeartbeatReply:
        leases.append(lease)
        one.clock.advance(rules.heartbeat)
        beaten.release()
        return await beat(holder, held, lease=lease)

    await one.leasing.open()
    one.leases.beat = noted  # type: ignore[method-assign]
    # The loop stands still.
    for _ in range(3):
        assert beaten.acquire(timeout=5)
    assert not beaten.acquire(timeout=0.1)
    assert leases[-3:] == [rules.length, rules.length, rules.length - rules.heartbeat]
    await one.leasing.close()


async def test_signs_of_life_go_on_while_the_loop_of_the_calls_stands_still() -> None:
    """They are given from a thread of their own."""
    beaten = threading.Semaphore(0)
    threads = set()

    async def beat(_: LeaseStore) -> bool:
        threads.add(threading.current_thread().name)
        beaten.release()
        return True

    heartbeat = Heartbeat(Alone().apart, beat, every=timedelta(milliseconds=1))
    heartbeat.start()
    for _ in range(5):
        assert beaten.acquire(timeout=5)
    await heartbeat.stop()
    assert threads == {"taskgate-heartbeat"}


async def test_signs_of_life_go_on_whatever_goes_wrong_with_one(caplog: pytest.LogCaptureFixture) -> None:
    one, beaten = Alone(), threading.Semaphore(0)

    async def beat(_: LeaseStore) -> bool:
        beaten.release()
        raise ValueError("unforeseen")

    heartbeat = Heartbeat(one.apart, beat, every=timedelta(milliseconds=1))
    heartbeat.start()
    # At the usual pace: a second between two of them would let short leases lapse.
    due = time.monotonic() + PATIENCE
    for _ in range(100):
        assert beaten.acquire(timeout=due - time.monotonic())
    await heartbeat.stop()
    assert one.opened >= 3
    assert "renewing leases" in caplog.text


async def test_an_open_lease_keeps_the_stores_time_and_is_given_back_at_the_end() -> None:
    moment = EPOCH + timedelta(hours=3)
    one = Alone(ManualClock(moment))
    await one.leasing.open()
    try:
        assert one.shared_clock.now() == moment
        assert list(one.leases.lives) == ["process-1"]
    finally:
        await one.leasing.close()
        await one.leasing.close()
    assert one.leases.lives == {}


async def test_a_store_that_is_away_keeps_nobody_from_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Alone()

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(one.leases, "beat", away)
    await one.leasing.open()
    assert not one.leasing.may_take_over
    await one.leasing.close()


async def test_of_two_heartbeats_at_once_both_are_heard_before_something_is_taken_over() -> None:
    """The store comes back with what was true before: the second of them finds what the first has written."""
    one = Alone()
    leases, got, may_answer = one.leases, threading.Event(), threading.Event()
    older = dict[str, Any]()

    class Slow(LeasesInMemory):
        async def beat(self, holder: str, held: Any, *, lease: timedelta) -> HeartbeatReply:
            leases.lives = older
            reply = await leases.beat(holder, held, lease=lease)
            got.set()
            assert may_answer.wait(timeout=5)
            return reply

    async def may_take_over() -> bool:
        await one.leasing.beat()
        return one.leasing.may_take_over

    # The thread has another one than the loop.
    one.leases = Slow(one.store, one.clock)
    await one.leasing.beat()
    older.update(leases.lives)
    one.clock.advance(2 * RULES.heartbeat)
    await one.leasing.open()
    try:
        assert one.leasing.may_take_over
        await eventually(got.is_set)
        beats = leases.beats
        second = asyncio.create_task(may_take_over())
        await eventually(lambda: leases.beats > beats)
        may_answer.set()
        async with bounded():
            assert not await second
    finally:
        may_answer.set()
        await one.leasing.close()


async def test_a_process_is_heard_until_its_last_sign_of_life_is_a_lease_old() -> None:
    one = Alone()
    assert not one.leasing.is_heard
    await one.leasing.beat()
    one.clock.advance(RULES.length - SECOND)
    assert one.leasing.is_heard
    one.clock.advance(SECOND)
    assert not one.leasing.is_heard
    await one.leasing.beat()
    assert one.leasing.is_heard


async def test_a_process_is_not_heard_by_a_store_that_takes_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not lose what it holds by that."""
    one = Alone()
    beat, full = one.leases.beat, True

    async def telling(*arguments: Any, **named: Any) -> HeartbeatReply:
        return (await beat(*arguments, **named))._replace(full=full)

    monkeypatch.setattr(one.leases, "beat", telling)
    await one.leasing.beat()
    assert not one.leasing.is_heard
    assert one.leases.lives
    full = False
    await one.leasing.beat()
    assert one.leasing.is_heard
