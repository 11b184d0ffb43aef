"""A store that fails: what needs it is refused, what does not goes on, and no ending is lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helpers.failing_store import FailingStore
from helpers.gateway.configuration import configuration, file_store
from helpers.gateway.gateway import Environment, Gateway, open_store, serve
from helpers.server import Hold, ScriptedServer
from helpers.waiting import bounded, eventually
from interaction.falls import LOST, falling, leave_one_sent, one_slot

EVERYTHING = {"insert", "load", "swap", "put", "find", "touch", "drop", "census", "purge", "purge_sessions"}
DONE = {"content": [{"type": "text", "text": "done"}]}


@pytest.fixture
async def store() -> FailingStore:
    """A store in memory that works until it is told not to."""
    return FailingStore(await open_store("memory", None))


@pytest.fixture
async def gateway(server: ScriptedServer, store: FailingStore) -> AsyncIterator[Gateway]:
    """A gateway over that store."""
    config = configuration({"reports": server.url}, store={"purge_interval": "20ms"})
    async with serve(config, Environment(store=store)) as gateway:  # type: ignore[arg-type]
        yield gateway
        store.failing = set()


async def test_what_needs_the_store_is_refused_and_plain_calls_go_on(
    server: ScriptedServer, gateway: Gateway, store: FailingStore
) -> None:
    host = await gateway.greeted()
    task = await host.start("echo")
    await host.ask("tasks/result", {"taskId": task["taskId"]})
    store.failing = EVERYTHING
    refusals = [await host.call("echo", task={})]
    refusals += [await host.ask(f"tasks/{what}", {"taskId": task["taskId"]}) for what in ("get", "result", "cancel")]
    for answer in refusals:
        assert (answer.status, answer.code, answer.headers["Retry-After"]) == (200, 503, "2")
        assert answer.error["data"] == {"origin": "gateway", "reason": "store", "retryAfterMs": 2000}
        assert "as the test wants" not in answer.text
    assert (await host.call("echo", {"a": 1})).result["structuredContent"] == {"a": 1}
    assert len(server.heard("tools/call")) == 2
    assert await gateway.ready() == 503
    store.failing = set()
    assert (await host.task(task["taskId"]))["status"] == "completed"
    assert await gateway.ready() == 200


async def test_a_session_that_cannot_be_kept_is_refused_and_closed_at_the_server(
    server: ScriptedServer, gateway: Gateway, store: FailingStore
) -> None:
    store.failing = {"put"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}
    answer = await gateway.host().ask("initialize", params)
    assert (answer.status, answer.code) == (200, 503)
    assert "Mcp-Session-Id" not in answer.headers
    await eventually(lambda: server.live == set())


async def test_an_ending_is_written_once_the_store_takes_it(
    server: ScriptedServer, gateway: Gateway, store: FailingStore
) -> None:
    hold = server.script["report"] = Hold()
    host = await gateway.greeted()
    task = await host.start("report")
    waiting = asyncio.create_task(host.ask("tasks/result", {"taskId": task["taskId"]}))
    async with bounded():
        await hold.begun.wait()
        store.failing = {"swap"}
        hold.release(DONE)
        await eventually(lambda: store.refused.count("swap") >= 2)
        store.failing = set()
        assert (await waiting).result["content"] == DONE["content"]
    assert len(server.heard("tools/call")) == 1


async def test_a_call_whose_dispatch_cannot_be_noted_is_not_sent(server: ScriptedServer, store: FailingStore) -> None:
    hold = server.script["report"] = Hold()
    config = configuration({}, upstreams={"reports": one_slot(server, "reports")})
    async with serve(config, Environment(store=store)) as gateway:  # type: ignore[arg-type]
        host = await gateway.greeted()
        await host.start("report")
        task = await host.start("echo")
        async with bounded():
            await hold.begun.wait()
        store.failing = {"swap"}
        hold.release(DONE)
        await eventually(lambda: store.refused.count("swap") >= 3)
        store.failing = set()
        answer = await host.ask("tasks/result", {"taskId": task["taskId"]})
        assert answer.error["data"] == {"origin": "gateway", "reason": "internal", "dispatched": False}
        assert len(server.heard("tools/call")) == 1


async def test_a_cancel_reaches_the_server_though_the_runner_could_not_read_it_at_once(
    server: ScriptedServer, gateway: Gateway, store: FailingStore
) -> None:
    hold = server.script["report"] = Hold()
    host = await gateway.greeted()
    task = await host.start("report")
    async with bounded():
        await hold.begun.wait()
        store.fails_after = {"swap": "load"}
        await host.ask("tasks/cancel", {"taskId": task["taskId"]})
    await eventually(lambda: server.cancelled == [hold.turns[0].id])
    assert store.refused == ["load"]


async def test_the_gateway_serves_while_what_an_earlier_process_left_cannot_be_settled(
    server: ScriptedServer, tmp_path: Path
) -> None:
    async with falling(server, tmp_path) as gateway:
        (left,) = await leave_one_sent(server, tmp_path, await gateway.greeted())
    store = FailingStore(await file_store(tmp_path))
    store.failing = {"swap"}
    around = Environment(store=store)  # type: ignore[arg-type]
    async with serve(configuration({"reports": server.url}), around) as gateway:
        host = await gateway.greeted()
        assert (await host.task(left))["status"] == "working"
        store.failing = set()
        lost = await host.ask("tasks/result", {"taskId": left})
    assert lost.error["data"] == LOST


async def test_a_sweep_that_fails_is_made_again(gateway: Gateway, store: FailingStore) -> None:
    store.failing = {"purge"}
    await eventually(lambda: store.refused.count("purge") >= 2)
    store.failing = set()
    assert await gateway.count("taskgate_store_up") >= 0
