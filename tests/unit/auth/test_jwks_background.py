"""Keys are kept fresh while nobody asks, and nothing goes on once that is ended."""

import asyncio
from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.waiting import eventually
from taskgate.auth.fetching import FetchFailed, FetchReason
from taskgate.auth.jwks import IssuerKeys
from taskgate.errors import KeysUnavailable
from unit.auth.scripted_fetch import (
    FIRST,
    URI,
    Gate,
    Heard,
    ScriptedFetch,
    after,
    found,
    key_set,
    settings_of,
    started,
)


async def test_keys_are_fetched_at_the_start_and_again_before_they_are_old(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard
) -> None:
    async with started(fetch, clock, heard) as (keys, sleeps):
        assert [await after(clock, sleeps, count) for count in (1, 2, 3)] == [240.0] * 3
        await sleeps.nth(4)
        assert keys.usable
        assert len(fetch.asked) == 4
        assert heard.outcomes == ["ok"] * 4


@pytest.mark.parametrize(
    ("max_age", "settings", "seconds"),
    [
        (None, {}, 240),
        (timedelta(seconds=100), {}, 80),
        (timedelta(seconds=40), {}, 32),
        (timedelta(seconds=30), {}, 30),
        (timedelta(0), {}, 30),
        (timedelta(days=1), {}, 240),
        (timedelta(days=1), {"refresh": timedelta(hours=1)}, 2880),
        (None, {"refresh": timedelta(seconds=10)}, 30),
        (None, {"refresh": timedelta(days=2), "stale_max": timedelta(seconds=1000)}, 800),
        (timedelta(days=1), {"refresh": timedelta(days=2), "stale_max": timedelta(seconds=1000)}, 800),
    ],
)
async def test_an_answer_may_shorten_how_long_keys_are_fresh_and_never_lengthen_it(
    fetch: ScriptedFetch,
    clock: ManualClock,
    heard: Heard,
    max_age: timedelta | None,
    settings: dict[str, timedelta],
    seconds: float,
) -> None:
    fetch.answers[URI] = key_set(FIRST, max_age=max_age)
    async with started(fetch, clock, heard, **settings) as (_, sleeps):
        assert await sleeps.nth(1) == pytest.approx(seconds)


async def test_failures_are_tried_again_after_the_cooldown_and_ever_later_while_keys_serve(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard
) -> None:
    async with started(fetch, clock, heard) as (_, sleeps):
        await sleeps.nth(1)
        fetch.answers[URI] = FetchFailed(FetchReason.STATUS)
        assert [await after(clock, sleeps, count) for count in range(1, 7)] == [240, 30, 60, 120, 240, 240]
        await sleeps.nth(7)
        fetch.answers[URI] = key_set(FIRST)
        assert await after(clock, sleeps, 7) == 240
        assert await sleeps.nth(8) == 240
        assert heard.outcomes == ["ok", *["stale"] * 6, "ok"]


async def test_failures_are_tried_again_after_each_cooldown_while_there_are_no_keys(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard
) -> None:
    fetch.answers[URI] = FetchFailed(FetchReason.STATUS)
    async with started(fetch, clock, heard) as (keys, sleeps):
        assert [await after(clock, sleeps, count) for count in range(1, 5)] == [30.0] * 4
        await sleeps.nth(5)
        assert not keys.usable
        fetch.answers[URI] = key_set(FIRST)
        await after(clock, sleeps, 5)
        await eventually(lambda: keys.usable)


async def test_a_refresh_that_somebody_forced_is_not_repeated_in_the_background(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard
) -> None:
    async with started(fetch, clock, heard) as (keys, sleeps):
        await sleeps.nth(1)
        clock.advance(timedelta(seconds=100))
        await found(keys, "unknown")
        clock.advance(timedelta(seconds=140))
        sleeps.end()
        assert await sleeps.nth(2) == 100
        assert len(fetch.asked) == 2


async def test_closing_during_a_fetch_ends_it(fetch: ScriptedFetch, clock: ManualClock, heard: Heard) -> None:
    fetch.answers[URI] = gate = Gate()
    async with started(fetch, clock, heard) as (keys, _):
        await gate.begun.wait()
        waiting = asyncio.create_task(found(keys))
        await asyncio.sleep(0)
        await keys.close()
        with pytest.raises(KeysUnavailable):
            await waiting
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert heard.all == []


async def test_nothing_is_fetched_once_closed_and_what_there_is_serves_on(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard
) -> None:
    keys = IssuerKeys(settings_of(uri=URI), fetch, clock, heard)
    await keys.refresh()
    await keys.close()
    await keys.close()
    await keys.refresh()
    clock.advance(timedelta(hours=1))
    assert await found(keys, "unknown") == []
    assert await found(keys) == ["first"]
    assert fetch.asked == [URI]


async def test_closing_at_once_after_the_start_leaves_nothing(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard
) -> None:
    async with started(fetch, clock, heard):
        pass
    assert fetch.asked == []
