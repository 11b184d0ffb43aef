"""A host on FastMCP 4, which speaks the stateless era, step by step: see stepping.py."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp_tasks.client import ToolTask, call_tool_task
from fastmcp_tasks.client_models import ClientCreateTaskResult
from mcp import MCPError
from stepping import Told, run


def told_of(result: Any) -> Told:
    return {"text": " ".join(getattr(each, "text", "") for each in result.content), "is_error": bool(result.is_error)}


class FastMCPHost:
    def __init__(self, client: Client[Any]) -> None:
        self._client = client
        self._tasks: dict[str, ToolTask] = {}

    async def call(self, tool: str, given: dict[str, Any], meta: dict[str, Any] | None = None) -> Told:
        return told_of(await self._client.call_tool(tool, given, raise_on_error=False, meta=meta))

    async def task(self, tool: str, given: dict[str, Any], meta: dict[str, Any] | None = None) -> Told:
        task = await call_tool_task(self._client, tool, given, raise_on_error=False, meta=meta)
        self._tasks[task.task_id] = task
        return {"task": task.task_id}

    async def look(self, task: str) -> Told:
        if task not in self._tasks:
            given = {"resultType": "task", "taskId": task, "status": "working", "createdAt": "", "lastUpdatedAt": ""}
            made = ClientCreateTaskResult.model_validate(given)
            self._tasks[task] = ToolTask(self._client, "hold", made)
        told = await self._tasks[task].status()
        return {"status": told.status, "message": told.status_message}

    async def cancel(self, task: str) -> Told:
        await self._tasks[task].cancel()
        return {"cancelled": True}

    async def outcome(self, task: str) -> Told:
        return told_of(await self._tasks[task].result())

    def error_of(self, error: Exception) -> Told | None:
        return (
            {"code": error.code, "message": error.message, "data": error.data} if isinstance(error, MCPError) else None
        )


@asynccontextmanager
async def connect(url: str, headers: Mapping[str, str]) -> AsyncIterator[FastMCPHost]:
    async with Client(StreamableHttpTransport(url, headers=dict(headers))) as client:
        yield FastMCPHost(client)


if __name__ == "__main__":
    run(connect)
