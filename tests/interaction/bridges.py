"""A server of the modern era behind the gateway, the questions that it asks, and hosts of the other era."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from aiohttp import web

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, serve
from helpers.modern_requests import check_client_message
from helpers.server import Reply, ScriptedServer, Turn
from interaction.questions import URL

ALWAYS = {"upgrade": [{"tool": "*", "mode": "always"}]}
DONE = {"content": [{"type": "text", "text": "done"}]}
FORM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which?",
        "requestedSchema": {"type": "object", "properties": {"it": {"type": "string"}}},
    },
}
ROOTS = {"method": "roots/list"}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Why?"}}], "maxTokens": 10},
}


@pytest.fixture
async def modern() -> AsyncIterator[ScriptedServer]:
    """A server of the modern era with two tools.

    Whatever it was told in that era is held against the schema at the end, and none of it may have been refused for its
    headers.
    """
    async with ScriptedServer("modern") as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report")]
        yield server
    assert server.faults == []
    for request in server.requests:
        if isinstance(request.message, dict) and "mcp-method" in request.headers:
            check_client_message(request.message, serves_tasks=server.serves_tasks)
        else:
            assert server.era == "both" or request.message["method"] == "initialize", request


def before(
    server: ScriptedServer, *, environment: Environment | None = None, **sections: Any
) -> AbstractAsyncContextManager[Gateway]:
    """A gateway before that server, which has to find out its era."""
    upstream = {"path": "/reports/mcp", "url": server.url, "protocol_version": "auto"}
    return serve(configuration({}, upstreams={"reports": upstream}, **sections), environment)


@pytest.fixture
async def bridge(modern: ScriptedServer) -> AsyncIterator[Gateway]:
    """A gateway with default rules before the server of the modern era."""
    async with before(modern) as gateway:
        yield gateway


def requiring(*ids: str) -> Reply:
    """A tool that wants its host to have been at its addresses before it does anything; the next call is answered."""
    seen: list[Turn] = []

    async def reply(turn: Turn) -> web.StreamResponse:
        seen.append(turn)
        if len(seen) > 1:
            return web.json_response(turn.answer(DONE))
        wanted = [{**URL, "elicitationId": id} for id in ids]
        error = {"code": -32042, "message": "first this", "data": {"elicitations": wanted}}
        return web.json_response({"jsonrpc": "2.0", "id": turn.id, "error": error})

    return reply
