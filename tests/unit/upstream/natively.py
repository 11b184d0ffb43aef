"""Calls of tools that a scripted server makes tasks of, and what came of them."""

import asyncio
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.waiting import PATIENCE, bounded
from taskgate.errors import UpstreamFailed
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import read_progress
from unit.upstream.conftest import Caller

DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


def running(caller: Caller, tool: str = "research", **more: Any) -> "asyncio.Task[Any]":
    """A call as a task makes it."""
    return asyncio.create_task(caller.run(tool, **more))


def relayed(caller: Caller, tool: str = "research", **more: Any) -> "asyncio.Task[Response]":
    """A call as a host makes it."""
    return asyncio.create_task(caller.call(tool, **more))


async def end_of(call: "asyncio.Task[Any]") -> Any:
    """What it came to."""
    async with bounded():
        return await call


async def failure_of(call: "asyncio.Task[Any]", within: float = PATIENCE) -> UpstreamFailed:
    """What it failed with."""
    async with bounded(within):
        with pytest.raises(UpstreamFailed) as failure:
            await call
    return failure.value


def words_of(ear: RecordingListener) -> list[str]:
    """What was said of how far the call is."""
    told = [read_progress(on_notification) for on_notification in ear.notifications]
    return [progress.status_message for progress in told if progress is not None]
