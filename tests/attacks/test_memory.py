"""No caller takes memory without a bound, and one who is at a bound is refused while a neighbour is served."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from attacks.watch import watching
from helpers.gateway.process import serve_process
from helpers.host.host import Host
from helpers.modern_schema import CLIENT
from helpers.server import Hold, ScriptedServer, Turn, stream
from helpers.token_issuer import TokenIssuer
from helpers.waiting import bounded

pytestmark = [pytest.mark.attack, pytest.mark.alone]

MIB = 2**20
AUDIENCE = "https://mcp.example.com/reports"


async def test_streams_of_many_sessions_keep_no_more_than_their_caller_may(tmp_path: Path) -> None:
    async with bounded(60), ScriptedServer() as server, serve_process(tmp_path, server.url) as gateway:
        server.script["large"] = stream({"content": [{"type": "text", "text": "x" * MIB}]})

        async def session(http: aiohttp.ClientSession) -> None:
            host = gateway.host(http)
            await host.initialize()
            for _ in range(4):
                async with host.asking("tools/call", {"name": "large", "arguments": {}}) as answer:
                    await answer.end()

        async with aiohttp.ClientSession() as http, watching(gateway, "streams of many sessions") as watch:
            for _ in range(15):
                await asyncio.gather(*(session(http) for _ in range(2)))
        assert watch.longest_silence < 1
        # 120 MiB were carried, and 4 MiB of each of 30 sessions would be kept without a bound of their caller.
        assert watch.memory_growth < 64 * MIB


async def test_a_caller_with_many_large_calls_is_refused_and_a_neighbour_is_served(tmp_path: Path) -> None:
    hold, issuer = Hold(), TokenIssuer(tmp_path)
    section = json.dumps({"corp": {**issuer.section, "audience": [AUDIENCE]}})
    auth = f"{{mode: required, issuers: {section}}}"
    async with (
        bounded(60),
        ScriptedServer() as server,
        serve_process(tmp_path, server.url, auth=auth) as gateway,
        aiohttp.ClientSession() as http,
    ):
        server.script["large"] = hold
        url = gateway.url()
        caller, neighbour = (Host(http, url, issuer.token(AUDIENCE, subject=name)) for name in ("alice", "bob"))
        await caller.initialize()
        await neighbour.initialize()
        text = "x" * (4 * MIB - 512)
        async with watching(gateway, "large calls of one caller") as watch, asyncio.TaskGroup() as group:
            calls = [group.create_task(caller.call("large", {"text": text})) for _ in range(12)]
            while sum(each.done() for each in calls) < 4:
                await asyncio.sleep(0.01)
            began = asyncio.get_running_loop().time()
            answer = await neighbour.call("echo", {"text": text[:MIB]})
            waited = asyncio.get_running_loop().time() - began
            assert len(answer.result["structuredContent"]["text"]) == MIB
            hold.release({"content": []})
        refused = [each.result() for each in calls if "error" in (each.result().message or {})]
        assert len(server.heard("tools/call")) == 13 - len(refused)
        for each in refused:
            assert (each.status, each.code, each.error["data"]["reason"]) == (200, 429, "bytes")
            assert each.error["data"]["origin"] == "gateway"
        # Eight large bodies fit, and less than twelve.
        assert len(refused) == 4
        assert waited < 5
        assert watch.longest_silence < 2


def of_size(size: int) -> object:
    """A tool whose result is so many bytes."""

    async def reply(turn: Turn) -> web.StreamResponse:
        head = json.dumps({"jsonrpc": "2.0", "id": turn.id}).encode()[:-1]
        numbers = b"1," * (size // 2)
        body = head + b',"result":{"content":[],"structuredContent":{"a":[' + numbers + b"1]}}}"
        return web.Response(body=body, content_type="application/json")

    return reply


async def test_large_results_that_are_fetched_at_once_leave_one_after_the_other(tmp_path: Path) -> None:
    size = 15 * MIB
    async with bounded(90), ScriptedServer() as server, serve_process(tmp_path, server.url) as gateway:
        server.tools.append({"name": "large", "inputSchema": {"type": "object"}})
        server.script["large"] = of_size(size)  # type: ignore[assignment]
        async with aiohttp.ClientSession(read_bufsize=4 * MIB) as http:
            host = gateway.host(http)
            await host.initialize()
            task = (await host.start("large"))["taskId"]
            while (await host.task(task))["status"] == "working":
                await asyncio.sleep(0.05)
            asked = {"jsonrpc": "2.0", "id": 7, "method": "tasks/result", "params": {"taskId": task}}
            head = {
                "Accept": "application/json, text/event-stream",
                "Mcp-Session-Id": host.session or "",
                "MCP-Protocol-Version": "2025-11-25",
            }

            async def fetched() -> tuple[int, bytes]:
                length, last = 0, b""
                async with http.post(host.url, json=asked, headers=head) as answer:
                    async for piece in answer.content.iter_any():
                        length, last = length + len(piece), piece[-12:]
                return length, last

            async with watching(gateway, "one large result") as one:
                (length, last) = await fetched()
            assert length > size
            assert last.endswith(b",1]}}}")
            async with watching(gateway, "24 large results") as many:
                assert await asyncio.gather(*(fetched() for _ in range(24))) == [(length, last)] * 24
        # In a process that has served nothing large before, so that what it took is not hidden: `test_large_results`.
        assert one.memory_growth < 2 * size
        assert many.memory_growth < 5 * size
        assert many.longest_silence < 2


async def test_bodies_that_never_end_hold_no_more_than_their_caller_may(tmp_path: Path) -> None:
    async with bounded(60), ScriptedServer() as server, serve_process(tmp_path, server.url) as gateway:
        address, port = gateway.listen.split(":")
        head = (
            f"POST /reports/mcp HTTP/1.1\r\nHost: {gateway.listen}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {4 * MIB}\r\n\r\n"
        ).encode()
        async with watching(gateway, "bodies that never end") as watch:
            opened = [await asyncio.open_connection(address, int(port)) for _ in range(60)]
            for _, writer in opened:
                writer.write(head + b"x" * (4 * MIB - 1))
            ends = [asyncio.create_task(reader.readline()) for reader, _ in opened]
            while sum(each.done() for each in ends) < 40:
                await asyncio.sleep(0.01)
            refused = [each.result() for each in ends if each.done()]
            assert {line.split()[1] for line in refused if line} <= {b"429"}
            for each in ends:
                each.cancel()
            for _, writer in opened:
                writer.transport.abort()
            await asyncio.gather(*ends, return_exceptions=True)
        # 240 MiB were sent. Eight bodies more than there is room for are read, so that a refusal can name its request.
        assert watch.memory_growth < 100 * MIB


async def test_what_hosts_say_of_themselves_is_kept_in_part_alone(tmp_path: Path) -> None:
    async with bounded(60), ScriptedServer() as server, serve_process(tmp_path, server.url) as gateway:
        url, much = gateway.url(), {"name": "host", "version": "1", "much": ["ab"] * 600_000}
        async with aiohttp.ClientSession() as http:
            declared = {"protocolVersion": "2025-11-25", "capabilities": {"experimental": much}}
            assert (await Host(http, url).ask("initialize", declared)).code == -32602
            modern = Host(http, url, era="modern")
            await modern.ask("tools/list", meta={CLIENT: much})
            async with watching(gateway, "hosts that say much of themselves") as watch:
                for _ in range(15):
                    await Host(http, url).initialize(clientInfo=much)
                    assert (await modern.ask("tools/list", meta={CLIENT: much})).result["tools"]
        # One such object takes 45 MiB while it is read.
        assert watch.memory_growth < 128 * MIB
        assert watch.longest_silence < 2
