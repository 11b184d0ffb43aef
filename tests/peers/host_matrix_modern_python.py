"""A host on the Python SDK 2.3, which speaks the stateless era, for the table of hosts and servers.

`python host_matrix_modern_python.py URL …` does what matrix_columns.py says. The SDK has no words for tasks.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from matrix_columns import NotHad, Outcome, run, text_of
from mcp import Client, MCPError

REVISION = "2026-07-28"
NO_TASKS = "the host makes no tasks"


class ModernPythonHost:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def tools(self) -> Sequence[str]:
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def call(self, tool: str, given: dict[str, Any]) -> Outcome:
        result = await self._client.call_tool(tool, given)
        return text_of(result.content), bool(result.is_error)

    async def as_task(self, _: str, __: dict[str, Any]) -> Outcome:
        raise NotHad(NO_TASKS)

    async def asked(self, tool: str) -> Outcome:
        return await self.call(tool, {})

    async def progress(self, tool: str) -> Sequence[float]:
        seen: list[float] = []

        async def note(progress: float, _: float | None, __: str | None) -> None:
            seen.append(progress)

        await self._client.call_tool(tool, {}, progress_callback=note)
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
        return str(getattr((await self._client.read_resource(uri)).contents[0], "text", ""))

    async def prompt(self, name: str) -> str:
        return str(getattr((await self._client.get_prompt(name)).messages[0].content, "text", ""))


async def answer(_: Any, __: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"word": "yes"})


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[ModernPythonHost]:
    async with Client(url, elicitation_callback=answer) as client:
        assert client.protocol_version == REVISION, client.protocol_version
        yield ModernPythonHost(client)


if __name__ == "__main__":
    run("modern-python", connect)
