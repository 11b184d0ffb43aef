"""What tests share of calls that one process made, and another goes on with."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.server import LastingCall, LastingTool, ScriptedServer
from helpers.upstream_calls import task_call
from helpers.waiting import bounded, eventually
from taskgate.errors import UpstreamFailed
from taskgate.protocol.server_messages import Question
from taskgate.upstream.calls import Resumed, ResumePoint
from unit.upstream.conftest import EVERYTHING, Caller, new_caller

DONE = {"content": ["right"]}
FORM = Question("elicitation/create", None)
LONG = 300.0
"""Seconds in which a stream is taken up as often as it ever is."""


@pytest.fixture
def tool(server: ScriptedServer) -> LastingTool:
    server.script["long"] = tool = LastingTool()
    return tool


class Before:
    """A process that made a call, heard of it, and was gone without a word; it is left as it is."""

    def __init__(self, caller: Caller, call: LastingCall, ear: RecordingListener, calling: asyncio.Task[Any]) -> None:
        self.caller, self.call, self.ear, self.calling = caller, call, ear, calling

    @property
    def resume_point(self) -> ResumePoint:
        """Where it was."""
        return self.ear.resume_points[-1]

    async def placed(self, count: int) -> None:
        """Wait until it was told so many times where the call is."""
        await eventually(lambda: len(self.ear.resume_points) >= count)


@pytest.fixture
async def before(server: ScriptedServer, tool: LastingTool) -> AsyncIterator[Before]:
    caller, ear = new_caller(server.url, EVERYTHING), RecordingListener()
    calling = asyncio.create_task(caller.run("long", ear=ear))
    before = Before(caller, await tool.called(), ear, calling)
    await before.placed(1)
    yield before
    ear.leaves = True
    calling.cancel()
    await asyncio.wait((calling,))
    await caller.close()


@pytest.fixture
async def after(server: ScriptedServer, before: Before) -> AsyncIterator[Caller]:
    """The process that goes on."""
    caller = new_caller(server.url, EVERYTHING, call=timedelta(seconds=LONG))
    yield caller
    await caller.close()


def going_on(caller: Caller, resumed: Resumed, ear: RecordingListener | None = None) -> asyncio.Task[Any]:
    """The call, as the process that took it over goes on with it."""
    listener = ear or caller.heard.of_calls
    run = caller.session.call(
        task_call("long", "{}", timedelta(seconds=LONG), resumes=resumed),
        listener,
    )
    return asyncio.create_task(run)


async def gone(caller: Caller, resume_point: ResumePoint) -> UpstreamFailed:
    async with bounded(LONG):
        with pytest.raises(UpstreamFailed) as failed:
            await going_on(caller, Resumed(resume_point, {}))
    return failed.value
