"""Two gateways behind a balancer are restarted one after the other under load, and no host notices."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from example.processes import Child, running

from helpers.balancers import KINDS, Kind, balanced
from helpers.commit_before import commit_before
from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import Replica
from helpers.gateway.replicas import key_file, store_section
from helpers.host.host import Host
from helpers.host.raw import RawAnswer, RawHost, post
from helpers.ports import free_port
from helpers.server import Reply, ScriptedServer, Turn, result
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from replicas.processes import counted

__all__ = ["commit_before"]

SDK_HOST = Path(__file__).with_name("steady_sdk_host.py")
CALLERS = 4
TASK_CALLERS = 3
LONG = 4.0
"""Seconds of a task that outlasts the part of a drain in which answers are waited for."""
ENOUGH = 40
"""Requests of hosts before, between and after the restarts."""


@dataclass
class Load:
    """What hosts asked through the balancer, and what went wrong of it."""

    address: str
    session: str
    stopped: bool = False
    answered: int = 0
    tasks: int = 0
    failures: list[str] = field(default_factory=list)

    async def more(self, count: int = ENOUGH) -> None:
        """Wait until so many further requests were answered, and some tasks ended, or one went wrong."""
        answered, tasks = self.answered + count, self.tasks + TASK_CALLERS
        await eventually(lambda: self.failures or (self.answered >= answered and self.tasks >= tasks), within=30)


class Caller:
    """A host in few lines that keeps its connection for as long as it may, and tries nothing again."""

    def __init__(self, load: Load, number: int) -> None:
        self._load = load
        self._number = number * 1_000_000
        self._connection: RawHost | None = None

    async def call(self) -> None:
        """Plain calls, one after another, until it is enough."""
        async for number in self._numbers():
            told = await self._ask("tools/call", name="echo", arguments={"number": number})
            assert told["structuredContent"] == {"number": number}, told

    async def call_as_task(self) -> None:
        """Calls as tasks, each asked for until it has ended."""
        async for number in self._numbers():
            created = await self._ask("tools/call", name="slow", arguments={"number": number}, task={})
            task = {"taskId": created["task"]["taskId"]}
            while (seen := await self._ask("tasks/get", **task))["status"] == "working":
                await asyncio.sleep(0.02)  # as a host does: asked without a pause, a gateway has nothing else to do
            assert seen["status"] == "completed", seen
            assert (await self._ask("tasks/result", **task))["structuredContent"] == {"number": number}
            self._load.tasks += 1

    async def _numbers(self) -> AsyncIterator[int]:
        try:
            while not self._load.stopped and not self._load.failures:
                self._number += 1
                yield self._number
        finally:
            if self._connection is not None:
                await self._connection.close()

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        answer = await self._exchanged(json.dumps(message))
        assert answer.status == 200, f"{method}: {answer}"
        text = answer.body.decode()
        if answer.headers["content-type"] == "text/event-stream":
            text = text.strip().rpartition("data: ")[2]
        told = json.loads(text)
        assert "result" in told, f"{method}: {text}"
        self._load.answered += 1
        found: dict[str, Any] = told["result"]
        return found

    async def _exchanged(self, body: str) -> RawAnswer:
        if self._connection is None:
            host, port = self._load.address.split(":")
            self._connection = await RawHost.connect((host, int(port)))
        head = {"Mcp_Session_Id": self._load.session, "MCP_Protocol_Version": "2025-11-25"}
        answer = await self._connection.ask(post(body, path="/reports/mcp", host=self._load.address, **head))
        if answer.headers.get("connection") == "close":
            await self._connection.close()
            self._connection = None
        return answer


@asynccontextmanager
async def loaded(address: str) -> AsyncIterator[Load]:
    """Hosts that ask without end, for the length of the block; what went wrong is in `failures`."""
    async with aiohttp.ClientSession() as http:
        host = Host(http, f"http://{address}/reports/mcp")
        await host.initialize()
    load = Load(address, host.session or "")

    async def noted(work: Any) -> None:
        try:
            await work
        except Exception as error:
            load.failures.append(f"{type(error).__name__}: {error}")

    callers = [Caller(load, number) for number in range(CALLERS + TASK_CALLERS)]
    works = [caller.call() for caller in callers[:CALLERS]] + [each.call_as_task() for each in callers[CALLERS:]]
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(noted(work))
        try:
            yield load
        finally:
            load.stopped = True


async def answered(replica: Replica) -> float:
    """How many requests of hosts a gateway has answered since it was started."""
    async with aiohttp.ClientSession() as http:
        return await counted(http, replica.process, "http_server_request_duration_seconds_count{")


def configured(folder: Path, server: str, store: SharedServer, front: str) -> Path:
    """The one file of both gateways."""
    return write_configuration(
        folder,
        server,
        server={"listen": "${LISTEN}", "public_url": f"http://{front}", "drain": {"delay": "300ms", "timeout": "20s"}},
        auth={"mode": "none", "context": {"key_file": str(key_file(folder))}},
        audit={"hmac_key_file": str(key_file(folder, "audit.key"))},
        store=store_section(store.options(), ttl="4s", heartbeat="500ms"),
        # The callers poll at a pace of their own, which is no part of what is tried here.
        tasks={"inline_grace": "0s", "early_poll": {"reject_above": 1000}},
        limits={"rate": [], "concurrency": {"tasks_per_context": 1000}},
    )


def taking(seconds: float) -> Reply:
    """A tool that takes so long, as tools that are called as tasks do."""

    async def answer(turn: Turn) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        arguments = turn.message["params"]["arguments"]
        return await result({"content": [], "structuredContent": arguments})(turn)

    return answer


@asynccontextmanager
async def steady(address: str, folder: Path) -> AsyncIterator[Child]:
    """A host on the SDK that asks without end, for the length of the block, after which it has met nothing wrong."""
    command = [sys.executable, SDK_HOST, f"http://{address}/reports/mcp"]
    async with running(command, log=folder / "sdk-host.log") as child:
        async with bounded():
            await child.said(rb"round 1 done")
        yield child
        child.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(50):
            status = await child.process.wait()
    assert status == 0, (folder / "sdk-host.log").read_text()[-3000:]


async def restart_under_load(
    kind: Kind, valkey: SharedServer, folder: Path, begins_as: Mapping[str, str] | None = None
) -> None:
    port = free_port()
    async with ScriptedServer() as server, AsyncExitStack() as stack:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "slow", "long")]
        server.script |= {"slow": taking(0.4), "long": taking(LONG)}
        file = configured(folder, server.url, valkey, f"127.0.0.1:{port}")
        replicas = []
        for name in ("one", "two"):
            (own := folder / name).mkdir()
            replicas.append(replica := Replica(own, file, begins_as=begins_as))
            stack.push_async_callback(replica.stop)
            await replica.start()
        address = await stack.enter_async_context(balanced(kind, [each.listen for each in replicas], folder, port))
        async with steady(address, folder) as sdk_host, loaded(address) as load:
            await load.more()
            for replica in replicas:
                await replica.restart()
                await load.more()
            assert load.failures == []
            assert sdk_host.process.returncode is None, sdk_host.log.read_text()[-3000:]
            # Ours leaves connections where they are, so it may well have come to one gateway alone.
            assert kind == "ours" or all([await answered(replica) for replica in replicas]), "not both have served"
        assert load.failures == []


@pytest.mark.alone
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_rolling_restart_fails_no_request(kind: Kind, valkey_server: SharedServer, tmp_path: Path) -> None:
    await restart_under_load(kind, valkey_server, tmp_path)


@pytest.mark.alone
@pytest.mark.timeout(300)
async def test_no_request_fails_while_gateways_of_the_commit_before_give_way_to_these(
    valkey_server: SharedServer, commit_before: Mapping[str, str], tmp_path: Path
) -> None:
    """Each goes on with sessions, tasks and streams of the other, in either direction, while one of each runs."""
    await restart_under_load("nginx", valkey_server, tmp_path, commit_before)
