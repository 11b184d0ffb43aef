"""What tests of servers of the modern era share that make tasks of calls themselves: such a server, and gateways."""

from collections.abc import AsyncIterator

import pytest

from helpers.server import ScriptedServer
from helpers.server.modern_tasks import ModernTasks, TaskTool
from helpers.whole_gateway import WholeGateway
from interaction.bridging import ALWAYS, before

ASKABLE = {"elicitation": {"form": {}}, "sampling": {}}
OFTEN = {"early_poll": {"reject_above": 1000}}


@pytest.fixture
def natives(modern: ScriptedServer) -> ModernTasks:
    """The server's own tasks, which are looked at as often as it wants."""
    return ModernTasks(modern)


@pytest.fixture
def report(natives: ModernTasks) -> TaskTool:
    """A tool whose calls become tasks of the server."""
    return natives.tool("report")


@pytest.fixture
async def gateway(modern: ScriptedServer, report: TaskTool) -> AsyncIterator[WholeGateway]:
    """A gateway that lets calls be calls for an hour."""
    async with before(modern, tasks={"inline_grace": "1h", **OFTEN}) as gateway:
        yield gateway


@pytest.fixture
async def promoting(modern: ScriptedServer, report: TaskTool) -> AsyncIterator[WholeGateway]:
    """A gateway that makes a task of every call of a host that lets it."""
    async with before(modern, tasks=ALWAYS | OFTEN) as gateway:
        yield gateway
