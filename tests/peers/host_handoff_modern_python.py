"""A host on the Python SDK 2.3, which speaks 2026-07-28 and has no words for tasks.

`python host_handoff_modern_python.py [--legacy] PLAN` does what handoff_words.py says; with the option by a handshake.
HOST_TOKEN is the token that it has.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from handoff_words import Ears, Told, run
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


class ModernPythonHost:
    def __init__(self, client: Client, ears: Ears) -> None:
        self._client = client
        self._ears = ears

    async def tools(self) -> dict[str, bool]:
        return {tool.name: tool.output_schema is not None for tool in (await self._client.list_tools()).tools}

    async def call(self, tool: str, given: Told) -> Told:
        result = await self._client.call_tool(tool, given, progress_callback=self._ears.hear)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


@asynccontextmanager
async def connect(url: str, patience: float, ears: Ears) -> AsyncIterator[ModernPythonHost]:
    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=dict(ears.answer(params.message)))

    token, mode = os.environ.get("HOST_TOKEN"), "legacy" if "--legacy" in sys.argv else "auto"
    http = create_mcp_http_client({"Authorization": f"Bearer {token}"}) if token else None
    server = url if http is None else streamable_http_client(url, http_client=http)
    async with Client(server, mode=mode, read_timeout_seconds=patience, elicitation_callback=elicit) as client:
        yield ModernPythonHost(client, ears)


if __name__ == "__main__":
    run(connect)
