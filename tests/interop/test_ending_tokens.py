"""A host on the official SDK whose token ends while it waits for a task: it refreshes it, and has the result."""

import asyncio
import time
from collections.abc import Callable, Generator
from pathlib import Path

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from helpers.gateway.gateway import serve
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import TokenIssuer, guarded
from helpers.waiting import bounded, eventually
from interop.hosts import OFFICIAL, text_of

pytestmark = OFFICIAL


class Refreshing(httpx.Auth):
    """Gets another token whenever it is told 401, as the SDK's OAuth client does."""

    def __init__(self, token: str, refresh: Callable[[], str]) -> None:
        self._token = token
        self._refresh = refresh
        self.refreshed = 0

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """See httpx."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        answer = yield request
        if answer.status_code == 401:
            self.refreshed += 1
            self._token = self._refresh()
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request


async def test_a_host_whose_token_ends_during_a_wait_refreshes_it_and_gets_the_result(tmp_path: Path) -> None:
    issuer = TokenIssuer(tmp_path)
    async with ScriptedServer() as server, bounded():
        server.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        server.script["report"] = hold = Hold()
        auth = {"issuers": {"corp": {**issuer.section, "leeway": "0s"}}}
        async with serve(guarded({"reports": server.url}, auth=auth)) as gateway:
            url = gateway.url()
            ends = Refreshing(issuer.token(url, exp=time.time() + 4), lambda: issuer.token(url))
            async with (
                httpx.AsyncClient(trust_env=False, timeout=30, auth=ends) as http,
                streamable_http_client(url, http_client=http) as (incoming, outgoing, _),
                ClientSession(incoming, outgoing) as session,
            ):
                await session.initialize()
                task = (await session.experimental.call_tool_as_task("report", {})).task.taskId
                await hold.begun.wait()
                assert ends.refreshed == 0

                async def release() -> None:
                    await eventually(lambda: ends.refreshed)
                    hold.release({"content": [{"type": "text", "text": "done"}]})

                releasing = asyncio.create_task(release())
                result = await session.experimental.get_task_result(task, CallToolResult)
                await releasing
    assert text_of(result) == "done"
    assert len(server.heard("tools/call")) == 1
