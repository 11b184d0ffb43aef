"""How often the shared store is asked: once for a look, once before a new task is answered for, hardly when idle."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.asked_store import AskedStore
from helpers.gateway.replicas import serve_replicas, store_section
from helpers.server import ScriptedServer, TalkingTool
from helpers.shared_store import SharedServer
from helpers.waiting import bounded
from interaction.questions import DONE

MANY = {"rate": "1000/s", "burst": 2000}
RATES = [
    {"name": "ip", "scope": "ip", **MANY, "before_auth": True},
    {"name": "auth_failures", "scope": "ip", "rate": "1/s", "burst": 20, "event": "auth_failure"},
    {"name": "calls", "scope": "context", **MANY, "methods": ["tools/call"]},
    {"name": "rest", "scope": "context", **MANY, "methods": ["*"]},
]
WATCHED = 4.0
"""Seconds for which idle gateways are watched: each gives some signs of life meanwhile."""
MOST_IDLE = 20
"""Commands a second of an idle gateway, those that scripts call among them."""


@pytest.mark.parametrize(("rate", "judged"), [([], []), (RATES, ["rates.take"])], ids=["no rates", "rates"])
async def test_a_request_asks_the_store_as_little_as_can_be(
    server: ScriptedServer,
    tool: TalkingTool,
    valkey_server: SharedServer,
    tmp_path: Path,
    rate: list[dict[str, Any]],
    judged: list[str],
) -> None:
    """All rates of a request are one question, and whatever is looked at, or made, is one more."""
    # No poll waits for the end of a new task.
    more = {"limits": {"rate": rate}, "tasks": {"poll_grace": "0s"}}
    async with serve_replicas(1, {"reports": server.url}, valkey_server.options(), tmp_path, **more) as [one]:
        host = await one.greeted()
        task = (await host.start("report"))["taskId"]
        async with bounded():
            await tool.begun.wait()
        with AskedStore(valkey_server) as store:
            await store.taken()
            for _ in range(3):
                await host.call("echo", {"text": "fox"})
                assert await store.taken() == judged
                await host.task(task)
                assert await store.taken() == [*judged, "HMGET"]
        await tool.finish(DONE)
        await host.until(task, "completed")


async def test_a_new_task_is_one_insert_before_its_call_leaves_and_one_swap_at_its_end(
    server: ScriptedServer, tool: TalkingTool, valkey_server: SharedServer, tmp_path: Path
) -> None:
    async with serve_replicas(1, {"reports": server.url}, valkey_server.options(), tmp_path) as [one]:
        host = await one.greeted()
        # A server that does not know a script yet is sent its text by a second command.
        await host.until((await host.start("echo"))["taskId"], "completed")
        with AskedStore(valkey_server) as store:
            await store.taken()
            async with bounded():
                task = (await host.start("report"))["taskId"]
                await tool.begun.wait()
            assert await store.taken() == ["rows.insert"]
            await tool.finish(DONE)
            await host.until(task, "completed")
            later = await store.taken()
    assert [each for each in later if each != "HMGET"] == ["rows.swap"]


@pytest.mark.parametrize("count", [1, 3])
async def test_idle_gateways_hardly_ask_anything(
    server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path, count: int
) -> None:
    """Though they give signs of life more than twice as often as by default."""
    options = valkey_server.options()
    store = store_section(options) | {"lease": {"ttl": "6s", "heartbeat": "2s"}}
    async with serve_replicas(count, {"reports": server.url}, options, tmp_path, store=store, limits={"rate": RATES}):
        valkey_server.ask("CONFIG", "RESETSTAT")
        begun = time.monotonic()
        await asyncio.sleep(WATCHED)
        asked, elapsed = sum(valkey_server.commands().values()), time.monotonic() - begun
    assert 0 < asked / elapsed / count < MOST_IDLE
