"""A call that is over leaves nothing behind that only a collection of cycles would find."""

import asyncio
import gc
import io
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import told
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.host import ACCEPT, Host
from helpers.package_objects import of_the_package
from helpers.server import Hold, ScriptedServer, error
from helpers.waiting import bounded, eventually

LARGE = {"a": [1] * 5000}
MUCH = 300_000
"""Bytes: half of a large message."""


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


Cycles = Callable[[], dict[str, int]]
"""What of the package only the collector of cycles found."""


@pytest.fixture
def cycles(garbage: list[Any]) -> Cycles:
    # What other tests held to the end is theirs.
    older = {id(each) for each in gc.get_objects()}

    def found() -> dict[str, int]:
        gc.collect()
        return of_the_package(each for each in garbage if id(each) not in older)

    return found


async def test_a_call_in_a_session_leaves_no_cycle(host: Host, cycles: Cycles) -> None:
    await host.call("echo", LARGE)
    assert cycles() == {}


async def test_a_call_that_the_server_refuses_leaves_no_cycle(
    host: Host, server: ScriptedServer, cycles: Cycles
) -> None:
    server.script["echo"] = error(-32000, "no")
    assert (await host.call("echo", LARGE)).code == -32000
    assert cycles() == {}


async def test_a_call_that_is_refused_leaves_no_cycle(host: Host, cycles: Cycles) -> None:
    assert (await host.call("x" * 300, LARGE)).code == -32602
    assert cycles() == {}


async def test_a_call_for_a_task_leaves_no_cycle(host: Host, cycles: Cycles) -> None:
    task = await host.start("echo", LARGE)
    await host.ask("tasks/result", {"taskId": task["taskId"]})
    assert cycles() == {}


async def test_a_call_of_the_modern_era_leaves_no_cycle(gateway: Gateway, cycles: Cycles) -> None:
    host = Host(gateway.http, gateway.url(), era="modern")
    await host.call("echo", LARGE)
    assert cycles() == {}


# --- what is kept though nothing but a timer knows of it -----------------------------------------------------------


Kept = Callable[[], int]


@pytest.fixture
def kept(server: ScriptedServer) -> Iterator[Kept]:
    """The bytes in memory beyond those that there were, without what the test itself remembers."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]

    def more() -> int:
        server.requests.clear()
        told.now().emitted.clear()
        return tracemalloc.get_traced_memory()[0] - before

    yield more
    tracemalloc.stop()


async def nothing_large(kept: Kept) -> None:
    """Wait until no large message is left; a moment longer than the answer, whose end is told first."""
    await eventually(lambda: kept() < MUCH)


@pytest.fixture
def large() -> dict[str, str]:
    """Arguments that come in more than one piece, so that there is a bound on when they have all come."""
    return {"text": "x" * 600_000}


async def test_a_call_in_a_session_that_is_over_is_not_kept(
    host: Host, large: dict[str, str], kept: Callable[[], int]
) -> None:
    await host.call("echo", large)
    await nothing_large(kept)


async def test_a_call_of_the_modern_era_that_is_over_is_not_kept(
    gateway: Gateway, large: dict[str, str], kept: Callable[[], int]
) -> None:
    await gateway.modern().call("echo", large)
    await nothing_large(kept)


async def test_a_call_that_was_refused_is_not_kept(host: Host, large: dict[str, str], kept: Callable[[], int]) -> None:
    assert (await host.call("x" * 300, large)).code == -32602
    await nothing_large(kept)


async def test_a_call_that_became_a_task_is_not_kept(
    server: ScriptedServer, large: dict[str, str], kept: Kept, tmp_path: Path
) -> None:
    # What is stored is in a file.
    async with serve(configuration({"reports": server.url}, folder=tmp_path)) as gateway:
        host = await gateway.greeted()

        async def end(*all_arguments: dict[str, str]) -> int:
            for arguments in all_arguments:
                task = await host.start("echo", arguments)
                # An event stream could be taken up again, and is kept for that.
                head = {"Accept": "application/json"}
                await host.ask("tasks/result", {"taskId": task["taskId"]}, headers=head)
            return kept()

        before = await end({})
        # Whoever reads or writes for the store may hold the last that there was.
        await end(large, {}, {})
        await eventually(lambda: kept() - before < MUCH)


async def test_calls_that_came_together_are_not_kept(gateway: Gateway, large: dict[str, str], kept: Kept) -> None:
    host = await gateway.greeted("2025-03-26")

    async def call_twice() -> None:
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "echo", "arguments": large}}
        head = {"Content-Type": "application/json", "Accept": ACCEPT, "Mcp-Session-Id": host.session or ""}
        batch = io.BytesIO(json.dumps([{**call, "id": 1}, {**call, "id": 2}]).encode())
        async with gateway.http.post(host.url, data=batch, headers=head) as answer:
            assert len(await answer.json()) == 2

    await call_twice()
    await nothing_large(kept)


async def test_a_connection_holds_no_request_but_the_one_that_it_serves(
    host: Host, gateway: Gateway, server: ScriptedServer
) -> None:
    def held() -> int:
        gc.collect()
        requests = (
            each for each in gc.get_objects() if str(type(each)) == "<class 'taskgate.listener.protocol.HostRequest'>"
        )
        return sum(each.head.target == "/reports/mcp" for each in requests)

    await host.call("echo")
    server.script["echo"] = hold = Hold()
    calling = asyncio.create_task(host.call("echo"))
    async with bounded():
        await hold.begun.wait()
        assert held() == 1
        hold.release({"content": []})
        await calling
