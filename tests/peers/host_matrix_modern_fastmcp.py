"""A host on FastMCP 4, which speaks the stateless era, for the table of hosts and servers.

`python host_matrix_modern_fastmcp.py URL …` does what matrix_columns.py says. Whether a call becomes a task is the
server's choice; this host declares that it may.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp_tasks.client import call_tool_task
from matrix_columns import Outcome, run, text_of
from mcp import MCPError


class ModernFastMCPHost:
    def __init__(self, client: Client[Any]) -> None:
        self._client = client

    async def tools(self) -> Sequence[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(self, tool: str, given: dict[str, Any]) -> Outcome:
        result = await self._client.call_tool(tool, given, raise_on_error=False)
        return text_of(result.content), bool(result.is_error)

    async def as_task(self, tool: str, given: dict[str, Any]) -> Outcome:
        task = await call_tool_task(self._client, tool, given, raise_on_error=False)
        result = await task.result()
        return text_of(result.content), bool(result.is_error)

    async def asked(self, tool: str) -> Outcome:
        return await self.call(tool, {})

    async def progress(self, tool: str) -> Sequence[float]:
        seen: list[float] = []

        async def note(progress: float, _: float | None, __: str | None) -> None:
            seen.append(progress)

        await self._client.call_tool(tool, {}, progress_handler=note)
        return seen

    async def error(self, tool: str) -> int:
        try:
            await self._client.call_tool(tool, {})
        except MCPError as error:
            return error.code
        return 0

    async def cancel(self, tool: str, given: dict[str, Any]) -> None:
        task = await call_tool_task(self._client, tool, given)
        await asyncio.sleep(0.2)
        await task.cancel()

    async def read(self, uri: str) -> str:
        contents = await self._client.read_resource(uri)
        return str(getattr(contents[0], "text", ""))

    async def prompt(self, name: str) -> str:
        return str(getattr((await self._client.get_prompt(name)).messages[0].content, "text", ""))


async def answer(_: str, __: Any, ___: Any, ____: Any) -> ElicitResult[Any]:
    return ElicitResult(action="accept", content={"word": "yes"})


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[ModernFastMCPHost]:
    async with Client(url, elicitation_handler=answer) as client:
        yield ModernFastMCPHost(client)


if __name__ == "__main__":
    run("modern-fastmcp", connect)
