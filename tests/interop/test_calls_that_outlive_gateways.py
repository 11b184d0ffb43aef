"""A call at a real server whose streams can be taken up again goes on when taskgate is killed, or asked to end.

The servers are on released SDKs and know nothing of tasks, nor of gateways that fall. One is released itself: it tells
who comes back what it has kept, and nothing that comes later.
"""

import asyncio
import sys
from pathlib import Path

import aiohttp
import pytest

from helpers.gateway.process import gateway_process
from helpers.host.host import Host
from helpers.waiting import bounded
from interop.hosts import PATIENCE, place_for
from interop.peers import python_server, require_peers
from interop.programs import upstreams
from interop.released import HTTP
from interop.test_restarts_of_real_processes import stop

pytestmark = pytest.mark.interop

VERSION = "1.23.3"
DEAF = "everything-2026-08"
HASTY = """
from taskgate.cli import main
from taskgate.upstream.legacy import event_streams

event_streams.SILENCE, event_streams.SILENCE_GROWN = 0.5, 1.0
main()
"""
"""taskgate, but that it finds a stream silent sooner."""


async def answered(host: Host, task: str, word: str) -> str:
    """Answer the next question of a task with that word; what it wants to know."""
    async with bounded(PATIENCE), host.asking("tasks/result", {"taskId": task}) as waiting:
        question = await waiting.until("elicitation/create")
        assert (await host.respond(question["id"], {"action": "accept", "content": {"word": word}})).status == 202
    message: str = question["params"]["message"]
    return message


async def asked(host: Host, task: str) -> None:
    """Wait until the task waits for its host."""
    async with bounded(PATIENCE):
        while (await host.task(task))["status"] != "input_required":
            await asyncio.sleep(0.1)


async def progressed(host: Host, task: str) -> None:
    """Wait until the task says how far it is."""
    async with bounded(PATIENCE):
        while "1/3" not in (await host.task(task)).get("statusMessage", ""):
            await asyncio.sleep(0.1)


async def test_a_real_server_is_heard_to_the_end_of_a_call_that_it_was_asked_for_once(tmp_path: Path) -> None:
    async with python_server("lasting_server.py", VERSION, tmp_path) as upstream, aiohttp.ClientSession() as http:
        place, asks = place_for(upstream, tmp_path), []
        host = Host(http, place.url)
        async with place.gateway() as gateway:
            await host.initialize(capabilities={"elicitation": {}})
            task = (await host.start("ask", {"about": "ships"}))["taskId"]
            asks.append(await answered(host, task, "one"))
            # Each time the next question is open when the gateway ends.
            await asked(host, task)
            gateway.kill()
            assert await gateway.exit_status() < 0
        async with place.gateway() as gateway:
            asks.append(await answered(host, task, "two"))
            await asked(host, task)
            await stop(gateway)
        async with place.gateway():
            asks.append(await answered(host, task, "three"))
            async with bounded(PATIENCE):
                result = (await host.ask("tasks/result", {"taskId": task})).result
            times = await host.call("times", {"about": "ships"})
    assert asks == ["Word 1?", "Word 2?", "Word 3?"]
    assert [block["text"] for block in result["content"]] == ["ships one two three"]
    assert [block["text"] for block in times.result["content"]] == ["1"]


async def test_a_real_server_is_asked_anew_that_tells_what_it_kept_and_nothing_of_what_comes(tmp_path: Path) -> None:
    require_peers()
    async with upstreams({"reports": (DEAF, HTTP)}, tmp_path) as servers, aiohttp.ClientSession() as http:
        place = place_for(servers["reports"]["url"], tmp_path)
        host = Host(http, place.url)
        async with place.gateway() as gateway:
            await host.initialize()
            task = (await host.start("trigger-long-running-operation", {"duration": 6, "steps": 3}))["taskId"]
            # Where the call is at its server is kept by then.
            await progressed(host, task)
            gateway.kill()
            assert await gateway.exit_status() < 0
        hasty = [sys.executable, "-c", HASTY]
        next_one = gateway_process(["--config", place.file], log=tmp_path / "gateway-hasty.log", program=hasty)
        async with next_one, bounded(PATIENCE):
            result = (await host.ask("tasks/result", {"taskId": task})).result
    assert [block["text"] for block in result["content"]] == [
        "Long running operation completed. Duration: 6 seconds, Steps: 3."
    ]
