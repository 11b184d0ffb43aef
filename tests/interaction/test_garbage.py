"""A call that is over leaves nothing behind that only a collection of cycles would find."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.mcp_host import McpHost
from helpers.scripted_upstream import ScriptedServer, error
from helpers.stateless_host import StatelessHost
from helpers.whole_gateway import WholeGateway
from taskgate.mcp.envelope import Request, Response

LARGE = {"a": [1] * 5000}


@pytest.fixture
def garbage() -> Iterator[list[Any]]:
    """What the collector found, instead of freeing it; it does not run by itself."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def messages(garbage: list[Any]) -> list[Any]:
    gc.collect()
    return [each for each in garbage if isinstance(each, Request | Response)]


async def test_a_call_in_a_session_leaves_no_cycle(host: McpHost, garbage: list[Any]) -> None:
    await host.call("echo", LARGE)
    assert messages(garbage) == []


async def test_a_call_that_the_server_refuses_leaves_no_cycle(
    host: McpHost, server: ScriptedServer, garbage: list[Any]
) -> None:
    server.script["echo"] = error(-32000, "no")
    assert (await host.call("echo", LARGE)).code == -32000
    assert messages(garbage) == []


async def test_a_call_that_is_refused_leaves_no_cycle(host: McpHost, garbage: list[Any]) -> None:
    assert (await host.call("x" * 200, LARGE)).code == -32602
    assert messages(garbage) == []


async def test_a_call_for_a_task_leaves_no_cycle(host: McpHost, garbage: list[Any]) -> None:
    task = await host.start("echo", LARGE)
    await host.ask("tasks/result", {"taskId": task["taskId"]})
    assert messages(garbage) == []


async def test_a_call_of_the_stateless_era_leaves_no_cycle(gateway: WholeGateway, garbage: list[Any]) -> None:
    host = StatelessHost(gateway.http, gateway.url())
    await host.call("echo", LARGE)
    assert messages(garbage) == []
