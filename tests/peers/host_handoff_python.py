"""A host on the Python SDK before version 2, which speaks the initialize era and uses no tasks.

`python host_handoff_python.py PLAN` does what handoff_words.py says, on releases from 1.12 on.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from handoff_words import Ears, Told, run
from mcp import ClientSession
from mcp import types as mcp_types
from mcp.client.streamable_http import streamablehttp_client


class PythonHost:
    def __init__(self, session: ClientSession, ears: Ears) -> None:
        self._session = session
        self._ears = ears

    async def tools(self) -> dict[str, bool]:
        return {tool.name: tool.outputSchema is not None for tool in (await self._session.list_tools()).tools}

    async def call(self, tool: str, given: Told) -> Told:
        result = await self._session.call_tool(tool, given, progress_callback=self._ears.hear)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def connect(url: str, patience: float, ears: Ears) -> AsyncIterator[PythonHost]:
    async def elicit(_: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content=dict(ears.answer(params.message)))

    async with (
        streamablehttp_client(url) as (incoming, outgoing, _),
        ClientSession(incoming, outgoing, timedelta(seconds=patience), elicitation_callback=elicit) as session,
    ):
        await session.initialize()
        yield PythonHost(session, ears)


if __name__ == "__main__":
    run(connect)
