"""Servers of either era that make tasks of calls, gateways before them, and what hosts see of such tasks."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from helpers.gateway.gateway import Gateway
from helpers.host.answers import Stream
from helpers.host.host import Host
from helpers.server import ScriptedServer
from helpers.server.legacy_tasks import LegacyTasks
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.waiting import bounded
from interaction.bridges import ALWAYS, before
from interaction.questions import ELICIT

PROGRESS = "notifications/progress"
FORM = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"it": {"type": "string"}}}}
ASKED = {"jsonrpc": "2.0", "id": "q-1", "method": ELICIT, "params": FORM}

ASKABLE = {"elicitation": {"form": {}}, "sampling": {}}
OFTEN = {"early_poll": {"reject_above": 1000}}


@pytest.fixture
def tasks(server: ScriptedServer) -> LegacyTasks:
    """The tasks that the server makes itself: of `research` of all, of `index` where it is asked to."""
    return LegacyTasks(server, required=("research",), optional=("index",))


@pytest.fixture
def natives(modern: ScriptedServer) -> ModernTasks:
    """The server's own tasks, which are looked at as often as it wants."""
    return ModernTasks(modern)


@pytest.fixture
def report(natives: ModernTasks) -> TaskTool:
    """A tool whose calls become tasks of the server."""
    return natives.tool("report")


@pytest.fixture
async def gateway(modern: ScriptedServer, report: TaskTool) -> AsyncIterator[Gateway]:
    """A gateway that lets calls be calls for an hour."""
    async with before(modern, tasks={"inline_grace": "1h", **OFTEN}) as gateway:
        yield gateway


@pytest.fixture
async def promoting(modern: ScriptedServer, report: TaskTool) -> AsyncIterator[Gateway]:
    """A gateway that makes a task of every call of a host that lets it."""
    async with before(modern, tasks=ALWAYS | OFTEN) as gateway:
        yield gateway


def told_last(stream: Stream) -> str | None:
    """What the newest progress on a stream says, if there is any."""
    told = stream.of(PROGRESS)
    return str(told[-1]["params"]["message"]) if told else None


async def said(host: Host, task: str, message: str) -> None:
    """Returns once a task says that of itself."""
    async with bounded():
        while (await host.task(task)).get("statusMessage") != message:
            await asyncio.sleep(0.005)
