"""Refreshes of an issuer's keys in the background, and after failures."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from helpers.key_server import Endless, Held, KeyServer, answer, document, redirect
from helpers.manual_clock import ManualClock
from helpers.waiting import PATIENCE, bounded, eventually
from requirements import covers
from taskgate.auth.fetch import FetchFailed, FetchReason, HttpFetcher
from taskgate.auth.jwks import IssuerKeys
from taskgate.errors import KeysUnavailable
from unit.auth.scripted_fetch import (
    FIRST,
    SECOND_KEY,
    SOON,
    URI,
    Gate,
    Heard,
    ScriptedFetch,
    after,
    closing,
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
        assert keys.has_keys
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
        assert not keys.has_keys
        fetch.answers[URI] = key_set(FIRST)
        await after(clock, sleeps, 5)
        await eventually(lambda: keys.has_keys)


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


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[KeyServer]:
    async with KeyServer() as server:
        server.publish(FIRST)
        server.describe()
        yield server


@asynccontextmanager
async def keys_of(
    server: KeyServer,
    clock: ManualClock,
    heard: Heard,
    *,
    timeout: timedelta = timedelta(seconds=PATIENCE),
    **keys: Any,
) -> AsyncIterator[IssuerKeys]:
    settings = settings_of(issuer=server.issuer, timeout=timeout, **keys)
    async with closing(HttpFetcher()) as fetch, closing(IssuerKeys(settings, fetch, clock, heard)) as kept:
        yield kept


async def test_keys_are_discovered_rotated_and_served_through_an_outage(
    server: KeyServer, clock: ManualClock, heard: Heard
) -> None:
    async with keys_of(server, clock, heard) as keys:
        assert await found(keys) == ["first"]
        server.publish(FIRST, SECOND_KEY)
        clock.advance(timedelta(seconds=30))
        assert await found(keys, "second") == ["second"]
        await server.down()
        await keys.refresh()
        assert await found(keys, "second") == ["second"]
        await server.up()
        server.publish(SECOND_KEY)
        await keys.refresh()
        assert await found(keys, "first") == []
    assert heard.outcomes == ["ok", "ok", "stale", "ok", "ok"]
    assert [request.path for request in server.requests][:3] == [
        "/.well-known/oauth-authorization-server",
        "/keys",
        "/keys",
    ]


async def test_a_flood_of_unknown_keys_over_a_slow_server_holds_up_no_known_one(
    server: KeyServer, clock: ManualClock, heard: Heard
) -> None:
    async with keys_of(server, clock, heard, uri=server.url("/keys")) as keys:
        await keys.refresh()
        server.serve("/keys", held := Held(document({"keys": [FIRST]})))
        flood = [asyncio.create_task(keys.find(f"unknown {n}", "ES256")) for n in range(50)]
        await eventually(held.begun.is_set)
        for _ in range(100):
            assert await found(keys) == ["first"]
        assert not any(task.done() for task in flood)
        held.release()
        async with bounded():
            assert await asyncio.gather(*flood) == [()] * 50
    assert server.count("/keys") == 2


async def test_closing_while_the_server_hangs_leaves_nothing(
    server: KeyServer, clock: ManualClock, heard: Heard
) -> None:
    server.serve("/keys", held := Held(document({})))
    async with keys_of(server, clock, heard) as keys:
        keys.start()
        await eventually(held.begun.is_set)
    held.release()


@covers("T5")
@pytest.mark.parametrize("fault", ["slow", "redirect", "huge", "html", "error", "down", "garbage"])
async def test_every_fault_of_a_server_leaves_the_good_keys_in_use(
    server: KeyServer, clock: ManualClock, heard: Heard, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    timeout = SOON if fault == "slow" else timedelta(seconds=PATIENCE)
    async with (
        KeyServer() as elsewhere,
        keys_of(server, clock, heard, uri=server.url("/keys"), timeout=timeout) as keys,
    ):
        await keys.refresh()
        elsewhere.publish(SECOND_KEY)
        held = Held(document({}))
        body = json.dumps({"keys": [SECOND_KEY]}).encode()
        faults = {
            "slow": (held, "timeout"),
            "redirect": (redirect(elsewhere.url("/keys")), "redirect"),
            "huge": (Endless(), "too_large"),
            "html": (answer(body, type="text/html"), "content_type"),
            "error": (answer(body, code=500), "status"),
            "garbage": (answer(b"{"), "key_set"),
            "down": (held, "unreachable"),
        }
        given, reason = faults[fault]
        server.serve("/keys", given)
        if fault == "down":
            await server.down()
        async with bounded():
            await keys.refresh()
        assert await found(keys) == ["first"]
        assert elsewhere.requests == []
        held.release()
    assert heard.outcomes == ["ok", "stale"]
    assert [record.__dict__["reason"] for record in caplog.records] == [reason]
    assert "127.0.0.1" not in caplog.text
