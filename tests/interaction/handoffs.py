"""Hosts of both eras that know no tasks, and the words and handles that they get in place of late results."""

import asyncio
import re
from typing import Any

from helpers.gateway.gateway import Gateway
from helpers.host.answers import Answer
from helpers.host.host import Era, Host
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded

MODES = ("auto", "always")
"""Those of rules that hand off: a call is stored when it is late, or before it is sent."""
WAIT, CANCEL, LIST = "taskgate_wait", "taskgate_cancel", "taskgate_tasks"
YEAR = {"year": 2026}
_HANDLE = re.compile(r'\{"handle": "([A-Za-z0-9_-]{32})"\}')


def handoff(after: str = "20ms", *, ceiling: str = "10s", **more: Any) -> dict[str, Any]:
    """The section `tasks` with one rule that hands off the calls of all tools."""
    rule = {"tool": "*", "mode": "auto", "handoff": {"after": after}, **more}
    return {"upgrade": [rule], "handoff": {"ceiling": ceiling}}


async def taskless(gateway: Gateway, era: Era, token: str | None = None, **capabilities: Any) -> Host:
    """A host of that era that knows no tasks."""
    return await gateway.greeted(token=token, era=era, tasks=False, capabilities=capabilities)


def text_of(answer: Answer) -> str:
    """The one text of an answer that is no error for a model."""
    assert answer.result.get("isError", False) is False, answer.result
    (block,) = answer.result["content"]
    text: str = block["text"]
    return text


def handle_of(answer: Answer) -> str:
    """The handle in the words for a model."""
    found = _HANDLE.search(text_of(answer))
    assert found is not None, answer.result
    return found[1]


async def waited(host: Host, handle: str, **more: Any) -> Answer:
    """The answer of the tool that waits."""
    return await host.call(WAIT, {"handle": handle}, **more)


def calls(server: ScriptedServer) -> int:
    """How many calls the server has heard."""
    return len(server.heard("tools/call"))


async def cut(host: Host, hold: Hold, arguments: Any = YEAR, **params: Any) -> None:
    """Call `report`, and lose the connection when the call is at its server."""
    lost = asyncio.create_task(host.call("report", arguments, **params))
    async with bounded():
        await hold.begun.wait()
    lost.cancel()
    await asyncio.wait([lost])


async def kept(gateway: Gateway) -> None:
    """Wait until the call whose connection was lost is a task."""
    await gateway.shows("taskgate_tool_calls_total", 1, disposition="handoff")
