"""Released hosts whose users name no time to live: `mcp` 1.30 and FastMCP 3.4 ask for a minute then."""

import asyncio
from asyncio.subprocess import PIPE

import httpx
import pytest
from example import environments
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import serve
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded
from interop.hosts import OFFICIAL, text_of
from interop.peers import HOME, require_peers
from requirements import covers

pytestmark = [*OFFICIAL, pytest.mark.thorough]

DONE = {"content": [{"type": "text", "text": "done"}]}
FASTMCP = "fastmcp-3.4.10"
TAKES = 80.0
"""Seconds that each call takes."""


@covers("L-CREATE-3")
@pytest.mark.timeout(300)
async def test_no_call_of_hosts_that_ask_for_a_minute_is_lost_when_it_takes_longer() -> None:
    require_peers(FASTMCP, packages=False)
    async with ScriptedServer() as server, bounded(150):
        server.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        server.script["report"] = hold = Hold()
        async with serve(configuration({"reports": server.url}, store={"purge_interval": "100ms"})) as gateway:
            url = gateway.url()
            program = environments.python_of(FASTMCP), HOME / "host_task_fastmcp.py", url, "report"
            other = await asyncio.create_subprocess_exec(*program, stdout=PIPE)
            async with (
                httpx.AsyncClient(trust_env=False, timeout=120) as http,
                streamable_http_client(url, http_client=http) as (incoming, outgoing, _),
                ClientSession(incoming, outgoing) as session,
            ):
                await session.initialize()
                task = (await session.experimental.call_tool_as_task("report", {})).task
                assert task.ttl == 3_600_000
                asyncio.get_running_loop().call_later(TAKES, hold.release, DONE)
                async for state in session.experimental.poll_task(task.taskId):
                    assert state.status in ("working", "completed")
                result = await session.experimental.get_task_result(task.taskId, CallToolResult)
            said, _ = await other.communicate()
    assert len(hold.turns) == 2
    assert (text_of(result), said.decode().strip(), other.returncode) == ("done", "done", 0)
