"""A server lists more tools than before and does not say so: they are called at once, plain and as tasks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import Host
from helpers.server import ScriptedServer
from helpers.virtual_time import pass_time
from helpers.waiting import eventually

RULES: dict[str, Any] = {
    "authorization": {"only_listed_tools": True},
    "tasks": {"upgrade": [{"tool": "*", "mode": "auto", "inline_grace": "0s"}]},
}
NEW = {"name": "new", "inputSchema": {"type": "object"}}


@pytest.fixture(params=["legacy", "modern"])
async def growing(request: pytest.FixtureRequest) -> AsyncIterator[ScriptedServer]:
    """A server of that era, which may list one more tool later."""
    async with ScriptedServer(request.param) as server:
        server.tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
        yield server


@pytest.fixture
async def before(growing: ScriptedServer) -> AsyncIterator[Gateway]:
    upstream = {"path": "/reports/mcp", "url": growing.url, "protocol_version": "auto"}
    async with serve(configuration({}, upstreams={"reports": upstream}, **RULES)) as gateway:
        yield gateway


async def test_a_tool_that_the_list_has_since_is_called_though_the_host_did_not_ask_for_the_list(
    growing: ScriptedServer, before: Gateway
) -> None:
    host = await before.greeted()
    await host.call("echo")
    growing.tools.append(NEW)
    assert (await host.call("new", {"a": 1})).result["structuredContent"] == {"a": 1}


async def test_a_new_tool_is_called_as_a_task(growing: ScriptedServer, before: Gateway) -> None:
    host = await before.greeted()
    await host.call("echo")
    growing.tools.append(NEW)
    task = await host.start("new", {"a": 1})
    result = (await host.ask("tasks/result", {"taskId": task["taskId"]})).result
    assert result["structuredContent"] == {"a": 1}


async def test_a_new_tool_is_promoted_for_a_modern_host(growing: ScriptedServer, before: Gateway) -> None:
    host: Host = before.modern(tasks=True)
    await host.call("echo")
    growing.tools.append(NEW)
    assert (await host.call("new")).result["resultType"] == "task"


async def test_a_list_that_the_host_got_from_a_legacy_server_is_what_is_known(
    server: ScriptedServer, host: Host
) -> None:
    await host.start("echo")
    server.tools.append(NEW)
    await host.ask("tools/list")
    asked = len(server.heard("tools/list"))
    await host.start("new")
    assert len(server.heard("tools/list")) == asked


async def test_a_tool_that_is_nowhere_has_the_list_read_once_and_not_for_each_call(
    growing: ScriptedServer, before: Gateway
) -> None:
    host = await before.greeted()
    await host.call("echo")
    asked = len(growing.heard("tools/list"))
    for _ in range(5):
        assert "Unknown tool" in (await host.call("nowhere")).error["message"]
    assert len(growing.heard("tools/list")) == asked + 1


async def test_a_tool_that_is_listed_no_more_is_unknown_once_the_list_is_five_minutes_old(
    growing: ScriptedServer, before: Gateway
) -> None:
    growing.cache = {"ttlMs": 0, "cacheScope": "private"}
    host = await before.greeted()
    growing.tools.append(NEW)
    assert (await host.call("new", {"a": 1})).result["structuredContent"] == {"a": 1}
    growing.tools.remove(NEW)
    asked = len(growing.heard("tools/list"))
    await pass_time(299)
    assert (await host.call("new", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert len(growing.heard("tools/list")) == asked
    await pass_time(2)
    await host.call("new")
    await eventually(lambda: len(growing.heard("tools/list")) > asked)
    await pass_time(1)
    assert "Unknown tool" in (await host.call("new")).error["message"]
