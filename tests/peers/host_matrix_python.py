"""A host on the Python SDK 1.30, which speaks the initialize era, for the table of hosts and servers.

`python host_matrix_python.py URL …` does what matrix_columns.py says.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from matrix_columns import Outcome, run, text_of
from mcp import ClientSession, McpError
from mcp import types as mcp_types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl


def outcome(result: mcp_types.CallToolResult) -> Outcome:
    return text_of(result.content), bool(result.isError)


class PythonHost:
    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def tools(self) -> Sequence[str]:
        return [tool.name for tool in (await self._session.list_tools()).tools]

    async def call(self, tool: str, given: dict[str, Any]) -> Outcome:
        return outcome(await self._session.call_tool(tool, given))

    async def as_task(self, tool: str, given: dict[str, Any]) -> Outcome:
        tasks = self._session.experimental
        task = (await tasks.call_tool_as_task(tool, given)).task
        assert task.status == "working", task
        async for status in tasks.poll_task(task.taskId):
            if status.status == "input_required":
                break
        return outcome(await tasks.get_task_result(task.taskId, mcp_types.CallToolResult))

    async def asked(self, tool: str) -> Outcome:
        return await self.as_task(tool, {})

    async def progress(self, tool: str) -> Sequence[float]:
        seen: list[float] = []

        async def note(progress: float, _: float | None, __: str | None) -> None:
            seen.append(progress)

        await self._session.call_tool(tool, {}, progress_callback=note)
        await self._session.send_ping()  # what is still on its way on another stream has come by then
        return seen

    async def error(self, tool: str) -> int:
        try:
            await self._session.call_tool(tool, {})
        except McpError as error:
            return error.error.code
        return 0

    async def cancel(self, tool: str, given: dict[str, Any]) -> None:
        tasks = self._session.experimental
        task = (await tasks.call_tool_as_task(tool, given)).task
        await asyncio.sleep(0.5)
        await tasks.cancel_task(task.taskId)

    async def read(self, uri: str) -> str:
        return str(getattr((await self._session.read_resource(AnyUrl(uri))).contents[0], "text", ""))

    async def prompt(self, name: str) -> str:
        return str(getattr((await self._session.get_prompt(name)).messages[0].content, "text", ""))


async def answer(_: Any, __: Any) -> mcp_types.ElicitResult:
    return mcp_types.ElicitResult(action="accept", content={"word": "yes"})


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[PythonHost]:
    async with (
        httpx.AsyncClient(trust_env=False, timeout=httpx.Timeout(30, read=300)) as http,
        streamable_http_client(url, http_client=http) as (incoming, outgoing, _),
        ClientSession(incoming, outgoing, elicitation_callback=answer) as session,
    ):
        await session.initialize()
        yield PythonHost(session)


if __name__ == "__main__":
    run("python", connect)
