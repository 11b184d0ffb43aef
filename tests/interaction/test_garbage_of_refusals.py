"""What is refused, or fails, leaves nothing in memory that only a collection of cycles would find."""

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.error_cycles import error_cycles
from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Environment, Gateway, MemoryPressure, serve
from helpers.host.host import ACCEPT, both_eras
from helpers.refused_bodies import SPOILT, arguments, posted, send
from helpers.server import Hold, Reply, ScriptedServer, breaks_off, error, raw, resets, status
from helpers.waiting import bounded, eventually, until
from interaction.bridges import bridge, modern
from requirements import covers

__all__ = ["bridge", "modern"]

SIZE = 600_000
"""Bytes above which a body is read on another thread, and twice so."""

Frames = Callable[[], set[str]]


@pytest.fixture
def frames() -> Iterator[Frames]:
    """The functions of the package whose frames are garbage because of an error, with the reason."""
    with error_cycles() as cycles:
        yield cycles.found


@covers("T57")
@both_eras
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
async def test_a_large_body_that_is_refused(gateway: Gateway, frames: Frames, era: str, spoil: Any) -> None:
    host = await gateway.greeted(era=era)
    answer = await send(host, SIZE, spoil)
    assert answer.message is None or "error" in answer.message
    assert frames() == set()


# --- what is refused once it is read ----------------------------------------------------------------------------------


DENIED = {"default": "deny"}
ONE_CALL = {"rate": [{"name": "calls", "scope": "context", "rate": "1/h", "burst": 1, "methods": ["tools/call"]}]}
BODIES = {"name": "bodies", "scope": "subject", "rate": "1/h", "burst": 600, "event": "large_body"}
NO_ROOM = {"concurrency": {"bytes_in_flight_per_context": "1MiB", "bytes_in_flight_global": "1MiB"}}
LITTLE_KEPT = {"concurrency": {"kept_per_context": "1MiB", "kept_global": "1MiB"}}


@both_eras
async def test_a_large_call_over_a_rate(server: ScriptedServer, frames: Frames, era: str) -> None:
    async with serve(configuration({"reports": server.url}, limits=ONE_CALL)) as gateway:
        host = await gateway.greeted(era=era)
        assert "result" in ((await host.call("echo")).message or {})
        assert (await send(host, SIZE)).code == 429
        assert frames() == set()


@both_eras
@pytest.mark.parametrize("wait", ["0s", "3s"])
async def test_a_large_body_over_the_rate_of_bytes(server: ScriptedServer, frames: Frames, era: str, wait: str) -> None:
    limits = {"rate": [{**BODIES, "rate": "600/s"} if wait == "3s" else BODIES], "wait": wait}
    async with serve(configuration({"reports": server.url}, limits=limits)) as gateway, bounded():
        host = await gateway.greeted(era=era)
        answers = [await send(host, SIZE) for _ in range(2)]
        assert [each.status for each in answers] == [200, 200 if wait == "3s" else 429]
        assert frames() == set()


@both_eras
async def test_a_large_call_without_room(server: ScriptedServer, frames: Frames, era: str) -> None:
    server.script["echo"] = hold = Hold()
    async with serve(configuration({"reports": server.url}, limits=NO_ROOM)) as gateway, asyncio.TaskGroup() as group:
        host = await gateway.greeted(era=era)
        first = group.create_task(send(host, SIZE))
        async with bounded():
            await hold.begun.wait()
        for spoil in (None, SPOILT["a batch"], SPOILT["bad JSON"]):
            assert (await send(host, SIZE, spoil)).status in (200, 400, 429)
        hold.release({"content": []})
        await first
        assert frames() == set()


@both_eras
async def test_a_large_call_that_a_rule_denies(server: ScriptedServer, frames: Frames, era: str) -> None:
    async with serve(configuration({"reports": server.url}, authorization=DENIED)) as gateway:
        assert (await send(await gateway.greeted(era=era), SIZE)).code == 403
        assert frames() == set()


@both_eras
async def test_a_large_call_of_a_gateway_that_drains(server: ScriptedServer, frames: Frames, era: str) -> None:
    server.script["report"] = hold = Hold()
    async with serve(configuration({"reports": server.url})) as gateway, asyncio.TaskGroup() as group:
        host = await gateway.greeted(era=era)
        running_call = group.create_task(host.call("report"))
        async with bounded():
            await hold.begun.wait()
        draining = group.create_task(gateway.drain())
        answer = await until(lambda: send(host, SIZE), lambda answer: "error" in (answer.message or {}))
        assert answer.code == 503
        assert frames() == set()
        hold.release({"content": []})
        await running_call
        await draining


@both_eras
async def test_a_large_call_while_memory_is_short(server: ScriptedServer, frames: Frames, era: str) -> None:
    used = [0]
    pressure = MemoryPressure(limit=1000, resident=lambda: used[0])
    async with serve(configuration({"reports": server.url}), Environment(pressure=pressure)) as gateway:
        host = await gateway.greeted(era=era)
        used[0] = 800
        await eventually(lambda: pressure.level)
        # It is refused by its head, before its id is read.
        assert (await send(host, SIZE)).status == 503
        assert frames() == set()


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "in a file"])
async def test_a_large_call_over_a_cap_of_tasks(
    server: ScriptedServer, frames: Frames, tmp_path: Path, stored: bool
) -> None:
    server.script["echo"] = hold = Hold()
    limits = {"concurrency": {"tasks_per_context": 1}}
    folder = tmp_path if stored else None
    async with serve(configuration({"reports": server.url}, folder=folder, limits=limits)) as gateway:
        host = await gateway.greeted()
        await host.start("echo")
        assert (await host.call("echo", arguments(SIZE), task={})).code == 429
        hold.release({"content": []})
        assert frames() == set()


async def test_a_large_message_of_no_session(gateway: Gateway, frames: Frames) -> None:
    host = await gateway.greeted()
    host.session = "A" * 32
    assert (await send(host, SIZE)).status == 404
    assert frames() == set()


async def test_large_messages_of_a_batch(gateway: Gateway, frames: Frames) -> None:
    host = await gateway.greeted("2025-03-26")
    for name in ("a repeated key", "a key that looks alike", "a tool that is not there", "a batch"):
        body, _ = posted(host, SIZE, SPOILT[name])
        headers = {"Content-Type": "application/json", "Accept": ACCEPT, **host.head()}
        async with bounded(), host.http.post(host.url, data=io.BytesIO(b"[" + body + b"]"), headers=headers) as answer:
            assert answer.status == 200
    assert frames() == set()


@both_eras
async def test_a_large_answer_to_nothing(gateway: Gateway, frames: Frames, era: str) -> None:
    host = await gateway.greeted(era=era)
    body = json.dumps({"jsonrpc": "2.0", "id": "none", "result": arguments(SIZE)}).encode()
    assert (await host.post(body)).status < 500
    assert frames() == set()


# --- what fails at its server -----------------------------------------------------------------------------------------


FAILURES = {
    "an error": error(-32000, "no"),
    "an HTTP status": status(500),
    "another HTTP status": status(400),
    "no session": status(404),
    "no JSON": raw(b"{" * SIZE),
    "too large": raw(b" " * (17 * 2**20)),
    "a connection that is reset": resets(),
    "a stream that breaks off": breaks_off({"jsonrpc": "2.0", "method": "notifications/none"}),
}


@both_eras
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_large_call_that_fails_at_its_server(
    gateway: Gateway, server: ScriptedServer, frames: Frames, era: str, failure: Reply
) -> None:
    server.script["echo"] = failure
    host = await gateway.greeted(era=era)
    assert (await send(host, SIZE)).error
    assert frames() == set()


@both_eras
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_large_call_whose_modern_server_fails(
    bridge: Gateway, modern: ScriptedServer, frames: Frames, era: str, failure: Reply
) -> None:
    modern.script["echo"] = failure
    host = await bridge.greeted(era=era)
    assert (await send(host, SIZE)).error
    assert frames() == set()


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_large_call_as_a_task_that_fails(
    gateway: Gateway, server: ScriptedServer, frames: Frames, failure: Reply
) -> None:
    server.script["echo"] = failure
    host = await gateway.greeted()
    task = await host.start("echo", arguments(SIZE))
    assert (await host.ask("tasks/result", {"taskId": task["taskId"]})).error
    assert frames() == set()


@pytest.fixture
async def refusing() -> AsyncIterator[ScriptedServer]:
    """A server that refuses `initialize`, so it is asked for discovery too, which its own revision lacks."""
    async with ScriptedServer() as server:
        yield server


@both_eras
@pytest.mark.parametrize("revision", ["auto", "2025-11-25"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_session_that_its_server_refuses(
    refusing: ScriptedServer, frames: Frames, era: str, revision: str, failure: Reply
) -> None:
    server = refusing
    server.methods["initialize"] = failure
    section = {"reports": {"path": "/reports/mcp", "url": server.url, "protocol_version": revision}}
    async with serve(configuration({}, upstreams=section)) as gateway:
        if era == "modern":
            answer = await send(gateway.modern(), SIZE)
        else:
            answer = await gateway.host().ask("initialize", WELCOME)
        assert "error" in (answer.message or {})
        assert frames() == set()


@both_eras
@pytest.mark.parametrize("revision", ["auto", "2025-11-25"])
async def test_a_session_whose_server_says_too_much(
    server: ScriptedServer, frames: Frames, era: str, revision: str
) -> None:
    server.info = {"name": "scripted", "version": "1", "much": "x" * 6 * 2**20}
    section = {"reports": {"path": "/reports/mcp", "url": server.url, "protocol_version": revision}}
    async with serve(configuration({}, upstreams=section)) as gateway:
        if era == "modern":
            answer = await send(gateway.modern(), SIZE)
        else:
            answer = await gateway.host().ask("initialize", WELCOME)
        assert "error" in (answer.message or {})
        assert frames() == set()


WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}


@both_eras
@pytest.mark.parametrize("ends", ["no program", "a program that ends"])
async def test_a_large_call_for_a_program_that_does_not_start(frames: Frames, era: str, ends: str) -> None:
    command = ["/none"] if ends == "no program" else [sys.executable, "-IS", "-c", "pass"]
    section = {"reports": {"path": "/reports/mcp", "transport": "stdio", "command": command}}
    async with serve(configuration({}, upstreams=section)) as gateway:
        if era == "modern":
            answer = await send(gateway.modern(), SIZE)
        else:
            answer = await gateway.host().ask("initialize", {**WELCOME, "much": "x" * SIZE})
        assert "error" in (answer.message or {})
        assert frames() == set()
