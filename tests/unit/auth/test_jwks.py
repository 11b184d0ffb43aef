"""The cache of an issuer's keys: look-ups, and refreshes for unknown keys."""

import asyncio
import logging
from contextvars import ContextVar
from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.waiting import bounded, eventually
from requirements import covers
from taskgate.auth.fetch import FetchedDocument, FetchFailed, FetchReason
from taskgate.auth.jwks import IssuerKeys
from taskgate.errors import KeysUnavailable
from unit.auth.scripted_fetch import (
    FIRST,
    SECOND,
    SECOND_KEY,
    SOON,
    URI,
    Gate,
    Heard,
    ScriptedFetch,
    closing,
    found,
    key_set,
    settings_of,
)

# --- finding ----------------------------------------------------------------------------------------------------------


async def test_the_first_who_asks_fetches_the_keys_and_the_next_does_not(
    keys: IssuerKeys, fetch: ScriptedFetch, heard: Heard
) -> None:
    assert not keys.has_keys
    assert await found(keys) == ["first"]
    assert await found(keys) == ["first"]
    assert await found(keys, None) == ["first"]
    assert keys.has_keys
    assert fetch.asked == [URI]
    assert heard.all == [("corp", "ok", 1)]


async def test_a_new_key_is_found_by_the_request_that_first_needs_it(keys: IssuerKeys, fetch: ScriptedFetch) -> None:
    await keys.refresh()
    fetch.answers[URI] = key_set(FIRST, SECOND_KEY)
    assert await found(keys, "second") == ["second"]
    assert fetch.asked == [URI, URI]


async def test_a_key_that_is_taken_back_is_gone_with_the_next_refresh(keys: IssuerKeys, fetch: ScriptedFetch) -> None:
    await keys.refresh()
    fetch.answers[URI] = key_set(SECOND_KEY)
    assert await found(keys) == ["first"]
    await keys.refresh()
    assert await found(keys) == []


async def test_a_clock_on_the_wall_that_jumps_changes_nothing(
    keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    for _ in range(3):
        await found(keys, "unknown")
    for days in (9, -9):
        clock.set_wall(clock.now() + timedelta(days=days))
        assert await found(keys) == ["first"]
        assert await found(keys, "unknown") == []
    assert len(fetch.asked) == 3


async def test_a_known_key_is_served_while_a_slow_refresh_goes_on(keys: IssuerKeys, fetch: ScriptedFetch) -> None:
    await keys.refresh()
    fetch.answers[URI] = gate = Gate()
    waiting = asyncio.create_task(found(keys, "second"))
    await gate.begun.wait()
    # One step and no more: what awaits anything would not be through.
    with pytest.raises(StopIteration) as through:
        keys.find("first", "ES256").send(None)
    assert [key.key_id for key in through.value.value] == ["first"]
    assert not waiting.done()
    gate.give(key_set(FIRST, SECOND_KEY))
    assert await waiting == ["second"]


async def test_who_asks_during_a_refresh_waits_for_it_and_begins_no_other(
    keys: IssuerKeys, fetch: ScriptedFetch
) -> None:
    fetch.answers[URI] = gate = Gate()
    background = asyncio.create_task(keys.refresh())
    await gate.begun.wait()
    waiting = [asyncio.create_task(found(keys, kid)) for kid in ("first", "second", "unknown")]
    again = asyncio.create_task(keys.refresh())
    await asyncio.sleep(0)
    gate.give(key_set(FIRST, SECOND_KEY))
    async with bounded():
        assert await asyncio.gather(*waiting) == [["first"], ["second"], []]
        await asyncio.gather(background, again)
    assert fetch.asked == [URI]


async def test_who_joined_a_refresh_has_not_spent_the_one_that_may_be_forced(
    keys: IssuerKeys, fetch: ScriptedFetch
) -> None:
    fetch.answers[URI] = gate = Gate()
    waiting = asyncio.create_task(found(keys, "second"))
    background = asyncio.create_task(keys.refresh())
    await eventually(gate.begun.is_set)
    gate.give(key_set(FIRST))
    assert await waiting == []
    await background
    assert fetch.asked == [URI]


async def test_a_wait_that_is_cancelled_ends_nobody_elses(keys: IssuerKeys, fetch: ScriptedFetch) -> None:
    fetch.answers[URI] = gate = Gate()
    waiting = [asyncio.create_task(found(keys)) for _ in range(3)]
    await gate.begun.wait()
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    gate.give(key_set(FIRST))
    assert await asyncio.gather(*waiting[1:]) == [["first"], ["first"]]
    assert fetch.asked == [URI]


async def test_a_refresh_goes_on_when_everybody_who_waited_has_left(keys: IssuerKeys, fetch: ScriptedFetch) -> None:
    fetch.answers[URI] = gate = Gate()
    waiting = asyncio.create_task(found(keys))
    await gate.begun.wait()
    waiting.cancel()
    gate.give(key_set(FIRST))
    await eventually(lambda: keys.has_keys)
    assert await found(keys) == ["first"]
    assert fetch.asked == [URI]


async def test_nobody_waits_longer_than_the_timeout(fetch: ScriptedFetch, clock: ManualClock, heard: Heard) -> None:
    async with closing(IssuerKeys(settings_of(uri=URI, timeout=SOON), fetch, clock, heard)) as keys:
        fetch.answers[URI] = gate = Gate()
        with pytest.raises(KeysUnavailable) as unavailable:
            await found(keys)
        assert unavailable.value.issuer == "corp"
        gate.give(key_set(FIRST))
        await eventually(lambda: keys.has_keys)
        clock.advance(timedelta(minutes=1))
        fetch.answers[URI] = Gate()
        with pytest.raises(KeysUnavailable):
            await found(keys, "second")
        assert await found(keys) == ["first"]


# --- when it fails ----------------------------------------------------------------------------------------------------


async def test_a_key_that_may_be_new_cannot_be_judged_while_no_newer_keys_can_be_had(
    keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    fetch.answers[URI] = key_set(FIRST)
    assert await found(keys) == ["first"]
    clock.advance(timedelta(minutes=1))
    fetch.answers[URI] = FetchFailed(FetchReason.UNREACHABLE)
    for _ in range(2):
        with pytest.raises(KeysUnavailable):
            await found(keys, "second")
        assert await found(keys) == ["first"]
    clock.advance(timedelta(minutes=1))
    fetch.answers[URI] = key_set(FIRST)
    assert await found(keys, "second") == []


async def test_without_keys_no_token_can_be_judged(keys: IssuerKeys, fetch: ScriptedFetch, heard: Heard) -> None:
    fetch.answers[URI] = FetchFailed(FetchReason.UNREACHABLE)
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            await found(keys)
    assert not keys.has_keys
    assert fetch.asked == [URI]
    assert heard.all == [("corp", "failed", 0)]


@pytest.mark.parametrize(
    "garbage",
    [
        FetchFailed(FetchReason.TIMEOUT),
        FetchedDocument(b"<html>"),
        FetchedDocument(b'{"keys": []}'),
        FetchedDocument(b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "first"}]}'),
        RuntimeError("unforeseen"),
    ],
)
async def test_good_keys_are_never_replaced_by_garbage(
    keys: IssuerKeys, fetch: ScriptedFetch, heard: Heard, garbage: FetchedDocument | Exception
) -> None:
    await keys.refresh()
    fetch.answers[URI] = garbage
    await keys.refresh()
    assert await found(keys) == ["first"]
    assert heard.all == [("corp", "ok", 1), ("corp", "stale", 1)]


async def test_the_last_keys_serve_through_an_outage_and_not_for_ever(
    keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock, heard: Heard
) -> None:
    await keys.refresh()
    fetch.answers[URI] = FetchFailed(FetchReason.UNREACHABLE)
    clock.advance(timedelta(hours=24))
    assert await found(keys) == ["first"]
    clock.advance(SECOND)
    with pytest.raises(KeysUnavailable):
        await found(keys)
    with pytest.raises(KeysUnavailable):
        await found(keys, "unknown")
    assert heard.all[1:] == [("corp", "failed", 0)]
    assert keys.has_keys
    clock.advance(timedelta(seconds=30))
    fetch.answers[URI] = key_set(FIRST)
    assert await found(keys) == ["first"]


async def test_keys_that_are_too_old_are_fetched_by_who_asks(
    keys: IssuerKeys, fetch: ScriptedFetch, clock: ManualClock
) -> None:
    await keys.refresh()
    clock.advance(timedelta(days=2))
    fetch.answers[URI] = key_set(SECOND_KEY)
    assert await found(keys) == []
    assert await found(keys, "second") == ["second"]
    assert len(fetch.asked) == 2


async def test_what_is_read_again_is_not_what_a_fetch_that_had_begun_got(
    keys: IssuerKeys, fetch: ScriptedFetch
) -> None:
    running = asyncio.create_task(keys.refresh())
    await asyncio.sleep(0)
    await keys.reread()
    await running
    assert len(fetch.asked) == 2


async def test_a_log_line_says_which_issuer_and_why_and_never_where(
    keys: IssuerKeys, fetch: ScriptedFetch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "taskgate.auth")
    for given in (
        FetchFailed(FetchReason.TLS),
        FetchedDocument(b""),
        RuntimeError(URI),
        key_set(FIRST),
        key_set(FIRST),
    ):
        fetch.answers[URI] = given
        await keys.refresh()
    told = [
        (record.levelname, record.__dict__.get("issuer"), record.__dict__.get("reason")) for record in caplog.records
    ]
    assert told == [
        ("WARNING", "corp", "tls"),
        ("WARNING", "corp", "key_set"),
        ("WARNING", "corp", "internal"),
        ("INFO", "corp", None),
    ]
    assert all("idp.example.com" not in str(record.__dict__) for record in caplog.records)
    assert all(record.exc_info is None for record in caplog.records)


async def test_a_fetch_is_for_all_who_wait_and_so_of_no_request(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard
) -> None:
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")
    fetched_for: list[str] = []

    async def answer() -> FetchedDocument:
        fetched_for.append(whose.get())
        return key_set(FIRST)

    fetch.answers[URI] = answer
    whose.set("Alice's")
    async with closing(IssuerKeys(settings_of(uri=URI), fetch, clock, heard)) as keys:
        assert await found(keys) == ["first"]
    assert fetched_for == ["nobody's"]


# --- unknown keys -----------------------------------------------------------------------------------------------------


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
