"""Servers that flood a call with small notifications: little work for the gateway, and everybody else is answered."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from attacks.watch import watching
from helpers.gateway.process import GatewayProcess, serve_process
from helpers.host.host import ACCEPT, Host
from helpers.server import ScriptedServer, Turn, open_stream
from helpers.waiting import bounded
from requirements import covers

pytestmark = [pytest.mark.attack, pytest.mark.alone]

MIB = 2**20
FLOOD = 4 * MIB
"""Bytes of notifications beside one answer."""
SILENCE = 4.0
"""Seconds without an answer of /livez that a busy machine may take."""
SHARE = 0.5
"""Of one processor, that a flood takes: a tenth where this was written, and two thirds before it was read slowly."""
PIECE = 500
"""Notifications that the server writes at once."""


def processor(gateway: GatewayProcess) -> float:
    """Seconds of processor time that the gateway has taken so far."""
    stat = Path(f"/proc/{gateway.child.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def event(method: str, params: dict[str, Any]) -> bytes:
    """A notification as an event."""
    return b"data: " + json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n\n"


def progress(token: Any, number: int) -> bytes:
    """How far a call is."""
    return event("notifications/progress", {"progressToken": token, "progress": number, "message": "working"})


def log_line(token: Any, number: int) -> bytes:
    """A line for a log."""
    return event("notifications/message", {"level": "info", "data": f"line {number}"})


async def call(host: Host, tool: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What comes beside the answer of a call, and its answer: nothing is judged, so this process keeps up."""
    head = {"Mcp-Session-Id": host.session or "", "MCP-Protocol-Version": host.revision or "", "Accept": ACCEPT}
    params = {"name": tool, "arguments": {}, "_meta": {"progressToken": "mine"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with host.http.post(host.url, json=message, headers=head) as response:
        body = await response.read()
    messages = [json.loads(each) for event in body.split(b"\n\n") if (each := event.partition(b"data: ")[2])]
    return messages[:-1], messages[-1]


@covers("T43")
@pytest.mark.parametrize("written", [progress, log_line])
async def test_a_flood_of_small_notifications_costs_little_and_stalls_nobody(
    tmp_path: Path, written: Callable[[Any, int], bytes]
) -> None:
    sent = 0

    async def flood(turn: Turn) -> web.StreamResponse:
        nonlocal sent
        response, size = await open_stream(turn.request), 0
        while size < FLOOD:
            piece = b"".join(written(turn.token, sent + number) for number in range(PIECE))
            sent, size = sent + PIECE, size + len(piece)
            await response.write(piece)
        last = {"jsonrpc": "2.0", "id": turn.id, "result": {"content": []}}
        await response.write(b"data: " + json.dumps(last).encode() + b"\n\n")
        return response

    async with (
        bounded(50),
        ScriptedServer() as server,
        serve_process(tmp_path, server.url) as gateway,
        aiohttp.ClientSession() as http,
        watching(gateway, "a flood of small notifications") as watch,
    ):
        host = gateway.host(http)
        await host.initialize()
        server.script["flood"] = flood
        before, began = processor(gateway), time.monotonic()
        beside, answer = await call(host, "flood")
        seconds = time.monotonic() - began
        share = (processor(gateway) - before) / seconds
    sys.stdout.write(
        f"{sent} notifications, {len(beside)} passed on in {seconds:.1f} s, {share:.2f} of a processor, "
        f"{1e6 * share * seconds / sent:.1f} us each\n"
    )
    assert answer["result"] == {"content": []}
    if written is progress:
        assert beside[-1]["params"]["progress"] == sent - 1
        # A thousand at once, 200 a second, and the newest of each turn.
        assert len(beside) < 1000 + 200 * (seconds + 1) + FLOOD / 2**15 * 2
    else:
        assert len(beside) == sent
    assert share < SHARE
    assert watch.longest_silence < SILENCE
    assert watch.memory_growth < 100 * MIB
