"""Calls that wait for their host: it is sent for answers, and comes back with them."""

import asyncio
from typing import Any

from helpers.host.answers import Answer
from helpers.host.host import Host
from helpers.server import TalkingTool
from helpers.waiting import bounded
from interaction.questions import ACCEPTED, DONE

CAPABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


async def sent_for(host: Host, **more: Any) -> dict[str, Any]:
    """What a call waits for."""
    async with bounded():
        result = (await host.call("report", **more)).result
    assert result["resultType"] == "input_required"
    return result


async def back(host: Host, result: dict[str, Any], answers: dict[str, Any], **more: Any) -> Answer:
    """The call again with answers to its result."""
    params = {"inputResponses": answers, "requestState": result["requestState"]}
    async with bounded():
        return await host.call("report", **params, **more)


async def through(host: Host, result: dict[str, Any], tool: TalkingTool, id: str) -> dict[str, Any]:
    """What the server is told, to whose question the host brings an answer; its call is over then."""
    coming = asyncio.create_task(back(host, result, everything(result)))
    told = await tool.told(id)
    await tool.finish(DONE)
    assert (await coming).result["content"] == DONE["content"]
    return told


def everything(result: dict[str, Any]) -> dict[str, Any]:
    """The same answer to all that is asked."""
    return dict.fromkeys(result["inputRequests"], ACCEPTED)
