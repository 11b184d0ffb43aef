"""What a large result takes of a gateway that has it stored, beyond what is stored: at most twice its size.

Each is measured in a process that has served nothing large before: memory that a process keeps for itself would hide
what the next result takes. Every answer is compared to the byte.
"""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from attacks.watch import watching
from helpers.gateway.process import serve_process
from helpers.gateway.replicas import store_section
from helpers.records import after, keep, new_record
from helpers.server import Reply, ScriptedServer, Turn
from helpers.store_server import SharedServer
from helpers.waiting import bounded
from taskgate.clock import SystemClock
from taskgate.domain.events import CallSucceeded, Dispatched
from taskgate.domain.record import TaskRecord
from taskgate.stores.sqlite.file import SqliteOptions, open_file
from taskgate.stores.sqlite.store import SqliteStore

pytestmark = [pytest.mark.attack, pytest.mark.alone]

MIB: Final = 2**20
SIZE: Final = 15 * MIB
OWN: Final = '{"io.modelcontextprotocol/related-task":{"taskId":"of the server"},"com.example/k":1}'
"""What a server says beside its result; what it says of a task of its own is not passed on."""

THEIRS: Final = '{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}'

RESULTS: Final = {
    "numbers": '{"content":[],"structuredContent":{"a":[' + "1," * (SIZE // 2) + "1]}}",
    "numbers, and more before them": '{"_meta":'
    + OWN
    + ',"content":[],"structuredContent":{"a":['
    + "1," * (SIZE // 2)
    + "1]}}",
    "numbers, and more after them": '{"content":[],"structuredContent":{"a":['
    + "1," * (SIZE // 2)
    + '1]},"_meta":'
    + OWN
    + "}",
    "letters of one byte and one of four": '{"content":[{"type":"text","text":"' + "x" * SIZE + '\U0001f600"}]}',
    "the same, and more after them": '{"content":[{"type":"text","text":"'
    + "x" * SIZE
    + '\U0001f600"}],"_meta":'
    + OWN
    + "}",
    "many arrays, and more after them": '{"content":[],"structuredContent":{"a":['
    + "[1]," * (SIZE // 4)
    + '[1]]},"_meta":'
    + OWN
    + "}",
    "one string": '{"content":[],"blob":"' + "x" * SIZE + '","_meta":' + OWN + "}",
    "of the modern era": '{"resultType":"complete","content":[],"structuredContent":{"a":['
    + "1," * (SIZE // 2)
    + '1]},"_meta":'
    + THEIRS
    + "}",
}


async def stored(folder: Path, result: str) -> TaskRecord:
    """A task that ended with this, in the store that a gateway of the folder will open."""
    options = SqliteOptions(
        path=folder / "taskgate.db", synchronous="NORMAL", busy_timeout=timedelta(seconds=5), max_size=2**40
    )
    store = SqliteStore(open_file(options))
    record = new_record(id="A" * 32, created_at=SystemClock().now())
    await keep(store, record)
    sent = after(record, Dispatched())
    assert await store.swap(sent, expected=record.revision)
    ended = after(sent, CallSucceeded(result=result, tool_error=False))
    assert await store.swap(ended, expected=sent.revision)
    await store.close()
    return ended


async def received(http: aiohttp.ClientSession, url: str, asked: object, head: dict[str, str]) -> bytes:
    """An answer as it came, without a second copy: the size of what is read is that of this process alone."""
    whole = bytearray()
    sent = {"Accept": "application/json, text/event-stream", **head}
    async with http.post(url, json=asked, headers=sent) as answer:
        async for piece in answer.content.iter_any():
            whole += piece
    return bytes(whole)


def with_ours(result: str, task: str) -> str:
    """The result as a host of 2025-11-25 has it, which names our task."""
    ours = f'{{"io.modelcontextprotocol/related-task":{{"taskId":"{task}"}}}}'
    if OWN in result:
        return result.replace('"of the server"', f'"{task}"')
    if THEIRS in result:
        return result.replace('"resultType":"complete",', "").replace(THEIRS, ours)
    return f'{{"_meta":{ours},{result[1:]}'


def without_ours(result: str) -> str:
    """The result as a host of 2026-07-28 has it, which knows the server by what stands in it."""
    plain = result.replace('"resultType":"complete",', "")
    plain = plain.replace(OWN, '{"com.example/k":1}')
    return f'{{"resultType":"complete",{plain[1:]}'


@pytest.mark.parametrize("kind", RESULTS)
async def test_a_result_that_is_fetched_with_tasks_result_takes_at_most_twice_its_size(
    tmp_path: Path, kind: str
) -> None:
    record = await stored(tmp_path, RESULTS[kind])
    async with (
        bounded(60),
        ScriptedServer() as server,
        serve_process(tmp_path, server.url) as gateway,
        aiohttp.ClientSession(read_bufsize=4 * MIB) as http,
    ):
        host = gateway.host(http)
        await host.initialize()
        await host.task(record.id)
        asked = {"jsonrpc": "2.0", "id": 7, "method": "tasks/result", "params": {"taskId": record.id}}
        head = {"Mcp-Session-Id": host.session or "", "MCP-Protocol-Version": "2025-11-25"}
        async with watching(gateway, f"tasks/result: {kind}") as watch:
            answer = await received(http, host.url, asked, head)
    expected = f'{{"jsonrpc":"2.0","id":7,"result":{with_ours(RESULTS[kind], record.id)}}}'.encode()
    # Not in the assertion: it would be shown whole.
    is_same = answer == expected
    assert is_same, (answer[:300], answer[-300:])
    assert watch.memory_growth <= 2 * SIZE
    assert watch.longest_silence < 1


@pytest.mark.parametrize("kind", RESULTS)
async def test_a_result_that_is_fetched_with_tasks_get_takes_at_most_twice_its_size(tmp_path: Path, kind: str) -> None:
    record = await stored(tmp_path, RESULTS[kind])
    async with (
        bounded(60),
        ScriptedServer() as server,
        serve_process(tmp_path, server.url) as gateway,
        aiohttp.ClientSession(read_bufsize=4 * MIB) as http,
    ):
        host = gateway.host(http, era="modern")
        await host.discover()
        asked = host.written("tasks/get", {"taskId": record.id})
        async with watching(gateway, f"tasks/get: {kind}") as watch:
            answer = await received(http, host.url, asked, host.routing(asked))
    expected = f',"result":{without_ours(RESULTS[kind])},"_meta":{{'.encode()
    at = answer.find(b',"result":', 40)
    is_same = answer.startswith(expected, at)
    assert is_same, (answer[:600], answer[-300:])
    assert len(answer) - len(expected) < 1000
    assert watch.memory_growth <= 2 * SIZE
    assert watch.longest_silence < 1


def answers(result: str) -> Reply:
    """A tool that has this result."""

    async def reply(turn: Turn) -> web.StreamResponse:
        text = f'{{"jsonrpc":"2.0","id":{json.dumps(turn.id)},"result":{result}}}'
        return web.Response(text=text, content_type="application/json")

    return reply


async def test_a_result_that_is_fetched_from_a_shared_store_takes_at_most_three_times_its_size(tmp_path: Path) -> None:
    """What comes from Valkey is there twice for a moment: as it arrives, and in one."""
    result = RESULTS["numbers, and more after them"]
    key = tmp_path / "key"
    key.write_text(token_urlsafe(32))
    key.chmod(0o600)
    async with (
        bounded(60),
        ScriptedServer() as server,
        SharedServer(tmp_path) as shared,
        aiohttp.ClientSession(read_bufsize=4 * MIB) as http,
    ):
        sections = {
            "store": json.dumps(store_section(shared.options())),
            "auth": f'{{mode: none, context: {{key_file: "{key}"}}}}',
            "audit": "{enabled: false}",
        }
        server.script["echo"] = answers(result)
        async with serve_process(tmp_path, server.url, **sections) as gateway:
            host = gateway.host(http)
            await host.initialize()
            task = (await host.start("echo"))["taskId"]
            while (await host.task(task))["status"] == "working":
                await asyncio.sleep(0.05)
        async with serve_process(tmp_path, server.url, **sections) as gateway:
            host = gateway.host(http)
            await host.initialize()
            asked = {"jsonrpc": "2.0", "id": 7, "method": "tasks/result", "params": {"taskId": task}}
            head = {"Mcp-Session-Id": host.session or "", "MCP-Protocol-Version": "2025-11-25"}
            async with watching(gateway, "tasks/result from Valkey") as watch:
                answer = await received(http, host.url, asked, head)
    is_same = answer == f'{{"jsonrpc":"2.0","id":7,"result":{with_ours(result, task)}}}'.encode()
    assert is_same, (answer[:300], answer[-300:])
    assert watch.memory_growth <= 3 * SIZE
