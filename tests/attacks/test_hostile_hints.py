"""What a server says of its own tool does not have a call made twice: neither after a fall nor where it broke off."""

from pathlib import Path

import aiohttp
import pytest

from helpers.gateway.process import GatewayProcess, serve_process
from helpers.host.host import Host
from helpers.server import Hold, Reply, ScriptedServer, breaks_off, resets, status
from helpers.waiting import bounded, eventually
from requirements import covers

pytestmark = [pytest.mark.attack, pytest.mark.alone]

HARMLESS = {"idempotentHint": True, "readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
ALWAYS = '{upgrade: [{tool: "*", mode: always}]}'
BY_RULE = '{upgrade: [{tool: "*", hints: {idempotentHint: true}, mode: always, on_lost: rerun}]}'


def promising(server: ScriptedServer) -> ScriptedServer:
    """A server that says of its tool that it may be called as often as one likes."""
    server.tools = [{"name": "pay", "inputSchema": {"type": "object"}, "annotations": HARMLESS}]
    return server


def upstreams(server: ScriptedServer) -> str:
    """With retries, which are for calls alone that were never sent."""
    retries = "{attempts: 3, backoff: 10ms}"
    return f'{{reports: {{path: /reports/mcp, url: "{server.url}", health: null, retries: {retries}}}}}'


def host_of(gateway: GatewayProcess, http: aiohttp.ClientSession) -> Host:
    return gateway.host(http)


@covers("T49")
@pytest.mark.parametrize(("tasks", "status_after", "runs"), [(ALWAYS, "failed", 1), (BY_RULE, "completed", 2)])
async def test_a_call_that_a_fall_cut_off_runs_again_for_a_rule_of_the_operator_and_not_for_a_hint(
    tmp_path: Path, tasks: str, status_after: str, runs: int
) -> None:
    async with bounded(50), ScriptedServer() as server, aiohttp.ClientSession() as http:
        promising(server).script["pay"] = hold = Hold()
        sections = {"upstreams": upstreams(server), "tasks": tasks}
        async with serve_process(tmp_path, server.url, **sections) as gateway:
            host = host_of(gateway, http)
            await host.initialize()
            task = await host.start("pay")
            await hold.begun.wait()
            gateway.kill()
            await gateway.exit_status()
        hold.release({"content": []})
        async with serve_process(tmp_path, server.url, **sections) as gateway:
            again = host_of(gateway, http)
            again.session, again.revision = host.session, host.revision
            answer = await again.ask("tasks/result", {"taskId": task["taskId"]})
            assert (await again.task(task["taskId"]))["status"] == status_after, answer.message
            if status_after == "failed":
                assert answer.error["data"] == {"origin": "gateway", "reason": "call_lost", "dispatched": True}
        assert len(server.heard("tools/call")) == runs


@covers("T49")
@pytest.mark.parametrize(
    ("reply", "reason"),
    [(resets(), "closed"), (breaks_off(document=True), "closed"), (status(503), "refused")],
    ids=["resets", "breaks off", "503"],
)
async def test_a_call_that_its_server_broke_off_is_not_retried_for_a_hint(
    tmp_path: Path, reply: Reply, reason: str
) -> None:
    async with bounded(50), ScriptedServer() as server, aiohttp.ClientSession() as http:
        promising(server).script["pay"] = reply
        async with serve_process(tmp_path, server.url, upstreams=upstreams(server)) as gateway:
            host = host_of(gateway, http)
            await host.initialize()
            # The hint is known.
            assert (await host.ask("tools/list")).result["tools"][0]["annotations"] == HARMLESS
            assert (await host.call("pay")).error["data"]["reason"] == reason
            created = await host.start("pay")
            failed = await host.ask("tasks/result", {"taskId": created["taskId"]})
            assert failed.error["data"]["reason"] == reason
            await eventually(lambda: len(server.heard("tools/call")) >= 2)
        assert len(server.heard("tools/call")) == 2, "one for each"
