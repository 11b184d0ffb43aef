"""What tests of servers that make tasks of calls themselves share: such a server, and what hosts hear of its tasks."""

import asyncio

import pytest

from helpers.mcp_host import McpHost, Stream
from helpers.server import ScriptedServer
from helpers.server.legacy_tasks import LegacyTasks
from helpers.waiting import bounded
from interaction.questioning import ELICIT

PROGRESS = "notifications/progress"
FORM = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"it": {"type": "string"}}}}
ASKED = {"jsonrpc": "2.0", "id": "q-1", "method": ELICIT, "params": FORM}


@pytest.fixture
def tasks(server: ScriptedServer) -> LegacyTasks:
    """The tasks that the server makes itself: of `research` of all, of `index` where it is asked to."""
    return LegacyTasks(server, required=("research",), optional=("index",))


def told_last(stream: Stream) -> str | None:
    """What the newest progress on a stream says, if there is any."""
    told = stream.of(PROGRESS)
    return str(told[-1]["params"]["message"]) if told else None


async def said(host: McpHost, task: str, message: str) -> None:
    """Returns once a task says that of itself."""
    async with bounded():
        while (await host.task(task)).get("statusMessage") != message:
            await asyncio.sleep(0.005)
