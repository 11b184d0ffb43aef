"""A call that is at its server goes on at another replica when its own is killed, parts, or stands still for too long.

Its server tells what it says in event streams that can be taken up again. Real processes and signals.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.gateway.replicas import key_file
from helpers.host.host import Host
from helpers.server import LastingCall, LastingTool, ScriptedServer, note
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from interaction.questions import ACCEPTED, CAPABLE
from taskgate.stores.redis.options import RedisOptions

DONE = {"content": [{"type": "text", "text": "done"}]}
QUESTION = {
    "jsonrpc": "2.0",
    "id": "q-1",
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}},
}

Start = Callable[[], Awaitable[GatewayProcess]]


@pytest.fixture
def lasting(server: ScriptedServer) -> LastingTool:
    """The tool `report`, whose streams can be taken up again."""
    server.script["report"] = lasting = LastingTool()
    return lasting


@pytest.fixture
def options(valkey_server: SharedServer) -> RedisOptions:
    """Where their store is."""
    return valkey_server.options()


@pytest.fixture
async def start(server: ScriptedServer, options: RedisOptions, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts replicas, each a process, whose lease is two seconds."""
    store = (
        f'{{backend: redis, redis: {{url: "redis://127.0.0.1:{options.port}/0", key_prefix: "{options.key_prefix}"}}, '
        "lease: {ttl: 2s, heartbeat: 500ms}}"
    )
    auth = f'{{mode: none, context: {{key_file: "{key_file(tmp_path)}"}}}}'
    file = write_configuration(
        tmp_path,
        server.url,
        store=store,
        auth=auth,
        audit={"enabled": False},
        tasks={"early_poll": {"reject_above": 1000}},
    )
    async with AsyncExitStack() as stack:
        logs = iter(range(9))

        async def started() -> GatewayProcess:
            log = tmp_path / f"{next(logs)}.log"
            return await stack.enter_async_context(gateway_process(["--config", file], log=log))

        yield started


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


async def begun(lasting: LastingTool, host: Host) -> tuple[str, LastingCall]:
    """A task, and its call, which is kept."""
    await host.initialize(capabilities=CAPABLE)
    task = (await host.start("report"))["taskId"]
    call = await lasting.called()
    await said(host, task, call, 1)
    return task, call


async def said(host: Host, task: str, call: LastingCall, number: int) -> None:
    """The server says that it is so far, and whoever runs the call has written that: what it kept was written before.

    Written together they are not: the first place is kept at once, and each change has its turn.
    """
    call.say(note("notifications/progress", progressToken=call.token, progress=number))
    async with bounded():
        while (await host.task(task)).get("statusMessage") != str(number):
            await asyncio.sleep(0.01)


async def until(host: Host, task: str, status: str) -> dict[str, object]:
    async with bounded():
        while (found := await host.task(task))["status"] != status:
            await asyncio.sleep(0.02)
    return found


async def counted(http: aiohttp.ClientSession, gateway: GatewayProcess, sample: str) -> float:
    async with http.get(f"http://{gateway.admin}/metrics") as page:
        lines = (await page.text()).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(sample))


async def test_who_is_killed_is_followed_by_another_that_hears_the_call_to_its_end(
    server: ScriptedServer, lasting: LastingTool, start: Start, http: aiohttp.ClientSession
) -> None:
    first, second = await asyncio.gather(start(), start())
    host = first.host(http)
    task, call = await begun(lasting, host)
    asking = asyncio.create_task(call.ask(QUESTION))
    await until(host, task, "input_required")
    first.kill()
    await first.exit_status()
    # While nobody hears it, the server goes on.
    call.say(note("notifications/progress", progressToken=call.token, progress=2))
    there = second.again(host)
    async with bounded(), there.asking("tasks/result", {"taskId": task}) as waiting:
        question = await waiting.until("elicitation/create")
        await there.respond(question["id"], ACCEPTED)
        assert (await asking)["result"] == ACCEPTED
        call.answer(DONE)
        assert (await waiting.result())["content"] == DONE["content"]
    assert len(waiting.of("elicitation/create")) == 1
    assert (len(lasting.calls), server.cancelled, len(server.heard("initialize"))) == (1, [], 1)
    assert await counted(http, second, 'taskgate_task_recoveries_total{outcome="retried"') == 1
    await eventually(lambda: server.verbs("DELETE"))


async def test_who_parts_leaves_the_call_to_another_and_its_server_hears_nothing_of_it(
    server: ScriptedServer, lasting: LastingTool, start: Start, http: aiohttp.ClientSession
) -> None:
    first, second = await asyncio.gather(start(), start())
    host = first.host(http)
    task, call = await begun(lasting, host)
    first.ask(signal.SIGINT)
    first.ask(signal.SIGINT)
    await first.exit_status()
    assert (server.cancelled, server.verbs("DELETE")) == ([], [])
    there = second.again(host)
    assert (await there.task(task))["status"] == "working"
    await call.listened_to(2)
    call.answer(DONE)
    await until(there, task, "completed")
    assert len(lasting.calls) == 1


@pytest.mark.alone
async def test_who_stands_still_for_longer_than_its_lease_undoes_nothing(
    server: ScriptedServer, lasting: LastingTool, start: Start, http: aiohttp.ClientSession
) -> None:
    """The other has the call, hears it to its end, and that counts; nobody has it cancelled at the server."""
    first, second = await asyncio.gather(start(), start())
    host = first.host(http)
    task, call = await begun(lasting, host)
    first.ask(signal.SIGSTOP)
    there = second.again(host)
    await call.listened_to(2)
    first.ask(signal.SIGCONT)
    await lost_here(http, first)
    call.answer(DONE)
    assert (await until(there, task, "completed"))["status"] == "completed"
    assert (await host.task(task))["status"] == "completed"
    assert (len(lasting.calls), server.cancelled) == (1, [])


async def lost_here(http: aiohttp.ClientSession, gateway: GatewayProcess) -> None:
    """Wait until a replica knows that it lost its task."""
    async with bounded():
        while not await counted(http, gateway, "taskgate_leases_lost_total"):
            await asyncio.sleep(0.02)
