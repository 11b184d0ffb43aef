"""What tests of questions share: what may be asked, what may be answered, and hosts that can be."""

import asyncio
from typing import Any

from helpers.mcp_host import McpHost
from helpers.waiting import bounded
from helpers.whole_gateway import WholeGateway

DONE = {"content": [{"type": "text", "text": "done"}]}
RELATED = "io.modelcontextprotocol/related-task"
ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
GIVEN_UP = "notifications/cancelled"
CAPABLE = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}}
ACCEPTED = {"action": "accept", "content": {"it": "this"}}
URL = {"mode": "url", "message": "m", "url": "https://example.org/x", "elicitationId": "e-1"}
ASKED = {"messages": [{"role": "user", "content": {"type": "text", "text": "Why?"}}], "maxTokens": 10}
SAID = {"role": "assistant", "content": {"type": "text", "text": "So."}, "model": "m"}


async def capable(gateway: WholeGateway, revision: str = "2025-11-25", **changes: Any) -> McpHost:
    """A host that can be asked everything, but for what is changed."""
    host = gateway.host()
    await host.initialize(revision, capabilities={**CAPABLE, **changes})
    return host


async def status(host: McpHost, task: str, wanted: str) -> dict[str, Any]:
    """The task, once it is in that state."""
    async with bounded():
        while (found := await host.task(task))["status"] != wanted:
            await asyncio.sleep(0.005)
    return found
