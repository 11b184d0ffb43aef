"""A host on FastMCP 4.2 without its tasks extension, for the table of hosts and servers.

`python host_matrix_fastmcp_4_2.py [--legacy] URL …` does what matrix_columns.py says. It speaks the modern era where
taskgate has it, or with `--legacy` the other.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from matrix_columns import NotHad, Outcome, run, text_of
from mcp import MCPError

NO_TASKS = "the host makes no tasks"
MODE: Any = "legacy" if "--legacy" in sys.argv else "auto"


class FastMCPHost:
    def __init__(self, client: Client[Any]) -> None:
        self._client = client

    async def tools(self) -> Sequence[str]:
        return [tool.name for tool in await self._client.list_tools()]

    async def call(self, tool: str, given: dict[str, Any]) -> Outcome:
        result = await self._client.call_tool(tool, given, raise_on_error=False)
        return text_of(result.content), bool(result.is_error)

    async def as_task(self, _: str, __: dict[str, Any]) -> Outcome:
        raise NotHad(NO_TASKS)

    async def asked(self, tool: str) -> Outcome:
        return await self.call(tool, {})

    async def progress(self, tool: str) -> Sequence[float]:
        seen: list[float] = []

        async def note(progress: float, _: float | None, __: str | None) -> None:
            seen.append(progress)

        await self._client.call_tool(tool, {}, progress_handler=note)
        if MODE == "legacy":
            await self._client.ping()  # what is still on its way on another stream has come by then
        return seen

    async def error(self, tool: str) -> int:
        try:
            await self._client.call_tool(tool, {})
        except MCPError as error:
            return error.code
        return 0

    async def cancel(self, tool: str, given: dict[str, Any]) -> None:
        calling = asyncio.create_task(self.call(tool, given))
        await asyncio.sleep(0.5)
        calling.cancel()

    async def read(self, uri: str) -> str:
        return str(getattr((await self._client.read_resource(uri))[0], "text", ""))

    async def prompt(self, name: str) -> str:
        return str(getattr((await self._client.get_prompt(name)).messages[0].content, "text", ""))


async def answer(_: str, __: Any, ___: Any, ____: Any) -> ElicitResult[Any]:
    return ElicitResult(action="accept", content={"word": "yes"})


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[FastMCPHost]:
    async with Client(url, elicitation_handler=answer, mode=MODE) as client:
        yield FastMCPHost(client)


if __name__ == "__main__":
    run(f"fastmcp 4.2 {MODE}", connect)
