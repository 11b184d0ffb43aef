"""Operators see the last hour of a replica, minute by minute, and when the call of a task was sent."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.server import Hold, ScriptedServer, status
from helpers.waiting import until
from interaction.operators import act, look, tokens
from interaction.queues import queued
from interaction.reloads import DONE

HISTORY = "/api/v1/history"


@pytest.fixture
async def gateway(server: ScriptedServer, other: ScriptedServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway that knows the tokens of operators. One call at a time goes to `reports`."""
    section = {"path": "/reports/mcp", "url": server.url, "concurrency": 1, "queue": {"size": 9, "max_wait": "300s"}}
    config = configuration(
        {"reports": server.url, "books": other.url},
        admin=tokens(tmp_path),
        upstreams={"reports": section, "books": {"path": "/books/mcp", "url": other.url}},
    )
    async with serve(config, Environment()) as gateway:
        yield gateway


async def hour_of(gateway: Gateway, upstream: str) -> dict[str, Any]:
    """The hour of one upstream."""
    return {each["name"]: each for each in (await look(gateway, HISTORY))["upstreams"]}[upstream]


async def test_requests_refusals_and_tasks_are_in_the_newest_minute(gateway: Gateway, server: ScriptedServer) -> None:
    host = await gateway.greeted()
    for _ in range(3):
        await host.call("echo")
    server.script["report"] = hold = Hold()
    for _ in range(2):
        await host.start("report")
    await hold.begun.wait()
    await queued(gateway, 1)
    await act(gateway, "/api/v1/upstreams/books/hold")
    await (await gateway.greeted(mount="books")).call("echo")
    found = await look(gateway, HISTORY)
    assert all(len(found[each]) == 60 for each in ("requests", "failures", "refusals", "p95_seconds", "unfinished"))
    assert (found["unfinished"][-1], found["waiting"][-1], found["refusals"][-1]) == (2, 1, 1)
    assert found["requests"][-1] >= 3
    assert found["failures"] == [0] * 60
    assert 0 < found["recent_p95_seconds"] < 60
    assert found["p95_seconds"][:-2] == [None] * 58
    assert sum((await hour_of(gateway, "reports"))["requests"]) >= 3
    books = await hour_of(gateway, "books")
    assert books["recent_p95_seconds"] is None


async def test_failures_are_those_of_the_server_that_fails(gateway: Gateway, server: ScriptedServer) -> None:
    host = await gateway.greeted()
    server.script["echo"] = status(503)
    for _ in range(2):
        await host.call("echo")
    found = await look(gateway, HISTORY)
    failed = await hour_of(gateway, "reports")
    assert sum(failed["failures"]) == sum(found["failures"]) >= 2
    assert sum((await hour_of(gateway, "books"))["failures"]) == 0


async def test_a_task_that_waited_for_a_permit_tells_when_its_call_was_sent(
    gateway: Gateway, server: ScriptedServer
) -> None:
    host = await gateway.greeted()
    server.script["report"] = hold = Hold()
    await host.start("report")
    await hold.begun.wait()
    await host.start("echo")
    await queued(gateway, 1)
    items = {each["tool"]: each["reference"] for each in (await look(gateway, "/api/v1/tasks"))["items"]}
    path = f"/api/v1/tasks/{items['echo']}"
    assert (await look(gateway, path))["dispatched_at"] is None
    assert (await look(gateway, f"/api/v1/tasks/{items['report']}"))["dispatched_at"] is None
    hold.release(DONE)
    ended = await until(lambda: look(gateway, path), lambda found: found["status"] == "completed")
    created, sent, end = (datetime.fromisoformat(ended[each]) for each in ("created_at", "dispatched_at", "updated_at"))
    assert created < sent <= end
