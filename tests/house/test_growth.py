"""What one more costs when there are many: the 3,000th session, task, and stream cost as much as the 100th.

What is counted is what `test_budgets` counts: functions of the package that are entered on the thread of the loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

import taskgate
from helpers import told
from helpers.counted_calls import counted_calls
from helpers.mcp_host import McpHost
from helpers.scripted_replies import Turn, open_stream
from helpers.scripted_upstream import ScriptedServer, event, progress_note, result
from helpers.waiting import bounded, eventually
from helpers.whole_gateway import WholeGateway, configuration, running
from taskgate.telemetry import ring
from taskgate.telemetry.events import TaskFinished

pytestmark = [pytest.mark.alone, pytest.mark.timeout(180)]
PACKAGE = Path(taskgate.__file__).parent
FEW, MANY = 100, 3_000
AT_ONCE = 20
ROUNDS = 12
QUIET_TURNS = 20
BOUND = 80.0
PLENTY = 1_000_000
ROOMY = {"name": "calls", "scope": "context", "methods": ["*"], "rate": "1000000/s", "burst": PLENTY}
CAPS = dict.fromkeys(("sessions_per_context", "tasks_per_context", "tasks_global"), PLENTY)
TASKS = {"upgrade": [{"tool": "report", "mode": "always"}]}

Act = Callable[[], Awaitable[object]]


async def session(gateway: WholeGateway, host: McpHost, server: ScriptedServer) -> Act:
    """A session that is opened, and stays."""
    return gateway.greeted


async def task(gateway: WholeGateway, host: McpHost, server: ScriptedServer) -> Act:
    """A task that is created, runs and ends, and whose record stays."""
    server.script["report"] = result({"content": []})

    async def run() -> None:
        emitted = told.now().emitted
        before = len(emitted)
        id = (await host.start("report"))["taskId"]
        await eventually(
            lambda: any(isinstance(each, TaskFinished) and each.task.id == id for each in emitted[before:])
        )

    return run


async def stream(gateway: WholeGateway, host: McpHost, server: ScriptedServer) -> Act:
    """A call whose answer is an event stream, with progress, in one session."""

    async def reply(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        await response.write(event(progress_note(turn.token, 1)))
        await response.write(event(turn.answer({"content": []})))
        return response

    server.script["echo"] = reply
    params = {"name": "echo", "arguments": {}, "_meta": {"progressToken": "p"}}

    async def run() -> None:
        async with host.asking("tools/call", params) as answer:
            await answer.answered()

    return run


ACTS = {each.__name__: each for each in (session, task, stream)}


async def repeated(act: Act, times: int) -> None:
    """Do it so often, some at a time."""
    for start in range(0, times, AT_ONCE):
        await asyncio.gather(*(act() for _ in range(min(AT_ONCE, times - start))))


async def least(act: Act) -> tuple[int, str]:
    """The least count of calls that one of several took, and where they went."""
    ways = []
    for _ in range(ROUNDS):
        with counted_calls() as calls:
            await act()
            for _ in range(QUIET_TURNS):
                await asyncio.sleep(0)
        entered = calls.within(PACKAGE)
        ways.append((entered.total(), "\n".join(f"{times:4} {place}" for place, times in sorted(entered.items()))))
    return min(ways)


@pytest.mark.parametrize("act", ACTS)
async def test_one_more_costs_as_much_among_many_as_among_few(
    act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow disk a task takes longer than that: its reports would be read while it is counted, but not each time.
    monkeypatch.setattr(ring, "FOLD_DELAY", 3600.0)
    async with ScriptedServer() as server:
        server.tools = [*server.tools, {"name": "report", "inputSchema": {"type": "object"}}]
        reports = {"url": server.url, "path": "/reports/mcp", "protocol_version": "2025-11-25"}
        limits = {"rate": [ROOMY], "concurrency": CAPS}
        config = configuration({}, folder=tmp_path, upstreams={"reports": reports}, tasks=TASKS, limits=limits)
        async with running(config, data_directory=tmp_path) as gateway, bounded(BOUND):
            one = await ACTS[act](gateway, await gateway.greeted(), server)
            await repeated(one, FEW)
            few, _ = await least(one)
            await repeated(one, MANY - FEW)
            many, way = await least(one)

    assert many <= few, f"{few} calls among {FEW}, {many} among {MANY}\n{way}"
