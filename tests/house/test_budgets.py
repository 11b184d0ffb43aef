"""What one request costs: modules and functions that it enters, and objects that it makes.

No count is above its budget, and a budget goes up only with a reason. A failure prints the way of the request.

The gateway runs on real sockets, with a store on disk, metrics, an audit log and a rate; what is counted is what the
thread of its loop does. Its clock stands still during a request, and goes on between two. So the counts are the same
on every machine, but for a turn more or less where the network cuts a message, or a timer of the loop is due: what
several requests have in common is taken. A coroutine that goes on after a wait is not entered again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

import taskgate
from helpers import told
from helpers.counted_calls import counted_calls
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.loop_objects import counted_loop_objects
from helpers.loop_pace import paced
from helpers.made_functions import made_functions
from helpers.manual_clock import ManualClock
from helpers.server import Hold, PacedProgress, ScriptedServer, result
from helpers.waiting import bounded, eventually
from taskgate.telemetry.events import TaskFinished

pytestmark = pytest.mark.alone
PACKAGE = Path(taskgate.__file__).parent
FEWEST, MOST = 5, 60
"""Requests that are counted: no more than the fewest where these stay within the budget."""
BETWEEN = timedelta(seconds=10)
"""From one request to the next: longer than hosts are advised to wait between two polls."""
QUIET_TURNS = 20
"""Turns of the loop after which whatever an answer leaves to do has been done."""
ROOMY = {"name": "calls", "scope": "context", "methods": ["*"], "rate": "1000/s", "burst": 1000}
REPORT = {"name": "report", "inputSchema": {"type": "object"}}
TASKS = {"upgrade": [{"tool": "report", "mode": "always"}]}
REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
DONE: dict[str, Any] = {"content": []}


class Cost(NamedTuple):
    """What is entered, and what is made of the loop."""

    modules: int
    calls: int
    """Functions of the package."""
    libraries: int
    """Functions of libraries, and generated ones such as constructors of dataclasses."""
    tasks: int
    futures: int
    timers: int


BUDGETS: Mapping[tuple[str, str, str], Cost] = {
    ("plain_call", "legacy", "legacy"): Cost(33, 101, 35, 0, 1, 0),
    # Each kept connection is looked at before it is used, as some servers close it after each answer: one call.
    ("plain_call", "legacy", "modern"): Cost(37, 108, 39, 0, 1, 0),
    ("plain_call", "modern", "legacy"): Cost(35, 110, 37, 0, 1, 0),
    ("plain_call", "modern", "modern"): Cost(37, 112, 42, 0, 1, 0),
    # A new connection to a server is probed while it is silent: one call.
    ("first_call", "legacy", "legacy"): Cost(37, 132, 177, 2, 3, 0),
    ("first_call", "legacy", "modern"): Cost(41, 139, 180, 2, 3, 0),
    ("first_call", "modern", "legacy"): Cost(39, 142, 178, 2, 3, 0),
    ("first_call", "modern", "modern"): Cost(41, 144, 183, 2, 3, 0),
    # Drafts of records take two calls more, and 20,000 instructions less. The end of a task is written as any change.
    # One frame of libraries is a comparison: an earlier test may have left an equal key in a cache of the process.
    # With a legacy server, two calls look whether its GET stream has unread progress of the call.
    # The reference of a task is made on its way, not when its lines are written: four calls.
    # The first time of a second takes a call more, each later one 17,000 instructions less.
    ("task", "legacy", "legacy"): Cost(55, 222, 93, 1, 3, 0),
    ("task", "legacy", "modern"): Cost(59, 220, 98, 1, 3, 0),
    ("task", "modern", "legacy"): Cost(58, 252, 98, 1, 3, 0),
    ("task", "modern", "modern"): Cost(60, 251, 103, 1, 3, 0),
    ("get_task", "legacy", "legacy"): Cost(23, 44, 12, 0, 0, 0),
    ("get_task", "legacy", "modern"): Cost(23, 44, 12, 0, 0, 0),
    ("get_task", "modern", "legacy"): Cost(23, 48, 13, 0, 0, 0),
    ("get_task", "modern", "modern"): Cost(23, 48, 13, 0, 0, 0),
    ("get_ended_task", "legacy", "legacy"): Cost(23, 43, 12, 0, 0, 0),
    ("get_ended_task", "legacy", "modern"): Cost(23, 43, 12, 0, 0, 0),
    # A time is put together: whole texts are not kept, as most are asked for once.
    ("get_ended_task", "modern", "legacy"): Cost(30, 76, 25, 0, 0, 0),
    ("get_ended_task", "modern", "modern"): Cost(30, 77, 25, 0, 0, 0),
    # It is handled where it arrives, in a module more, and wakes no task.
    ("progress", "legacy", "legacy"): Cost(14, 21, 7, 0, 0, 0),
    ("progress", "legacy", "modern"): Cost(14, 21, 7, 0, 0, 0),
    ("progress", "modern", "legacy"): Cost(14, 24, 7, 0, 0, 0),
    ("progress", "modern", "modern"): Cost(14, 24, 7, 0, 0, 0),
}
"""By what is asked, the era of the host, and that of the server.

The first call of a connection has four of libraries to spare, which Python 3.12 takes to accept one.
"""


@dataclass(frozen=True, slots=True)
class Way:
    """The functions that one request entered, and what it made: of the loop, and of values and functions."""

    entered: Counter[str]
    libraries: Counter[str]
    made: Counter[str]
    values: Counter[str]

    @property
    def cost(self) -> Cost:
        """Its cost."""
        modules = {place.split(":")[0] for place in self.entered}
        objects = (self.made[kind] for kind in ("task", "future", "timer"))
        return Cost(len(modules), self.entered.total(), self.libraries.total(), *objects)

    def __and__(self, other: "Way") -> "Way":
        """What two requests have in common: of each function, the fewer calls."""
        return Way(
            self.entered & other.entered,
            self.libraries & other.libraries,
            self.made & other.made,
            self.values & other.values,
        )

    def __str__(self) -> str:
        return "\n".join(
            f"{times:4} {place}"
            for entered in (self.entered, self.libraries)
            for place, times in sorted(entered.items())
        )


@dataclass(frozen=True, slots=True)
class Scene:
    """A host of one era and a server of one era, with a gateway between them."""

    clock: ManualClock
    gateway: Gateway
    host: Any
    server: ScriptedServer
    suits: Callable[[Way], object]
    """Whether a way is short enough, so that no more requests are made."""


@asynccontextmanager
async def between(host_era: str, server_era: str, folder: Path, suits: Callable[[Way], object]) -> AsyncIterator[Scene]:
    """A gateway between a host and a server of those eras."""
    async with ScriptedServer(server_era) as server:
        server.tools = [*server.tools, REPORT]
        server.script["report"] = result(DONE)
        reports = {"url": server.url, "path": "/reports/mcp", "protocol_version": REVISIONS[server_era]}
        limits = {"rate": [ROOMY]}
        config = configuration({}, folder=folder, upstreams={"reports": reports}, tasks=TASKS, limits=limits)
        clock = ManualClock()
        # So reports of a task on a slow disk are read when the metrics are, between two, and not by a timer.
        with paced(0.001):
            async with serve(config, Environment(clock=clock), data_directory=folder) as gateway:
                host = gateway.modern() if host_era == "modern" else await gateway.greeted()
                yield Scene(clock, gateway, host, server, suits)


async def shortest(scene: Scene, ask: Callable[[], Awaitable[object]]) -> Way:
    """What several requests have in common, each followed to its end."""
    way = await way_of(scene, ask)
    async with bounded(50):
        for number in range(1, MOST):
            if number >= FEWEST and scene.suits(way):
                break
            way &= await way_of(scene, ask)
    return way


async def way_of(scene: Scene, ask: Callable[[], Awaitable[object]]) -> Way:
    """The way of one request."""
    scene.clock.advance(BETWEEN)
    # What the request before left to the audit log is no part of this one.
    await scene.gateway.shows("taskgate_audit_queue_depth", 0)
    with (
        counted_calls() as calls,
        counted_loop_objects(PACKAGE) as made,
        made_functions(PACKAGE) as functions,
    ):
        await ask()
        for _ in range(QUIET_TURNS):
            await asyncio.sleep(0)
    values = calls.made_values(taskgate.__name__) + functions
    return Way(calls.within(PACKAGE), calls.of_libraries(PACKAGE), made, values)


# --- what is asked ----------------------------------------------------------------------------------------------------


async def plain_call(scene: Scene) -> Way:
    """A `tools/call` that is passed on and answered at once, by a connection that is kept."""
    return await shortest(scene, lambda: scene.host.call("echo", {"text": "hello"}))


async def first_call(scene: Scene) -> Way:
    """The same as the only request of a connection, which is opened and closed with it."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        host = copy(scene.host)
        host.http = http
        return await shortest(scene, lambda: host.call("echo", {"text": "hello"}))


async def task(scene: Scene) -> Way:
    """A `tools/call` that becomes a task, and what it costs until that has ended."""

    async def run() -> None:
        ended = len(told.now().of(TaskFinished))
        await scene.host.start("report")
        await eventually(lambda: len(told.now().of(TaskFinished)) > ended)

    return await shortest(scene, run)


async def get_task(scene: Scene) -> Way:
    """A `tasks/get` of a task that runs."""
    scene.server.script["report"] = hold = Hold()
    id = (await scene.host.start("report"))["taskId"]
    async with bounded():
        await hold.begun.wait()
    try:
        return await shortest(scene, lambda: scene.host.ask("tasks/get", {"taskId": id}))
    finally:
        hold.release(DONE)


async def get_ended_task(scene: Scene) -> Way:
    """A `tasks/get` of a task that has ended."""
    id = (await scene.host.start("report"))["taskId"]
    await eventually(lambda: told.now().of(TaskFinished))
    return await shortest(scene, lambda: scene.host.ask("tasks/get", {"taskId": id}))


async def progress(scene: Scene) -> Way:
    """One notification of a call's event stream, from the server to the host."""
    reply = scene.server.script["echo"] = PacedProgress(DONE)
    meta = {"progressToken": "p"}
    params = {"name": "echo", "arguments": {}}
    is_legacy = scene.host.era == "legacy"
    asking = (
        scene.host.asking("tools/call", params | {"_meta": meta})
        if is_legacy
        else scene.host.asking("tools/call", params, meta=meta)
    )
    async with asking as stream:
        heard = 0

        async def one() -> None:
            nonlocal heard
            heard += 1
            reply.next()
            await stream.until("notifications/progress", times=heard)

        way = await shortest(scene, one)
        reply.end()
        await stream.result()
        return way


KINDS = {each.__name__: each for each in (plain_call, first_call, task, get_task, get_ended_task, progress)}


@pytest.mark.parametrize("server_era", ["legacy", "modern"])
@pytest.mark.parametrize("host_era", ["legacy", "modern"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_stays_within_its_budget(kind: str, host_era: str, server_era: str, tmp_path: Path) -> None:
    budget = BUDGETS[kind, host_era, server_era]

    def over(way: Way) -> list[str]:
        return [name for name, spent, most in zip(Cost._fields, way.cost, budget, strict=True) if spent > most]

    async with between(host_era, server_era, tmp_path, suits=lambda way: not over(way)) as scene:
        way = await KINDS[kind](scene)
    assert not over(way), f"more {', '.join(over(way))} than {budget}: {way.cost}\n{way}"


# --- what a request makes ---------------------------------------------------------------------------------------------
#
# Named tuples and frozen dataclasses cost several times a class with slots: their constructors are generated Python,
# which enters a frame, and a frozen one sets each field by a call. What is made once and remembered may be frozen.
# A closure is a function that is made each time: a method, or a class with slots, does the same.

EVENT = "an event on the ring, which is read after the request"
PARSED = "a message as it was parsed, which readers of both sides match on"
STORED = "a part of a record, which the store gives out with its result"
EXCEPTIONS = {
    "CallResponse": PARSED,
    "CallSucceeded": "what happened to a task, from which the machine of states makes the next record",
    "EncodedRequest": "what the encoder gives the transport: two values of one call",
    "Lease": STORED,
    "Outgoing": "what the transport sends, and sends again on another connection",
    "RequestDraft": "what a request to a modern server is made of; rounds change one field",
    "RequestHeaders": "the headers of a modern request, which are compared as a whole",
    "Succeeded": STORED,
    "TaskRetrieved": EVENT,
    "ToolCall": STORED,
    "UpstreamAnswered": EVENT,
}
"""The classes of which a usual request makes one, with the reason. One that is no longer made is struck out."""


@pytest.mark.parametrize("server_era", ["legacy", "modern"])
@pytest.mark.parametrize("host_era", ["legacy", "modern"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_usual_request_makes_no_frozen_value_and_no_closure(
    kind: str, host_era: str, server_era: str, tmp_path: Path
) -> None:
    def unusual(way: Way) -> list[str]:
        return [f"{times:4} {each}" for each, times in way.values.items() if each.partition(" ")[0] not in EXCEPTIONS]

    async with between(host_era, server_era, tmp_path, suits=lambda way: not unusual(way)) as scene:
        way = await KINDS[kind](scene)
    assert not unusual(way), "\n".join(["made by a usual request:", *unusual(way)])
