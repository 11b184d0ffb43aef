"""What tests of calls that become tasks of their server share."""

import asyncio
import json
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import ScriptedServer
from helpers.server.modern_tasks import ModernTask, ModernTasks, TaskTool
from helpers.waiting import PATIENCE, bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Response
from taskgate.upstream.calls import ServerQuestion
from unit.upstream.houses import Guest

DONE = {"content": [{"type": "text", "text": "done"}]}


class Following:
    """A call of `slow` that became a task, to be looked at in a block; it is cancelled in the end."""

    def __init__(self, guest: Guest, tool: TaskTool, *, ear: RecordingListener | None = None, **more: Any) -> None:
        self.ear = ear or RecordingListener()
        self._guest, self._tool, self._more = guest, tool, more

    async def __aenter__(self) -> "Following":
        self.call = asyncio.create_task(self._guest.run("slow", ear=self.ear, **self._more))
        self.task: ModernTask = await self._tool.made()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.cancel()
        await asyncio.wait((self.call,))

    async def asked(self, count: int = 1) -> list[ServerQuestion]:
        await eventually(lambda: len(self.ear.questions) >= count or self.call.done())
        return self.ear.questions

    async def response(self) -> Response:
        async with bounded():
            return await self.call

    async def result(self) -> Any:
        return json.loads((await self.response()).text)["result"]

    async def failure(self, within: float = PATIENCE) -> UpstreamFailed:
        async with bounded(within):
            with pytest.raises(UpstreamFailed) as failed:
                await self.call
        return failed.value


@pytest.fixture
def natives(server: ScriptedServer) -> ModernTasks:
    """The tasks of the server."""
    return ModernTasks(server)


@pytest.fixture
def slow(natives: ModernTasks) -> TaskTool:
    """A tool whose calls become tasks."""
    return natives.tool("slow")


def words(ear: RecordingListener) -> list[Any]:
    """What was told of how far a call is."""
    return [note.params["message"].value for note in ear.notifications if "message" in note.params]


async def left(guest: Guest, tool: TaskTool, **questions: Any) -> Any:
    """A task that another process has made and left, waiting for answers."""
    async with Following(guest, tool, ear=RecordingListener(leaves=True)) as following:
        if questions:
            following.task.ask(**questions)
            await following.asked(len(questions))
    assert following.task.cancels == 0
    return following.task
