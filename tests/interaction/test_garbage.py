"""A call that is over leaves nothing behind that only a collection of cycles would find."""

import asyncio
import gc
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.mcp_host import ACCEPT, McpHost
from helpers.modern_host import ModernHost
from helpers.scripted_upstream import ScriptedServer, error
from helpers.waiting import bounded
from helpers.whole_gateway import WholeGateway
from taskgate.protocol.envelope import Request, Response

LARGE = {"a": [1] * 5000}
MUCH = 100_000


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


async def test_a_call_of_the_modern_era_leaves_no_cycle(gateway: WholeGateway, garbage: list[Any]) -> None:
    host = ModernHost(gateway.http, gateway.url())
    await host.call("echo", LARGE)
    assert messages(garbage) == []


# --- what is kept though nothing but a timer knows of it -----------------------------------------------------------


async def nothing_large() -> None:
    """Wait until no message is left that a large one was; a moment longer than the answer, whose end is told first."""
    async with bounded():
        while any(isinstance(each, Request | Response) and len(each.text) > MUCH for each in gc.get_objects()):
            await asyncio.sleep(0.01)


@pytest.fixture
def large() -> dict[str, str]:
    """Arguments that come in more than one piece, so that there is a bound on when they have all come."""
    return {"text": "x" * 600_000}


async def test_a_call_in_a_session_that_is_over_is_not_kept(host: McpHost, large: dict[str, str]) -> None:
    await host.call("echo", large)
    await nothing_large()


async def test_a_call_of_the_modern_era_that_is_over_is_not_kept(gateway: WholeGateway, large: dict[str, str]) -> None:
    await gateway.modern().call("echo", large)
    await nothing_large()


async def test_a_call_that_was_refused_is_not_kept(host: McpHost, large: dict[str, str]) -> None:
    assert (await host.call("x" * 200, large)).code == -32602
    await nothing_large()


async def test_a_call_that_became_a_task_is_not_kept(host: McpHost, large: dict[str, str]) -> None:
    task = await host.start("echo", large)
    await host.ask("tasks/result", {"taskId": task["taskId"]})
    await nothing_large()


async def test_calls_that_came_together_are_not_kept(gateway: WholeGateway, large: dict[str, str]) -> None:
    host = await gateway.greeted("2025-03-26")
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "echo", "arguments": large}}
    head = {"Content-Type": "application/json", "Accept": ACCEPT, "Mcp-Session-Id": host.session or ""}
    batch = io.BytesIO(json.dumps([{**call, "id": 1}, {**call, "id": 2}]).encode())
    async with gateway.http.post(host.url, data=batch, headers=head) as answer:
        assert len(await answer.json()) == 2
    await nothing_large()
