"""A scripted server, and several gateways in front of it over one real Valkey."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.server import ScriptedServer, TalkingTool
from helpers.shared_store import SharedServer, expect_every_key_to_expire
from replicas.processes import Start, starting
from taskgate.stores.redis.options import RedisOptions

AT_ONCE = {"upgrade": [{"tool": "*", "mode": "always"}]}
"""Hosts of the modern era that know tasks are given one without delay."""


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server with three tools; `echo` answers with its arguments."""
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report", "broken")]
        yield server


@pytest.fixture
def tool(server: ScriptedServer) -> TalkingTool:
    """The tool `report`, which talks."""
    server.script["report"] = tool = TalkingTool()
    return tool


@pytest.fixture
async def three(server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path) -> AsyncIterator[list[Gateway]]:
    """Three gateways over one store, without authentication."""
    options = valkey_server.options()
    async with serve_replicas(3, {"reports": server.url}, options, tmp_path, tasks=AT_ONCE) as gateways:
        yield gateways
    expect_every_key_to_expire(valkey_server, options)


@pytest.fixture
def options(valkey_server: SharedServer) -> RedisOptions:
    """Where the store of replicas is that are processes."""
    return valkey_server.options()


@pytest.fixture
async def start(server: ScriptedServer, options: RedisOptions, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts replicas, each a process, whose lease is two seconds."""
    one_at_a_time = f'{{reports: {{path: /reports/mcp, url: "{server.url}", health: null, concurrency: 1}}}}'
    async with starting(server.url, options, tmp_path, upstreams=one_at_a_time) as start:
        yield start


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """What hosts of processes speak with."""
    async with aiohttp.ClientSession() as http:
        yield http
