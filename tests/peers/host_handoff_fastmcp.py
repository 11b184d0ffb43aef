"""A host on FastMCP, 3 or 4, that does not import its tasks.

`python host_handoff_fastmcp.py PLAN` does what handoff_words.py says.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from handoff_words import Ears, Told, run


class FastMCPHost:
    def __init__(self, client: Client[Any], ears: Ears) -> None:
        self._client = client
        self._ears = ears

    async def tools(self) -> dict[str, bool]:
        tools = [tool.model_dump(by_alias=True) for tool in await self._client.list_tools()]
        return {tool["name"]: tool["outputSchema"] is not None for tool in tools}

    async def call(self, tool: str, given: Told) -> Told:
        result = await self._client.call_tool_mcp(tool, given, progress_handler=self._ears.hear)
        told: Told = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        return told


@asynccontextmanager
async def connect(url: str, patience: float, ears: Ears) -> AsyncIterator[FastMCPHost]:
    async def elicit(message: str, _: Any, __: Any, ___: Any) -> ElicitResult[Any]:
        return ElicitResult(action="accept", content=ears.answer(message))

    async with Client(url, timeout=patience, elicitation_handler=elicit) as client:
        yield FastMCPHost(client, ears)


if __name__ == "__main__":
    run(connect)
