"""A host on the official SDK with an API key in either header, which is replaced while its task runs."""

from hashlib import sha256
from secrets import token_urlsafe

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from helpers.gateway.configuration import GatewayConfig
from helpers.gateway.gateway import Reloaded, serve
from helpers.secrets import noted
from helpers.server import Hold, ScriptedServer
from helpers.token_issuer import guarded
from helpers.waiting import bounded
from interop.hosts import OFFICIAL, text_of

pytestmark = OFFICIAL


def known(url: str, *keys: str) -> GatewayConfig:
    """A configuration with these keys of one subject."""
    hashes = [f"sha256:{sha256(key.encode()).hexdigest()}" for key in keys]
    entries = {hashed[-8:]: {"hash": hashed, "subject": "ci"} for hashed in hashes}
    return guarded({"reports": url}, auth={"api_keys": entries})


@pytest.mark.parametrize("header", ["X-API-Key", "Authorization"])
async def test_a_task_of_one_key_is_fetched_with_the_next(header: str) -> None:
    old, new = (noted(f"tgk_{token_urlsafe(32)}") for _ in range(2))
    scheme = "Bearer " if header == "Authorization" else ""
    async with ScriptedServer() as server, bounded():
        server.tools = [{"name": "report", "inputSchema": {"type": "object"}}]
        server.script["report"] = hold = Hold()
        async with (
            serve(known(server.url, old)) as gateway,
            httpx.AsyncClient(trust_env=False, timeout=30, headers={header: scheme + old}) as http,
            streamable_http_client(gateway.url(), http_client=http) as (incoming, outgoing, _),
            ClientSession(incoming, outgoing) as session,
        ):
            await session.initialize()
            task = (await session.experimental.call_tool_as_task("report", {})).task.taskId
            await hold.begun.wait()
            assert await gateway.reload(known(server.url, old, new)) == Reloaded(result="success")
            http.headers[header] = scheme + new
            assert (await session.experimental.get_task(task)).status == "working"
            assert await gateway.reload(known(server.url, new)) == Reloaded(result="success")
            hold.release({"content": [{"type": "text", "text": "the report"}]})
            assert text_of(await session.experimental.get_task_result(task, CallToolResult)) == "the report"
