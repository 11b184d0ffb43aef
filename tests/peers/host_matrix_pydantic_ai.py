"""The MCP toolset of Pydantic AI with tasks, without an agent, for the table of hosts and servers.

`python host_matrix_pydantic_ai.py URL …` does what matrix_columns.py says.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastmcp.client.elicitation import ElicitResult
from matrix_columns import Outcome, run
from mcp import MCPError
from pydantic_ai import ModelRetry
from pydantic_ai.mcp import MCPToolset


class PydanticAIHost:
    def __init__(self, toolset: MCPToolset[Any], seen: list[float]) -> None:
        self._toolset = toolset
        self._seen = seen

    async def tools(self) -> Sequence[str]:
        return [tool.name for tool in await self._toolset.list_tools()]

    async def call(self, tool: str, given: dict[str, Any], *, use_task: bool = False) -> Outcome:
        try:
            return str(await self._toolset.direct_call_tool(tool, given, use_task=use_task)), False
        except ModelRetry as refused:
            if isinstance(refused.__cause__, MCPError):
                raise refused.__cause__ from None
            return refused.message, True

    async def as_task(self, tool: str, given: dict[str, Any]) -> Outcome:
        return await self.call(tool, given, use_task=True)

    async def asked(self, tool: str) -> Outcome:
        return await self.call(tool, {})

    async def progress(self, tool: str) -> Sequence[float]:
        await self.call(tool, {})
        return self._seen

    async def error(self, tool: str) -> int:
        try:
            await self.call(tool, {})
        except MCPError as error:
            return error.code
        return 0

    async def cancel(self, tool: str, given: dict[str, Any]) -> None:
        calling = asyncio.create_task(self.call(tool, given))
        await asyncio.sleep(1)
        calling.cancel()

    async def read(self, uri: str) -> str:
        return str(await self._toolset.read_resource(uri))

    async def prompt(self, name: str) -> str:
        return str(getattr((await self._toolset.get_prompt(name)).messages[0].content, "content", ""))


async def answer(_: str, __: Any, ___: Any, ____: Any) -> ElicitResult[Any]:
    return ElicitResult(action="accept", content={"word": "yes"})


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[PydanticAIHost]:
    seen: list[float] = []

    async def note(progress: float, _: float | None, __: str | None) -> None:
        seen.append(progress)

    async with MCPToolset(url, elicitation_handler=answer, progress_handler=note) as toolset:
        yield PydanticAIHost(toolset, seen)


if __name__ == "__main__":
    run("pydantic-ai", connect)
