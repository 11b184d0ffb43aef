"""The MCP client of Strands Agents with tasks, without an agent, for the table of hosts and servers.

`python host_matrix_strands.py URL …` does what matrix_columns.py says. Strands runs each client on a thread of its own.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from matrix_columns import NotHad, Outcome, run
from mcp.types import ElicitResult
from strands.tools.mcp import MCPClient
from strands.tools.mcp.mcp_tasks import MCPCreateTaskResult, TasksConfig

NO_CODE = "the host shows the text of an error without its code"
TEXT = "the books are closed"


class StrandsHost:
    def __init__(self, client: MCPClient) -> None:
        self._client = client

    async def tools(self) -> Sequence[str]:
        return [tool.tool_name for tool in await asyncio.to_thread(self._client.list_tools_sync)]

    async def call(self, tool: str, given: dict[str, Any], **options: Any) -> Outcome:
        result = await self._client.call_tool_async("use-1", tool, given, **options)
        return " ".join(each.get("text", "") for each in result["content"]), result["status"] == "error"

    async def as_task(self, tool: str, given: dict[str, Any]) -> Outcome:
        task = await self._client.submit_tool_async(tool, given)
        assert isinstance(task, MCPCreateTaskResult), "it was no task"
        while (state := await self._client.get_task_async(task.task_id)).status == "working":
            await asyncio.sleep((state.poll_interval_ms or 100) / 1000)
        assert state.result is not None, state
        return " ".join(getattr(each, "text", "") for each in state.result.content), bool(state.result.is_error)

    async def asked(self, tool: str) -> Outcome:
        return await self.call(tool, {})

    async def progress(self, tool: str) -> Sequence[float]:
        seen: list[float] = []

        async def note(progress: float, _: float | None, __: str | None) -> None:
            seen.append(progress)

        await self.call(tool, {}, progress_callback=note)
        return seen

    async def error(self, tool: str) -> int:
        told = await self.call(tool, {})
        if told[1] and TEXT in told[0]:
            raise NotHad(NO_CODE)
        return 0

    async def cancel(self, tool: str, given: dict[str, Any]) -> None:
        signal = threading.Event()
        calling = asyncio.create_task(self.call(tool, given, cancel_signal=signal))
        await asyncio.sleep(1)
        signal.set()
        await calling

    async def read(self, uri: str) -> str:
        result = await asyncio.to_thread(self._client.read_resource_sync, uri)
        return str(getattr(result.contents[0], "text", ""))

    async def prompt(self, name: str) -> str:
        result = await asyncio.to_thread(self._client.get_prompt_sync, name, {})
        return str(getattr(result.messages[0].content, "text", ""))


async def answer(_: Any, __: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"word": "yes"})


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[StrandsHost]:
    client = MCPClient(url=url, elicitation_callback=answer, tasks_config=TasksConfig())
    await asyncio.to_thread(client.start)
    try:
        yield StrandsHost(client)
    finally:
        await asyncio.to_thread(client.stop, None, None, None)


if __name__ == "__main__":
    run("strands", connect)
