"""A gateway goes on with what the commit before left in its store: every name that is stored means what it meant."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from helpers.commit_before import commit_before
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.gateway.replicas import key_file
from helpers.host.host import Host
from helpers.server import Hold, Rounds, ScriptedServer, TalkingTool, error
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from interaction.bridges import FORM
from interaction.questions import ACCEPTED
from replicas.processes import LOST

__all__ = ["commit_before"]

ENDS = {
    "completed": ("completed", None),
    "broken": ("failed", None),
    "cancelled": ("cancelled", None),
    "held": ("failed", LOST),
    "asking": ("failed", LOST),
}
"""What becomes of each task, and what is said of it where its process was killed."""


@dataclass
class Site:
    """A legacy server that takes three calls at once, a modern one that asks in rounds, and a store for gateways."""

    reports: ScriptedServer
    forms: ScriptedServer
    rounds: Rounds
    asks: TalkingTool
    folder: Path
    store: str
    starts: int = 0

    def gateway(self, environment: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[GatewayProcess]:
        """One process on that store."""
        servers = {"reports": self.reports.url, "forms": self.forms.url}
        mounts = (f'{n}: {{path: /{n}/mcp, url: "{u}", health: null, concurrency: 3}}' for n, u in servers.items())
        file = write_configuration(
            self.folder,
            self.reports.url,
            upstreams=f"{{{', '.join(mounts)}}}",
            auth={"mode": "none", "context": {"key_file": str(key_file(self.folder))}},
            tasks={
                "inline_grace": "0s",
                "early_poll": {"reject_above": 1000},
                "upgrade": [{"tool": "*", "mode": "always"}],
            },
            audit={"enabled": False},
            store=self.store,
        )
        self.starts += 1
        log = self.folder / f"gateway-{self.starts}.log"
        return gateway_process(["--config", file], log=log, environment=environment)


@pytest.fixture(params=["sqlite", "valkey"])
async def site(request: pytest.FixtureRequest, valkey_server: SharedServer, tmp_path: Path) -> AsyncIterator[Site]:
    """Each kind of store in turn, still empty."""
    store = f'{{sqlite: {{path: "{tmp_path}/taskgate.db"}}}}'
    if request.param == "valkey":
        options = valkey_server.options()
        where = f'url: "redis://{valkey_server.address}/0", key_prefix: "{options.key_prefix}"'
        store = f"{{backend: redis, redis: {{{where}}}, lease: {{ttl: 2s, heartbeat: 500ms}}}}"
    async with ScriptedServer() as reports, ScriptedServer("modern") as forms:
        names, asks = ("echo", "broken", "held", "asks"), TalkingTool()
        reports.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        reports.script |= {"broken": error(-32001, "no paper"), "held": Hold(), "asks": asks}
        forms.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        forms.script["report"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "one"})
        yield Site(reports, forms, rounds, asks, tmp_path, store)


def modern_host(http: aiohttp.ClientSession, gateway: GatewayProcess) -> Host:
    return Host(http, gateway.url("forms"), capabilities={"elicitation": {"form": {}}}, era="modern")


async def ended(host: Host, task: str) -> dict[str, Any]:
    """The task, once it has ended."""
    async with bounded():
        await host.ask("tasks/result", {"taskId": task})
        return await host.task(task)


@dataclass
class Left:
    """What a killed gateway left: its host's session, and the tasks by what became of them."""

    host: Host
    tasks: dict[str, str]
    in_a_round: str


async def left_behind(site: Site, http: aiohttp.ClientSession, environment: Mapping[str, str]) -> Left:
    """Tasks in every state, of a gateway that was killed."""
    async with site.gateway(environment) as gateway:
        host, modern, tasks = gateway.host(http), modern_host(http, gateway), dict[str, str]()
        await host.initialize(capabilities={"elicitation": {}})
        for name, tool in (("completed", "echo"), ("broken", "broken")):
            tasks[name] = (await host.start(tool, {"number": 1}))["taskId"]
            await ended(host, tasks[name])
        tasks["cancelled"] = (await host.start("held"))["taskId"]
        await host.ask("tasks/cancel", {"taskId": tasks["cancelled"]})
        for name, tool in (("held", "held"), ("also held", "held"), ("asking", "asks")):
            tasks[name] = (await host.start(tool))["taskId"]
        await site.asks.ask("q")
        tasks["queued"] = (await host.start("echo", {"number": 2}))["taskId"]
        in_a_round = (await modern.start("report"))["taskId"]
        await modern.until(in_a_round, "input_required")
        async with bounded():
            while (await host.task(tasks["asking"]))["status"] != "input_required":
                await asyncio.sleep(0)
        await eventually(lambda: len(site.reports.heard("tools/call")) == 6)
        gateway.kill()
        await gateway.exit_status()
    return Left(host, tasks, in_a_round)


async def test_tasks_and_sessions_of_the_commit_before_go_on(
    site: Site, http: aiohttp.ClientSession, commit_before: Mapping[str, str]
) -> None:
    left = await left_behind(site, http, commit_before)
    tasks = left.tasks
    async with site.gateway() as gateway:
        host = gateway.host(http)
        host.session, host.revision = left.host.session, left.host.revision
        found = {name: await ended(host, tasks[name]) for name in ENDS}
        for name, (status, said) in ENDS.items():
            assert found[name]["status"] == status, name
            assert said is None or found[name]["statusMessage"] == said, name
        for name, number in (("completed", 1), ("queued", 2)):
            result = (await host.ask("tasks/result", {"taskId": tasks[name]})).result
            assert result["structuredContent"] == {"number": number}
        assert (await host.ask("tasks/result", {"taskId": tasks["broken"]})).code == -32001
        modern = modern_host(http, gateway)
        (key,) = (await modern.until(left.in_a_round, "input_required"))["inputRequests"]
        await modern.update(left.in_a_round, {key: ACCEPTED})
        done = await modern.until(left.in_a_round, "completed")
        assert done["result"]["structuredContent"] == {"answers": [{"a": ACCEPTED}]}
        sent = [call["params"]["arguments"].get("number") for call in site.reports.heard("tools/call")]
        assert sorted(number for number in sent if number is not None) == [1, 1, 2]
