"""Bodies and answers whose JSON is written so that reading them takes long: others are served all the same (T35)."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from attacks.watch import watching
from helpers.gateway.process import GatewayProcess, serve_process
from helpers.server import ScriptedServer, raw
from helpers.waiting import bounded
from requirements import covers

pytestmark = [pytest.mark.attack, pytest.mark.alone]

SILENCE = 1.5
"""Seconds: a machine that other things keep busy needs most of it, and each attack made it 14 and more."""


class Host:
    """A session of the legacy era that sends any body."""

    def __init__(self, http: aiohttp.ClientSession, gateway: GatewayProcess) -> None:
        self._http = http
        self._url = gateway.url()
        self._head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    async def open(self) -> None:
        """Open the session."""
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}}
        await self.send(text({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info}))
        await self.send(text({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    async def send(self, body: str) -> str:
        """What the gateway answers."""
        async with self._http.post(self._url, data=io.BytesIO(body.encode()), headers=self._head) as response:
            session = response.headers.get("Mcp-Session-Id")
            self._head |= {} if session is None else {"Mcp-Session-Id": session}
            return await response.text()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[ScriptedServer, GatewayProcess, Host]]:
    """A server, a gateway before it, and a host with an open session."""
    async with (
        ScriptedServer() as server,
        serve_process(folder, server.url) as gateway,
        aiohttp.ClientSession() as http,
    ):
        host = Host(http, gateway)
        await host.open()
        yield server, gateway, host


def text(message: Any) -> str:
    return json.dumps(message)


def call(params: str) -> str:
    """A call of the tool; `params` are the members behind its name."""
    return f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo",{params}}}}}'


def empty_arrays(size: int) -> str:
    """Members that are empty arrays, in so many bytes."""
    return ",".join(f'"{number}":[]' for number in range(size // 11))


@covers("T35")
async def test_a_request_of_many_empty_arrays_silences_nothing(tmp_path: Path) -> None:
    async with bounded(50), opened(tmp_path) as (_, gateway, host):
        async with watching(gateway, "a request of empty arrays") as watch:
            await host.send(call(empty_arrays(600_000)))
        assert watch.longest_silence < SILENCE


async def test_an_answer_of_many_empty_arrays_silences_nothing(tmp_path: Path) -> None:
    async with bounded(50), opened(tmp_path) as (server, gateway, host):
        answer = f'{{"jsonrpc":"2.0","id":ID,"result":{{"content":[],{empty_arrays(600_000)}}}}}'

        async def hostile(turn: Any) -> Any:
            return await raw(answer.replace("ID", json.dumps(turn.message["id"])).encode())(turn)

        server.script["echo"] = hostile
        async with watching(gateway, "an answer of empty arrays") as watch:
            await host.send(call('"arguments":{}'))
        assert watch.longest_silence < SILENCE


def arguments(value: str, more: str = "") -> str:
    return call(f'"arguments":{{"a":{value}}}{more}')


SIZE = 4 * 2**20 - 1000
KEY = ',"_meta":{"io.taskgate/idempotency-key":"k"}'
NUMBERS = f"[{'0,' * (SIZE // 2)}0]"
BODIES: dict[str, str] = {
    "arrays": arguments(f"[{'[],' * (SIZE // 3)}0]"),
    "nests": arguments(f"[{('[' * 30 + ']' * 30 + ',') * (SIZE // 61)}0]"),
    "members": call(",".join(f'"{number:x}":0' for number in range(SIZE // 10))),
    "keys": call(f'"arguments":{{{",".join(f"{chr(34)}{number:x}{chr(34)}:0" for number in range(SIZE // 10))}}}'),
    "strings with a bracket": arguments("[" + '"[",' * (SIZE // 4) + "0]"),
    "short strings": arguments("[" + '"aa",' * (SIZE // 5) + "0]"),
    "numbers": arguments(NUMBERS),
    "numbers with an idempotency key": arguments(NUMBERS, KEY),
    "numbers for a task": arguments(NUMBERS, ',"task":{}'),
    "escapes": arguments('"' + "\\u0041" * (SIZE // 6) + '"'),
    "lone surrogates": arguments('["' + "\\ud800" * (SIZE // 6) + '"]'),
    "a key twice": call(f'"a":1,"a":2,"b":{NUMBERS}'),
    "no JSON": arguments(f"[{'0,' * (SIZE // 2)}"),
    "depth": "[" * SIZE,
}


async def test_large_bodies_of_any_shape_silence_nothing(tmp_path: Path) -> None:
    async with bounded(100), opened(tmp_path) as (server, gateway, host):
        server.script["echo"] = raw(b'{"jsonrpc":"2.0","id":0,"error":{"code":1,"message":"no"}}')
        for shape, body in BODIES.items():
            async with watching(gateway, f"4 MiB of {shape}") as watch:
                await host.send(body)
            assert watch.longest_silence < SILENCE, shape
