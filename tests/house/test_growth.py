"""What one more costs when there are many: the 3,000th session, task, stream and event cost as much as the 100th.

What is counted is what `test_budgets` counts: functions of the package that are entered on the thread of the loop.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import reduce
from operator import and_
from pathlib import Path
from statistics import median_low
from typing import Any

import pytest
from aiohttp import web
from bench.stock import fill, ids_of

import taskgate
from helpers import told
from helpers.counted_calls import counted_calls
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.loop_pace import paced
from helpers.server import PacedProgress, ScriptedServer, Turn, open_stream, progress_note, result
from helpers.server import event as written
from helpers.waiting import bounded, eventually
from taskgate.telemetry.events import TaskFinished

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]
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
Growth = tuple[Act, Act]
"""What is done many times, and what is counted among few and among many of these."""


@asynccontextmanager
async def session(gateway: Gateway, host: Host, server: ScriptedServer) -> AsyncIterator[Growth]:
    """A session that is opened, and stays."""
    yield gateway.greeted, gateway.greeted


@asynccontextmanager
async def task(gateway: Gateway, host: Host, server: ScriptedServer) -> AsyncIterator[Growth]:
    """A task that is created, runs and ends, and whose record stays."""
    server.script["report"] = result({"content": []})

    async def run() -> None:
        emitted = told.now().emitted
        before = len(emitted)
        id = (await host.start("report"))["taskId"]
        await eventually(
            lambda: any(isinstance(each, TaskFinished) and each.task.id == id for each in emitted[before:])
        )

    yield run, run


@asynccontextmanager
async def stream(gateway: Gateway, host: Host, server: ScriptedServer) -> AsyncIterator[Growth]:
    """A call whose answer is an event stream, with progress, in one session."""

    async def reply(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        await response.write(written(progress_note(turn.token, 1)))
        await response.write(written(turn.answer({"content": []})))
        return response

    server.script["echo"] = reply
    params = {"name": "echo", "arguments": {}, "_meta": {"progressToken": "p"}}

    async def run() -> None:
        async with host.asking("tools/call", params) as answer:
            await answer.result()

    yield run, run


@asynccontextmanager
async def event(gateway: Gateway, host: Host, server: ScriptedServer) -> AsyncIterator[Growth]:
    """An event of an open stream in a session that has had many streams."""
    reply = server.script["report"] = PacedProgress({"content": []})
    params = {"name": "report", "arguments": {}, "_meta": {"progressToken": "q"}}
    async with (
        stream(gateway, host, server) as (another_stream, _),
        host.asking("tools/call", params) as answer,
    ):
        heard = 0

        async def one() -> None:
            nonlocal heard
            heard += 1
            reply.next()
            await answer.until("notifications/progress", times=heard)

        yield another_stream, one
        reply.end()
        await answer.result()


ACTS = {each.__name__: each for each in (session, task, stream, event)}


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


@asynccontextmanager
async def slowly() -> AsyncIterator[None]:
    """Have no timer run out: on a slow disk, reports of a task would be read while it is counted, but not each time."""
    with paced(0.001):
        yield


@pytest.mark.parametrize("act", ACTS)
async def test_one_more_costs_as_much_among_many_as_among_few(act: str, tmp_path: Path) -> None:
    async with ScriptedServer() as server:
        server.tools = [*server.tools, {"name": "report", "inputSchema": {"type": "object"}}]
        reports = {"url": server.url, "path": "/reports/mcp", "protocol_version": "2025-11-25"}
        limits = {"rate": [ROOMY], "concurrency": CAPS}
        tasks = TASKS if act == "task" else {}
        config = configuration({}, folder=tmp_path, upstreams={"reports": reports}, tasks=tasks, limits=limits)
        async with (
            serve(config, data_directory=tmp_path) as gateway,
            bounded(BOUND),
            slowly(),
            ACTS[act](gateway, await gateway.greeted(), server) as (more, one),
        ):
            await repeated(more, FEW)
            few, _ = await least(one)
            await repeated(more, MANY - FEW)
            many, way = await least(one)

    assert many <= few, f"{few} calls among {FEW}, {many} among {MANY}\n{way}"


# --- stored tasks -----------------------------------------------------------------------------------------------------

STORED = 50_000
SAME = 1.1


async def poll(folder: Path, stored: int) -> tuple[int, int]:
    """Calls of the package, and steps of SQLite, for a `tasks/get` of a stored task that was not asked for before.

    That its result was fetched is written a little later, so it is waited for, and counted with it.
    """
    folder.mkdir()
    await fill(folder / "taskgate.db", "reports", stored)
    steps, connect = 0, sqlite3.connect
    commits: list[str] = []

    def step() -> None:
        nonlocal steps
        steps += 1

    def statement(sql: str) -> None:
        if sql == "COMMIT":
            commits.append(sql)

    def connecting(*args: Any, **options: Any) -> sqlite3.Connection:
        opened = connect(*args, **options)
        opened.set_progress_handler(step, 1)
        opened.set_trace_callback(statement)
        return opened

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sqlite3, "connect", connecting)
        config = configuration({"reports": "http://127.0.0.1:9/mcp"}, folder=folder)
        async with serve(config, data_directory=folder) as gateway, bounded(BOUND), slowly():
            host, entered, taken = gateway.modern(), [], []
            for id in list(ids_of(stored))[-ROUNDS:]:
                steps = 0
                commits.clear()
                with counted_calls() as calls:
                    found = await host.task(id)
                    await eventually(lambda: commits != [])
                assert found["status"] == "completed", found
                entered.append(calls.within(PACKAGE))
                taken.append(steps)
    return reduce(and_, entered).total(), median_low(taken)


async def test_a_poll_takes_as_many_steps_among_many_stored_tasks_as_among_few(tmp_path: Path) -> None:
    few = await poll(tmp_path / "few", FEW)
    many = await poll(tmp_path / "many", STORED)

    assert few[1] > 0, "the store was asked"
    within = [now <= SAME * before for now, before in zip(many, few, strict=True)]
    assert all(within), f"{few} calls and steps among {FEW}, {many} among {STORED}"
