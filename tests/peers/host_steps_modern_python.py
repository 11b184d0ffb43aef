"""A host on the Python SDK 2.3, in the stateless era or, with `--initialize`, the other, step by step: see stepping.py.

The SDK has no words for tasks.
"""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from stepping import Told, run

MODE = "legacy" if "--initialize" in sys.argv else "2026-07-28"


class ModernPythonHost:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, given: dict[str, Any], meta: dict[str, Any] | None = None) -> Told:
        result = await self._client.call_tool(tool, given, meta=meta)
        text = " ".join(getattr(each, "text", "") for each in result.content)
        return {"text": text, "is_error": bool(result.is_error)}

    async def task(self, tool: str, given: dict[str, Any], meta: dict[str, Any] | None = None) -> Told:
        raise NotImplementedError

    async def look(self, task: str) -> Told:
        raise NotImplementedError

    async def cancel(self, task: str) -> Told:
        raise NotImplementedError

    async def outcome(self, task: str) -> Told:
        raise NotImplementedError

    def error_of(self, error: Exception) -> Told | None:
        return (
            {"code": error.code, "message": error.message, "data": error.data} if isinstance(error, MCPError) else None
        )


@asynccontextmanager
async def connect(url: str, headers: Mapping[str, str]) -> AsyncIterator[ModernPythonHost]:
    async with (
        httpx2.AsyncClient(headers=dict(headers), trust_env=False, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=MODE) as client,
    ):
        yield ModernPythonHost(client)


if __name__ == "__main__":
    run(connect)
