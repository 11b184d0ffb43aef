"""Keys over real sockets, from a server that does all that a server should not."""

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
from taskgate.auth.fetching import AiohttpFetch
from taskgate.auth.jwks import IssuerKeys
from unit.auth.scripted_fetch import (
    FIRST,
    SECOND_KEY,
    SOON,
    Heard,
    closing,
    found,
    settings_of,
)


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
    async with AiohttpFetch() as fetch:
        settings = settings_of(issuer=server.issuer, timeout=timeout, **keys)
        async with closing(IssuerKeys(settings, fetch, clock, heard)) as kept:
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
