"""Tokens that name keys nobody knows cost an issuer little, and a new key nothing."""

import asyncio
from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.waiting import bounded
from requirements import covers
from taskgate.auth.fetching import FetchFailed, FetchReason
from taskgate.auth.jwks import IssuerKeys
from taskgate.errors import KeysUnavailable
from unit.auth.scripted_fetch import FIRST, SECOND, SECOND_KEY, URI, ScriptedFetch, found, key_set


@covers("T4")
async def test_fifty_unknown_keys_at_once_cost_one_fetch(
    keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    await keys.refresh()
    async with bounded():
        results = await asyncio.gather(*(keys.find(f"unknown {n}", "ES256") for n in range(50)))
    assert results == [()] * 50
    assert len(fetch.asked) == 2


async def test_unknown_keys_cost_one_fetch_per_cooldown_but_for_a_few_at_first_and_nothing_else(
    keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    await keys.refresh()
    for n in range(300):
        assert await found(keys, f"unknown {n}") == []
        assert await found(keys) == ["first"]
        clock.advance(SECOND)
    assert len(fetch.asked) == 1 + 3 + 9


async def test_in_no_time_are_there_more_fetches_than_it_has_cooldowns_and_a_few(
    keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    await keys.refresh()
    forced: list[int] = []
    # The pause in the middle is long enough for many, of which no more than a few are saved.
    for second in (*range(200), *range(3000, 3200)):
        clock.advance(timedelta(seconds=second) - timedelta(seconds=clock.elapsed()))
        before = len(fetch.asked)
        await found(keys, f"unknown {second}")
        forced += [second] * (len(fetch.asked) - before)
    assert forced == [0, 1, 2, *range(30, 200, 30), 3000, 3001, 3002, *range(3030, 3200, 30)]


async def test_one_unknown_key_does_not_delay_a_rotation(keys: IssuerKeys, fetch: ScriptedFetch) -> None:
    await keys.refresh()
    assert await found(keys, "unknown") == []
    fetch.answers[URI] = key_set(FIRST, SECOND_KEY)
    assert await found(keys, "second") == ["second"]


async def test_one_unknown_key_per_cooldown_never_delays_a_rotation(
    keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    await keys.refresh()
    for n in range(50):
        assert await found(keys, f"unknown {n}") == []
        clock.advance(timedelta(seconds=30))
    assert await found(keys, "unknown") == []
    fetch.answers[URI] = key_set(FIRST, SECOND_KEY)
    assert await found(keys, "second") == ["second"]


async def test_the_cooldown_is_over_when_it_is_over(keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock) -> None:
    for _ in range(5):
        await found(keys, "unknown")
    assert len(fetch.asked) == 3
    clock.advance(timedelta(seconds=29.9))
    await found(keys, "unknown")
    assert len(fetch.asked) == 3
    clock.advance(timedelta(seconds=0.1))
    await found(keys, "unknown")
    assert len(fetch.asked) == 4


async def test_an_issuer_that_fails_is_asked_once_per_cooldown(
    keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    await keys.refresh()
    fetch.answers[URI] = FetchFailed(FetchReason.UNREACHABLE)
    for _ in range(90):
        with pytest.raises(KeysUnavailable):
            await found(keys, "second")
        clock.advance(SECOND)
    assert len(fetch.asked) == 1 + 3
