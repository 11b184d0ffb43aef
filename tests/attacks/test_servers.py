"""Servers that say far too much: the gateway answers everybody else all the while, and its memory stays bounded."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from attacks.watch import watching
from helpers.gateway.process import GatewayProcess, serve_process
from helpers.host.host import ACCEPT, Host
from helpers.server import Reply, ScriptedServer, Turn, open_stream
from helpers.waiting import bounded
from requirements import covers

pytestmark = [pytest.mark.attack, pytest.mark.alone]

MIB = 2**20


SCHEMA = {"inputSchema": {"type": "object"}}
SILENCE = 4.0
"""Seconds without an answer of /livez that a busy machine may take; unbounded, one list took 18."""


@asynccontextmanager
async def attacked(
    folder: Path, server: ScriptedServer, **sections: str
) -> AsyncIterator[tuple[GatewayProcess, Host, Host]]:
    """A gateway before that server, a host that has a session there, and a neighbour that has one too."""
    async with serve_process(folder, server.url, **sections) as gateway, aiohttp.ClientSession() as http:
        hosts = [gateway.host(http) for _ in range(2)]
        for host in hosts:
            await host.initialize()
        yield gateway, hosts[0], hosts[1]


async def waits(neighbour: Host, ended: asyncio.Event) -> float:
    """The longest that a call of a neighbour waited until then, in seconds."""
    longest = 0.0
    while not ended.is_set():
        began = time.monotonic()
        assert (await neighbour.call("echo", {"text": "hello"})).result["structuredContent"] == {"text": "hello"}
        longest = max(longest, time.monotonic() - began)
        await asyncio.sleep(0.01)
    return longest


async def while_the_neighbour_calls(neighbour: Host, attack: Callable[[], Awaitable[None]]) -> float:
    """Do that; the longest that a call of a neighbour waited meanwhile, in seconds."""
    ended = asyncio.Event()
    waiting = asyncio.create_task(waits(neighbour, ended))
    try:
        await attack()
    finally:
        ended.set()
        await asyncio.wait([waiting])
    return waiting.result()


def tools(count: int, **more: Any) -> bytes:
    """That many tools, as text."""
    return b",".join(json.dumps({"name": f"tool-{number}", **more}).encode() for number in range(count))


def lists(text: bytes, cursor: str = "") -> Reply:
    """Answers with those tools."""

    async def reply(turn: Turn) -> web.StreamResponse:
        body = b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[%s]%s}}' % (turn.id, text, cursor.encode())
        return web.Response(body=body, content_type="application/json")

    return reply


async def lists_tools(host: Host) -> bytes:
    """What a host gets for `tools/list`, unread: it would keep this process busy."""
    head = {"Mcp-Session-Id": host.session or "", "MCP-Protocol-Version": host.revision or "", "Accept": ACCEPT}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with host.http.post(host.url, json=message, headers=head) as response:
        return await response.read()


@covers("T43")
async def test_a_huge_list_of_tools_stalls_nobody(tmp_path: Path) -> None:
    huge = lists(b",".join([b'{"name":"a"}'] * (8 * MIB // 13)))
    largest = lists(tools(10_000, description="x" * 700, **SCHEMA))
    async with (
        bounded(60),
        ScriptedServer() as server,
        attacked(tmp_path, server) as (gateway, host, neighbour),
        watching(gateway, "one list of tools of 8 MiB") as watch,
    ):
        answers: list[bytes] = []

        async def attack() -> None:
            for reply in (huge, largest):
                server.methods["tools/list"] = reply
                answers.append(await lists_tools(host))

        waited = await while_the_neighbour_calls(neighbour, attack)
    refused = json.loads(answers[0])["error"]
    assert (refused["code"], refused["data"]["origin"], refused["data"]["reason"]) == (-32603, "upstream", "too_large")
    assert "result" in json.loads(answers[1]), answers[1][:600]
    assert len(json.loads(answers[1])["result"]["tools"]) == 10_000
    assert (watch.longest_silence < SILENCE, waited < SILENCE) == (True, True)
    assert watch.memory_growth < 400 * MIB


async def test_a_list_of_tools_with_hundreds_of_large_pages_is_given_up(tmp_path: Path) -> None:
    text = tools(300, description="x" * 3500, **SCHEMA)
    pages = count(1)

    async def endless(turn: Turn) -> web.StreamResponse:
        # A list ends with a page that has no new tool.
        page = next(pages)
        return await lists(text.replace(b"tool-", b"page-%d-" % page), f',"nextCursor":"{page}"')(turn)

    async with (
        bounded(60),
        ScriptedServer() as server,
        attacked(tmp_path, server) as (gateway, host, neighbour),
        watching(gateway, "a catalogue without an end") as watch,
    ):
        server.methods["tools/list"] = endless
        refused: list[dict[str, Any]] = []

        async def attack() -> None:
            refused.append((await host.call("page-1-1", task={})).error)

        waited = await while_the_neighbour_calls(neighbour, attack)
    assert (refused[0]["code"], refused[0]["data"]["reason"], refused[0]["data"]["dispatched"]) == (
        -32603,
        "too_large",
        False,
    )
    assert len(server.heard("tools/list")) <= 17
    assert (watch.longest_silence < SILENCE, waited < SILENCE) == (True, True)


FLOODS = {
    "comments": b": hello\n" * 4096,
    "empty lines": b"\n" * 32768,
    "other events": b"event: ping\ndata: 1\n\n" * 1560,
    "notifications": b'data: {"jsonrpc":"2.0","method":"notifications/none"}\n\n' * 600,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_an_endless_stream_beside_an_answer_ends_its_call_and_stalls_nobody(tmp_path: Path, flood: bytes) -> None:
    async def endless(turn: Turn) -> web.StreamResponse:
        response = await open_stream(turn.request)
        while True:
            await response.write(flood)
            await asyncio.sleep(0)

    async with (
        bounded(60),
        ScriptedServer() as server,
        attacked(tmp_path, server, tasks="{max_result: 2MiB}") as (gateway, host, neighbour),
        watching(gateway, "an endless stream") as watch,
    ):
        server.script["flood"] = endless
        failed: list[dict[str, Any]] = []

        async def attack() -> None:
            failed.extend([(await host.call("flood")).error for _ in range(3)])

        waited = await while_the_neighbour_calls(neighbour, attack)
    assert [error["data"]["reason"] for error in failed] == ["too_large"] * 3
    assert (watch.longest_silence < SILENCE, waited < SILENCE) == (True, True)
    assert watch.memory_growth < 100 * MIB
