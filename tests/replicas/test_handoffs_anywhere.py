"""Calls of hosts without tasks over several replicas: kept, joined and waited for at any of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers.gateway.gateway import Gateway
from helpers.gateway.replicas import serve_replicas
from helpers.host.host import ERAS, Host, both_eras
from helpers.server import Hold, ScriptedServer, TalkingTool
from helpers.shared_store import SharedServer
from helpers.waiting import bounded, eventually
from interaction.handoffs import calls, handle_of, handoff, taskless, waited
from interaction.held_calls import CAPABLE, back, everything, sent_for
from interaction.questions import ACCEPTED, DONE

YEAR = {"year": 2026}
WINDOW = "1s"
eras = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
async def hold(server: ScriptedServer) -> Hold:
    """What the tool `report` waits for."""
    server.script["report"] = hold = Hold()
    return hold


@pytest.fixture
async def pair(server: ScriptedServer, valkey_server: SharedServer, tmp_path: Path) -> AsyncIterator[list[Gateway]]:
    """Two gateways over one store that hand off late calls after an hour."""
    tasks: dict[str, Any] = handoff("1h", ceiling="1h")
    tasks["handoff"]["retry_window"] = WINDOW
    async with serve_replicas(2, {"reports": server.url}, valkey_server.options(), tmp_path, tasks=tasks) as gateways:
        yield gateways


def moved(host: Host, gateway: Gateway) -> Host:
    """The same host at another gateway."""
    return gateway.again(host)


async def lose(gateway: Gateway, hold: Hold, era: str) -> None:
    """Call `report` there, and lose the connection; it is a task after that."""
    lost = asyncio.create_task((await taskless(gateway, era)).call("report", YEAR))
    async with bounded():
        await hold.begun.wait()
    lost.cancel()
    await asyncio.wait([lost])
    await gateway.shows("taskgate_tool_calls_total", 1, disposition="handoff")


@eras
async def test_a_lost_call_that_no_host_asks_for_is_cancelled(
    server: ScriptedServer, hold: Hold, pair: list[Gateway], era: str
) -> None:
    await lose(pair[0], hold, era)
    await eventually(lambda: bool(server.cancelled) or hold.left.is_set())


@eras
async def test_a_lost_call_goes_on_for_a_host_that_asks_another_replica(
    server: ScriptedServer, hold: Hold, pair: list[Gateway], era: str
) -> None:
    await lose(pair[0], hold, era)
    again = asyncio.create_task((await taskless(pair[1], era)).call("report", YEAR))
    await pair[1].shows("taskgate_calls_joined_total", 1)
    # By now the window of the first call is over.
    hold.begun.clear()
    other = asyncio.create_task((await taskless(pair[0], era)).call("report", {"year": 2025}))
    async with bounded():
        await hold.begun.wait()
    other.cancel()
    await asyncio.wait([other])
    await pair[0].shows("taskgate_tasks_finished_total", 1, status="cancelled")
    hold.release(DONE)
    async with bounded():
        assert (await again).result["content"] == DONE["content"]


@both_eras
@pytest.mark.parametrize(("mode", "after"), [("auto", "300ms"), ("always", "1h")])
async def test_equal_calls_of_hosts_that_are_connected_to_two_replicas_are_two(
    server: ScriptedServer, hold: Hold, valkey_server: SharedServer, tmp_path: Path, era: str, mode: str, after: str
) -> None:
    tasks = handoff(after, ceiling="1h", mode=mode)
    async with serve_replicas(2, {"reports": server.url}, valkey_server.options(), tmp_path, tasks=tasks) as gateways:
        hosts = [await taskless(gateway, era) for gateway in gateways]
        both = []
        for host in hosts:
            both.append(asyncio.create_task(host.call("report", YEAR)))
            await eventually(lambda: len(server.heard("tools/call")) == len(both))
        if mode == "auto":
            async with bounded():
                handles = [handle_of(await each) for each in both]
            assert len(set(handles)) == 2
            both = [asyncio.create_task(waited(*each)) for each in zip(hosts, handles, strict=True)]
        hold.release(DONE)
        async with bounded():
            assert [(await each).result["content"] for each in both] == [DONE["content"]] * 2
        for gateway in gateways:
            assert await gateway.count("taskgate_calls_joined_total") == 0


@eras
async def test_a_replica_that_ends_hands_off_its_calls_and_ends_its_waits_with_the_handle(
    server: ScriptedServer, hold: Hold, pair: list[Gateway], era: str
) -> None:
    first, second = pair
    host = await taskless(first, era)
    call = asyncio.create_task(host.call("report", YEAR))
    async with bounded():
        await hold.begun.wait()
    closing = asyncio.create_task(first.drain())
    async with bounded():
        handle = handle_of(await call)
    waiting = asyncio.create_task(waited(moved(host, second), handle))
    hold.release(DONE)
    async with bounded():
        assert (await waiting).result["content"] == DONE["content"]
        await closing


@eras
async def test_a_wait_at_a_replica_that_ends_is_answered_with_the_handle(
    server: ScriptedServer, hold: Hold, pair: list[Gateway], era: str
) -> None:
    first, second = pair
    await lose(second, hold, era)
    host = await taskless(first, era)
    waiting = asyncio.create_task(host.call("report", YEAR))
    await first.shows("taskgate_calls_joined_total", 1)
    closing = asyncio.create_task(first.drain())
    async with bounded():
        handle = handle_of(await waiting)
        await closing
    hold.release(DONE)
    async with bounded():
        # Only the replica that ended knew of the second session that got the handle: it makes its call again.
        again = moved(host, second)
        answer = await (again.call("report", YEAR) if era == "legacy" else waited(again, handle))
    assert answer.result["content"] == DONE["content"]
    assert calls(server) == 1


async def test_a_call_is_handed_off_while_an_input_response_to_it_came_to_another_replica(
    server: ScriptedServer, pair: list[Gateway]
) -> None:
    server.script["report"] = tool = TalkingTool()
    first, second = pair
    host = await taskless(first, "modern", **CAPABLE)
    tool.begun.set()
    await tool.ask("q-1")
    round_ = await sent_for(host)
    elsewhere = asyncio.create_task(back(second.again(host), round_, everything(round_)))
    assert (await tool.told("q-1"))["result"] == ACCEPTED
    closing = asyncio.create_task(first.drain())
    async with bounded():
        handle = handle_of(await elsewhere)
    waiting = asyncio.create_task(waited(await taskless(second, "modern"), handle))
    await tool.finish(DONE)
    async with bounded():
        assert (await waiting).result["content"] == DONE["content"]
        await closing
