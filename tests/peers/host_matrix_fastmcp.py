"""A host on FastMCP 3, which speaks the initialize era, for the table of hosts and servers.

`python host_matrix_fastmcp.py URL …` does what matrix_columns.py says.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from matrix_columns import Outcome, run, text_of
from mcp import McpError


class FastMCPHost:
    def __init__(self, client: Client[Any]) -> None:
        self._client = client

    async def tools(self) -> Sequence[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(self, tool: str, given: dict[str, Any]) -> Outcome:
        result = await self._client.call_tool_mcp(tool, given)
        return text_of(result.content), bool(result.isError)

    async def as_task(self, tool: str, given: dict[str, Any]) -> Outcome:
        task = await self._client.call_tool(tool, given, task=True, raise_on_error=False)
        assert not task.returned_immediately, "it was no task"
        result = await task.result()
        return text_of(result.content), bool(result.is_error)

    async def asked(self, tool: str) -> Outcome:
        return await self.as_task(tool, {})

    async def progress(self, tool: str) -> Sequence[float]:
        seen: list[float] = []

        async def note(progress: float, _: float | None, __: str | None) -> None:
            seen.append(progress)

        await self._client.call_tool_mcp(tool, {}, progress_handler=note)
        await self._client.ping()  # what is still on its way on another stream has come by then
        return seen

    async def error(self, tool: str) -> int:
        try:
            await self._client.call_tool_mcp(tool, {})
        except McpError as error:
            return error.error.code
        return 0

    async def cancel(self, tool: str, given: dict[str, Any]) -> None:
        task = await self._client.call_tool(tool, given, task=True)
        await asyncio.sleep(0.5)
        await task.cancel()

    async def read(self, uri: str) -> str:
        return str(getattr((await self._client.read_resource(uri))[0], "text", ""))

    async def prompt(self, name: str) -> str:
        return str(getattr((await self._client.get_prompt(name)).messages[0].content, "text", ""))


async def answer(_: str, __: Any, ___: Any, ____: Any) -> ElicitResult[Any]:
    return ElicitResult(action="accept", content={"word": "yes"})


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[FastMCPHost]:
    async with Client(url, elicitation_handler=answer) as client:
        yield FastMCPHost(client)


if __name__ == "__main__":
    run("fastmcp", connect)
