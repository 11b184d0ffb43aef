"""The MCP tool of Microsoft's Agent Framework, without an agent, for the table of hosts and servers.

`python host_matrix_agent_framework.py [--legacy] URL …` does what matrix_columns.py says. With `--legacy` it is given a
client with a session of that era, and else makes its own.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from agent_framework import MCPStreamableHTTPTool
from agent_framework.exceptions import ToolExecutionException
from matrix_columns import NotHad, Outcome, run
from mcp import Client, MCPError

LEGACY = "--legacy" in sys.argv
SKIPPED = "the host skips tools that may be tasks"
NO_TASKS = "the host makes no tasks"
NO_WAY = "the host has no API for it"


class AgentFrameworkHost:
    def __init__(self, tool: MCPStreamableHTTPTool) -> None:
        self._tool = tool

    async def tools(self) -> Sequence[str]:
        names = [each.name for each in self._tool.functions]
        if "echo" not in names:
            raise NotHad(SKIPPED)
        return names

    async def call(self, tool: str, given: dict[str, Any]) -> Outcome:
        await self.tools()
        try:
            came = await self._tool.call_tool(tool, **given)
        except ToolExecutionException as error:
            if isinstance(error.__cause__, MCPError):
                raise error.__cause__ from None
            return str(error), True
        text = came if isinstance(came, str) else " ".join(each.text or "" for each in came)
        # Where a result has structured content too, that is what a model is shown.
        return (json.loads(text)["result"] if text.startswith("{") else text), False

    async def as_task(self, _: str, __: dict[str, Any]) -> Outcome:
        await self.tools()
        raise NotHad(NO_TASKS)

    async def asked(self, _: str) -> Outcome:
        raise NotHad(NO_WAY)

    async def progress(self, _: str) -> Sequence[float]:
        await self.tools()
        raise NotHad(NO_WAY)

    async def error(self, tool: str) -> int:
        try:
            await self.call(tool, {})
        except MCPError as error:
            return error.code
        return 0

    async def cancel(self, tool: str, given: dict[str, Any]) -> None:
        calling = asyncio.create_task(self.call(tool, given))
        await asyncio.sleep(0.5)
        calling.cancel()

    async def read(self, _: str) -> str:
        raise NotHad(NO_WAY)

    async def prompt(self, name: str) -> str:
        return await self._tool.get_prompt(name)


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[AgentFrameworkHost]:
    async with AsyncExitStack() as connected:
        given: dict[str, Any] = {"url": url}
        if LEGACY:
            given = {"mcp_client": await connected.enter_async_context(Client(url, mode="legacy"))}
        tool = await connected.enter_async_context(MCPStreamableHTTPTool("matrix", **given))
        yield AgentFrameworkHost(tool)


if __name__ == "__main__":
    run(f"agent-framework {LEGACY}", connect)
