"""A host on the Python SDK 2.3, speaking 2026-07-28, with an extension for tasks of its own: the SDK has none.

`python host_tasks_modern_python.py URL TOOL ARGUMENTS …` does what host_modern_python.py does. It asks for a task once
in each interval that it is advised, and any error that it is told ends the call.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any, Literal

import mcp_types as types
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

ENDS_WITHIN = 30.0
"""Seconds for one call."""


class Made(types.Result):
    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")
    poll_interval_ms: int = Field(alias="pollIntervalMs")


class State(types.Result):
    status: str
    result: dict[str, Any] | None = None
    status_message: str | None = Field(default=None, alias="statusMessage")


class About(types.RequestParams):
    task_id: str = Field(serialization_alias="taskId")


class GetTask(types.Request[About, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: About


class Tasks(ClientExtension):
    """Turns a task into the result that it comes to."""

    identifier = "io.modelcontextprotocol/tasks"

    def settings(self) -> dict[str, Any]:
        return {}

    def claims(self) -> Sequence[ResultClaim[Any]]:
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return (ResultClaim(result_type="task", model=Made, resolve=self._resolve, protocol_versions=versions),)

    async def _resolve(self, made: Made, context: ClaimContext) -> types.CallToolResult:
        while True:
            await asyncio.sleep(made.poll_interval_ms / 1000)
            state = await context.session.send_request(GetTask(params=About(task_id=made.task_id)), State)
            if state.status == "completed":
                return types.CallToolResult.model_validate(state.result)
            if state.status != "working":
                raise RuntimeError(state.status_message)


async def told_of(client: Client, tool: str, given: dict[str, Any]) -> dict[str, Any]:
    """What is said of one call."""
    try:
        async with asyncio.timeout(ENDS_WITHIN):
            result = await client.call_tool(tool, given)
    except MCPError as error:
        return {"error": {"code": error.code, "message": error.message}}
    text = " ".join(getattr(block, "text", block.type) for block in result.content)
    return {"result": text, "isError": bool(result.is_error)}


async def play(url: str, words: list[str]) -> None:
    """One call after the other."""
    async with Client(url, extensions=[Tasks()]) as client:
        for tool, given in zip(words[::2], words[1::2], strict=True):
            sys.stdout.write(json.dumps(await told_of(client, tool, json.loads(given))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], sys.argv[2:]))
