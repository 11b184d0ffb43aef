"""Released hosts get answers of megabytes that come after the first keep-alive, though some take no event of 1 MiB.

A host is one process with a connection for each call (`tests/peers/handoff_words.py`). Each asks for progress and can
be asked questions.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.left_behind import left_behind
from interop.hosts import OFFICIAL
from interop.peers import handoff_command, output_of, python_server, require_peers

pytestmark = [*OFFICIAL, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

KEEPALIVE, AFTER, SECONDS, PATIENCE = 0.5, 1.0, 2.5, 90.0
"""Seconds: the silence that begins an answer, when the gateway hands off, what the tool takes, and a whole host."""
SIZES = (2_000_000, 15_000_000)
HOSTS = ("python-2.3", "python-2.3-legacy", "fastmcp-4", "client", "client-stateless")
HANDOFF, PLAIN = "handoff", "plain"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """A gateway before a server whose tool has large results, on two mounts of which one hands calls off."""
    require_peers("mcp-2.3.0", "fastmcp-4.1.4")
    folder = tmp_path_factory.mktemp("large")
    async with python_server("large_server.py", "2.3.0", folder) as server:
        upstreams = {name: {"path": f"/{name}/mcp", "url": server, "health": None} for name in (HANDOFF, PLAIN)}
        rule = {"upstream": HANDOFF, "tool": "*", "mode": "auto", "handoff": {"after": f"{AFTER:g}s"}}
        config = write_configuration(
            folder,
            "",
            upstreams=json.dumps(upstreams),
            tasks=json.dumps({"upgrade": [rule]}),
            server=json.dumps({"listen": "127.0.0.1:0", "sse_keepalive": f"{KEEPALIVE * 1000:g}ms"}),
        )
        async with gateway_process(["--config", config], log=folder / "gateway.log") as gateway:
            yield gateway
    assert left_behind(folder) == []


@pytest.mark.parametrize("host", HOSTS)
async def test_a_released_host_gets_large_answers_that_come_late(gateway: GatewayProcess, host: str) -> None:
    plans = [
        {
            "url": gateway.url(mount),
            "patience": PATIENCE,
            "tool": "large",
            "given": {"size": size, "seconds": SECONDS},
            "then": "wait",
        }
        for mount in (PLAIN, HANDOFF)
        for size in SIZES
    ]
    status, output, errors = await output_of([*handoff_command(host), json.dumps(plans)], within=PATIENCE)
    assert status == 0, errors
    told: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    for plan, played in zip(plans, told, strict=True):
        last = played["turns"][-1]
        assert "error" not in last, last["error"]
        assert len(last["result"]["content"][0]["text"]) == plan["given"]["size"]
    assert [len(played["turns"]) for played in told] == [1, 1, 2, 2]


async def test_no_answer_was_a_larger_event_than_its_host_takes(gateway: GatewayProcess) -> None:
    assert [line for line in gateway.log_lines() if "server.event_limits" in str(line["event"])] == []
