"""Servers of either era that say who they are, and what hosts are told of it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.modern_schema import SERVER
from helpers.server import ScriptedServer

GATEWAY: Final = "io.taskgate/gateway"
INFO: Final = {
    "name": "reports",
    "version": "2.1",
    "title": "Repörts",
    "websiteUrl": "https://example.com/reports",
    "icons": [{"src": "https://example.com/a.png", "mimeType": "image/png", "sizes": ["48x48"]}],
    "x-build": {"commit": "0a1b"},
}


@asynccontextmanager
async def server_of(era: str) -> AsyncIterator[ScriptedServer]:
    """A server of that era that says who it is."""
    async with ScriptedServer(era) as server:
        server.info = dict(INFO)
        yield server


def before(server: ScriptedServer, *, sections: Any = None, **keys: Any) -> AbstractAsyncContextManager[Gateway]:
    """A gateway before that server, which has to find out its era."""
    upstream = {"path": "/reports/mcp", "url": server.url, "protocol_version": "auto", **keys}
    return serve(configuration({}, upstreams={"reports": upstream}, **(sections or {})))


async def welcome(gateway: Gateway, era: str, **more: Any) -> dict[str, Any]:
    """What a new host of that era is told."""
    return await gateway.host(era=era, **more).handshake()


def info_of(told: dict[str, Any], era: str) -> Any:
    """Who a host of that era is told that the server is; None where it is not told."""
    return told["serverInfo"] if era == "legacy" else told["_meta"].get(SERVER)
