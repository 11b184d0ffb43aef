"""A host on the Python SDK 1.23 or 1.30, which speaks the initialize era, step by step: see stepping.py."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from mcp import ClientSession, McpError
from mcp import types as mcp_types
from mcp.client.streamable_http import streamablehttp_client
from stepping import Told, run


def told_of(result: mcp_types.CallToolResult) -> Told:
    return {"text": " ".join(getattr(each, "text", "") for each in result.content), "is_error": bool(result.isError)}


class PythonHost:
    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def call(self, tool: str, given: dict[str, Any], meta: dict[str, Any] | None = None) -> Told:
        return told_of(await self._session.call_tool(tool, given, meta=meta))

    async def task(self, tool: str, given: dict[str, Any], meta: dict[str, Any] | None = None) -> Told:
        created = await self._session.experimental.call_tool_as_task(tool, given, meta=meta)
        return {"task": created.task.taskId}

    async def look(self, task: str) -> Told:
        told = await self._session.experimental.get_task(task)
        return {"status": told.status, "message": told.statusMessage}

    async def cancel(self, task: str) -> Told:
        await self._session.experimental.cancel_task(task)
        return {"cancelled": True}

    async def outcome(self, task: str) -> Told:
        return told_of(await self._session.experimental.get_task_result(task, mcp_types.CallToolResult))

    def error_of(self, error: Exception) -> Told | None:
        return error.error.model_dump() if isinstance(error, McpError) else None


@asynccontextmanager
async def connect(url: str, headers: Mapping[str, str]) -> AsyncIterator[PythonHost]:
    wait = timedelta(seconds=30)
    async with (
        streamablehttp_client(url, headers=dict(headers), timeout=wait) as (incoming, outgoing, _),
        ClientSession(incoming, outgoing) as session,
    ):
        await session.initialize()
        yield PythonHost(session)


if __name__ == "__main__":
    run(connect)
