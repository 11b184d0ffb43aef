"""A large message keeps nobody waiting: it is read in short pieces by other threads than the event loop's (S3, T35)."""

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from helpers.gateway.configuration import configuration
from helpers.gateway.gateway import Gateway, serve
from helpers.host.wire import head_of
from helpers.server import Hold, Rounds, ScriptedServer, Turn, asks, elsewhere, raw, result, stream
from helpers.server.legacy_tasks import LegacyTasks
from helpers.server.modern_tasks import TaskTool
from helpers.waiting import bounded, eventually
from interaction.bridges import FORM, bridge, modern
from interaction.programs import with_program
from interaction.questions import ACCEPTED
from interaction.server_tasks import gateway as native_modern
from interaction.server_tasks import natives, report, tasks

__all__ = ["bridge", "modern", "native_modern", "natives", "report", "tasks"]

MANY = {"many": [0] * 300_000}
"""As a host or a server writes it, just below the mebibyte that the scripted server takes."""
DONE = {"content": [], "structuredContent": MANY}
TWICE = {"content": [], "structuredContent": {"many": [0] * 600_000}}
LAST_WORDS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        info = {"name": "last words", "version": "1"}
        said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked.get("method") == "tools/call":
        said = {"content": [], "structuredContent": {"many": [0] * 300_000}}
    elif "id" in asked:
        said = {"tools": []}
    else:
        continue
    said = {"jsonrpc": "2.0", "id": asked["id"], "result": said}
    # As few write it: its ends do not tell whose it is.
    sys.stdout.write(json.dumps(said, separators=(" , ", " : ")) + "\\n")
    sys.stdout.flush()
    if asked["method"] == "tools/call":
        break
"""
LARGE, LONGEST, LITTLE = 256 * 1024, 1024 * 1024, 4 * 1024
"""Characters: what is read aside, the longest piece of it, and what a turn of the loop may read of a message."""
KEYED = {"_meta": {"io.taskgate/idempotency-key": "k"}}


class Readings:
    """What was handed to the parser of long values: by the loop's thread, by others, and the longest piece."""

    def __init__(self) -> None:
        self.by_loop = self.by_others = self.longest = 0
        self.held = threading.Event()
        """Cleared, it holds others than the loop's thread."""
        self.held.set()
        self._loop = threading.get_ident()
        self._parse = orjson.loads

    def loads(self, piece: str) -> Any:
        """As the parser's own."""
        if threading.get_ident() == self._loop:
            self.by_loop += len(piece)
        else:
            self.by_others += len(piece)
            self.longest = max(self.longest, len(piece))
            self.held.wait(15)
        return self._parse(piece)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    """What the gateway has the parser of the package `orjson` read from now on.

    Scripted hosts and servers have another one, or have had this one before.
    """
    readings = Readings()
    monkeypatch.setattr(orjson, "loads", readings.loads)
    return readings


def read_aside(readings: Readings) -> bool:
    """Whether something large was read, in pieces, and none of it by the loop."""
    assert readings.by_others > LARGE
    assert readings.longest <= LONGEST
    return readings.by_loop < LITTLE


Ask = Callable[[Gateway], Awaitable[object]]


async def plain(gateway: Gateway) -> object:
    return (await (await gateway.greeted()).call("echo", MANY)).result


async def as_task(gateway: Gateway) -> object:
    host = await gateway.greeted()
    task = await host.start("echo", MANY)
    return (await host.ask("tasks/result", {"taskId": task["taskId"]})).result


async def twice_under_a_key(gateway: Gateway) -> object:
    host = await gateway.greeted()
    first = (await host.call("echo", MANY, task={}, **KEYED)).result
    assert (await host.call("echo", MANY, task={}, **KEYED)).result["task"]["taskId"] == first["task"]["taskId"]
    return (await host.call("echo", MANY, **KEYED)).result


async def under_a_key(gateway: Gateway) -> object:
    return (await (await gateway.greeted()).call("echo", MANY, **KEYED)).result


async def with_more_beside(gateway: Gateway) -> object:
    return (await (await gateway.greeted()).call("echo", MANY, _meta={"x": 1})).result


async def in_modern_era(gateway: Gateway) -> object:
    return (await gateway.modern().call("echo", MANY)).result


async def batch(gateway: Gateway) -> object:
    host = await gateway.greeted("2025-03-26")
    params = {"name": "echo", "arguments": MANY}
    calls = [{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params} for id in (1, 2)]
    head = head_of(host, Content_Type="application/json", Accept="application/json, text/event-stream")
    async with bounded(), host.http.post(host.url, data=BytesIO(json.dumps(calls).encode()), headers=head) as response:
        return next(each["result"] for each in await response.json())


@pytest.mark.parametrize("ask", [plain, as_task, under_a_key, twice_under_a_key, in_modern_era, batch])
async def test_large_arguments_are_read_by_no_turn_of_the_loop(
    server: ScriptedServer, gateway: Gateway, readings: Readings, ask: Ask
) -> None:
    server.script["echo"] = result({"content": []})
    assert await ask(gateway)
    assert server.heard("tools/call")[0]["params"]["arguments"] == MANY
    assert read_aside(readings)


@pytest.mark.parametrize("ask", [plain, with_more_beside, as_task, in_modern_era])
async def test_nor_are_those_for_a_modern_server(
    modern: ScriptedServer, bridge: Gateway, readings: Readings, ask: Ask
) -> None:
    modern.script["echo"] = result({"content": []})
    assert await ask(bridge)
    assert modern.heard("tools/call")[0]["params"]["arguments"] == MANY
    assert read_aside(readings)


@pytest.mark.parametrize("body", [b'[{"a":[%s0]}', b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[%s}}'])
async def test_what_is_no_json_is_refused_without_a_turn_of_the_loop(
    gateway: Gateway, readings: Readings, body: bytes
) -> None:
    host = await gateway.greeted("2025-03-26")
    assert (await host.post(body % (b"0," * LARGE))).code == -32700
    assert read_aside(readings)


@pytest.mark.parametrize(
    "reply", [result(DONE), stream(DONE), elsewhere(DONE)], ids=["document", "event", "another stream"]
)
async def test_a_large_answer_is_read_by_no_turn_of_the_loop(
    server: ScriptedServer, gateway: Gateway, readings: Readings, reply: Any
) -> None:
    server.script["echo"] = reply
    answer = (await (await gateway.greeted()).call("echo")).result
    assert answer["structuredContent"] == MANY
    assert read_aside(readings)


@pytest.mark.parametrize("reply", [result(DONE), stream(DONE)], ids=["document", "event"])
async def test_nor_is_that_of_a_modern_server(
    modern: ScriptedServer, bridge: Gateway, readings: Readings, reply: Any
) -> None:
    modern.script["echo"] = reply
    answer = (await bridge.modern().call("echo")).result
    assert answer["structuredContent"] == MANY
    assert read_aside(readings)


async def test_nor_is_what_came_of_a_task_of_the_server(
    gateway: Gateway, tasks: LegacyTasks, readings: Readings
) -> None:
    host = await gateway.greeted()
    created = await host.start("research")
    (await tasks.made()).complete(TWICE)
    await host.until(created["taskId"], "completed")
    assert (await host.ask("tasks/result", {"taskId": created["taskId"]})).result["structuredContent"] == TWICE[
        "structuredContent"
    ]
    assert read_aside(readings)


async def test_nor_what_came_of_one_of_a_modern_server(
    native_modern: Gateway, report: TaskTool, readings: Readings
) -> None:
    host = await native_modern.greeted()
    created = await host.start("report")
    (await report.made()).complete(TWICE)
    await host.until(created["taskId"], "completed")
    assert (await host.ask("tasks/result", {"taskId": created["taskId"]})).result["structuredContent"] == TWICE[
        "structuredContent"
    ]
    assert read_aside(readings)


async def test_nor_what_a_server_says_beside_an_error_status(
    server: ScriptedServer, gateway: Gateway, readings: Readings
) -> None:
    server.script["echo"] = result(DONE, status=500)
    assert "HTTP status 500" in (await (await gateway.greeted()).call("echo")).error["message"]
    assert read_aside(readings)


async def test_nor_an_error_of_a_modern_server_that_names_no_request(
    modern: ScriptedServer, bridge: Gateway, readings: Readings
) -> None:
    said = {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "no", "data": MANY}}
    modern.script["echo"] = raw(json.dumps(said).encode(), status=400)
    assert (await (await bridge.greeted()).call("echo")).error["data"] == MANY
    assert read_aside(readings)


async def test_nor_what_it_says_on_a_stream_of_its_news(
    modern: ScriptedServer, bridge: Gateway, readings: Readings
) -> None:
    modern.capabilities = {"tools": {"listChanged": True}}
    modern.methods["subscriptions/listen"] = stream(DONE)
    async with bridge.modern().listen(toolsListChanged=True):
        await eventually(lambda: readings.by_others > LARGE)
    assert read_aside(readings)


async def test_nor_is_a_large_request_that_is_sent_again_with_answers(
    modern: ScriptedServer, bridge: Gateway, readings: Readings
) -> None:
    modern.script["echo"] = rounds = Rounds({"inputRequests": {"a": FORM}, "requestState": "s"})
    host = bridge.modern(capabilities={"elicitation": {"form": {}}}, tasks=False)
    state = (await host.call("echo", MANY)).result["requestState"]
    await host.call("echo", MANY, requestState=state, inputResponses={"a": ACCEPTED})
    assert rounds.answers == [{"a": ACCEPTED}]
    assert [turn.message["params"]["arguments"] == MANY for turn in rounds.turns] == [True, True]
    assert read_aside(readings)


async def test_nor_is_one_whose_server_asks_in_the_middle_of_it(
    server: ScriptedServer, gateway: Gateway, readings: Readings
) -> None:
    server.script["echo"] = asks({"jsonrpc": "2.0", "id": "q-1", **FORM})
    host = gateway.modern(capabilities={"elicitation": {"form": {}}}, tasks=False)
    asked = (await host.call("echo", MANY)).result
    [key] = asked["inputRequests"]
    params = {"requestState": asked["requestState"], "inputResponses": {key: ACCEPTED}}
    assert "result" in (await host.call("echo", MANY, **params)).message
    assert read_aside(readings)


async def test_nor_is_a_large_error_that_is_written_anew(
    server: ScriptedServer, gateway: Gateway, readings: Readings
) -> None:
    async def missing(turn: Turn) -> web.StreamResponse:
        said = {"code": -32002, "message": "Resource not found", "data": MANY}
        return web.json_response({"jsonrpc": "2.0", "id": turn.id, "error": said})

    server.methods["resources/read"] = missing
    answer = await gateway.modern().ask("resources/read", {"uri": "a://b"})
    assert answer.code == -32602
    assert answer.error["data"]["many"] == MANY["many"]
    assert read_aside(readings)


async def test_nor_is_a_large_answer_of_a_program(readings: Readings) -> None:
    async with serve(with_program()) as gateway:
        host = await gateway.greeted()
        assert (await host.call("echo", MANY)).result["structuredContent"] == MANY
    assert read_aside(readings)


async def test_an_answer_that_a_program_writes_before_it_ends_is_not_lost(readings: Readings, tmp_path: Path) -> None:
    file = tmp_path / "last_words.py"
    file.write_text(LAST_WORDS)
    section = {"path": "/reports/mcp", "transport": "stdio", "command": [sys.executable, "-IS", str(file)]}
    async with serve(configuration({}, upstreams={"reports": section})) as gateway:
        host = await gateway.greeted()
        assert (await host.call("echo")).result["structuredContent"] == MANY
    assert read_aside(readings)


async def test_a_cancel_waits_for_a_large_call_that_came_before_it(
    server: ScriptedServer, gateway: Gateway, readings: Readings
) -> None:
    server.script["echo"] = Hold()
    host = await gateway.greeted()
    readings.held.clear()
    asking = asyncio.create_task(host.ask("tools/call", {"name": "echo", "arguments": MANY}, id="c"))
    await eventually(lambda: readings.by_others)
    cancelling = asyncio.create_task(host.tell("notifications/cancelled", {"requestId": "c"}))
    other = await gateway.greeted()
    assert (await other.tell("notifications/cancelled", {"requestId": "c"})).status == 202, "another session's does not"
    assert not cancelling.done()
    readings.held.set()
    async with bounded():
        assert ((await cancelling).status, (await asking).status) == (202, 202)


ODD = {"x": 1, "jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": MANY}}


async def test_a_large_notification_that_is_written_oddly_is_passed_over_as_any_other(
    server: ScriptedServer, gateway: Gateway, readings: Readings
) -> None:
    server.script["echo"] = stream({"content": []}, before=[ODD], progress=1)
    host = await gateway.greeted()
    async with bounded(), host.asking("tools/call", {"name": "echo", "_meta": {"progressToken": "p"}}) as said:
        await said.result()
    assert said.of("notifications/progress")
    assert not said.of("notifications/message")
    assert read_aside(readings)


async def test_nor_is_it_passed_on_by_a_modern_server(
    modern: ScriptedServer, bridge: Gateway, readings: Readings
) -> None:
    modern.script["echo"] = stream({"content": []}, before=[ODD])
    async with bounded(), bridge.modern().asking("tools/call", {"name": "echo", "arguments": {}}) as said:
        await said.result()
    assert not said.of("notifications/message")
    assert read_aside(readings)
