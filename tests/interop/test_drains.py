"""Released hosts whose calls run when their gateway is told to end: each gets its result, from that gateway."""

import asyncio
from pathlib import Path
from signal import SIGTERM
from time import monotonic

import httpx
import pytest

from helpers.gateway.process import serve_process
from helpers.waiting import bounded, eventually
from interop.peers import HOSTS, Told, python_server, require_peers, told_by

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

FIRST = (*HOSTS, "stateless-ext-tasks")
LAST = ("tasks-modern-python", "fastmcp-4")
"""Hosts that say nothing more once they have their result: the gateway may be gone by then."""
ASKED_AFTER, OVER_AFTER = 2.0, 8.0
"""Seconds for which all of the calls have run when the signal comes, and when they end."""
INTERVAL = 1.0
"""Seconds between two polls, as hosts are advised."""


async def test_each_released_host_gets_the_result_of_a_call_that_ends_while_its_gateway_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_peers("fastmcp-3.4.10", "fastmcp-4.1.4", "mcp-2.3.0", "mcp-1.23.3")
    monkeypatch.setenv("ENDS_WITHIN", "35")
    async with (
        bounded(100),
        python_server("refusals_server.py", "1.23.3", tmp_path) as server,
        httpx.AsyncClient(base_url=server.removesuffix("/mcp"), trust_env=False, timeout=40) as calls,
    ):
        async with serve_process(
            tmp_path,
            server,
            server={"listen": "127.0.0.1:0", "drain": {"delay": "5s", "timeout": "30s"}},
            tasks=f"{{inline_grace: 200ms, poll_interval: {{base: {INTERVAL:.0f}s, adaptive: false}}}}",
        ) as gateway:
            url = gateway.url()
            async with asyncio.TaskGroup() as hosts:
                playing: dict[str, asyncio.Task[list[Told]]] = {
                    host: hosts.create_task(told_by(host, url, [("hold", {"key": host})])) for host in (*FIRST, *LAST)
                }
                for host in playing:
                    await calls.get(f"/began/{host}")
                begun = monotonic()
                await eventually(lambda: monotonic() > begun + ASKED_AFTER)
                gateway.ask(SIGTERM)
                await eventually(lambda: monotonic() > begun + OVER_AFTER)
                for host in FIRST:
                    await calls.get(f"/let_go/{host}")
                await asyncio.wait([playing[host] for host in FIRST])
                for host in LAST:
                    await calls.get(f"/let_go/{host}")
                over = monotonic()
            assert await gateway.exit_status() == 0
            lasted = monotonic() - over
        told = {host: each.result()[0].get("result", each.result()[0]) for host, each in playing.items()}
    assert told == {host: f"held {host}" for host in playing}
    assert lasted < 2 * INTERVAL + 5
