"""Requests that schemathesis makes from the published document of the operators' API, to a gateway in its own process.

    DOCUMENT_EXAMPLES=400 DOCUMENT_SEED=7 …    more requests of each operation, and others

It holds each answer against the document: status, headers, body, what is refused and what is taken, and who may.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import GatewayProcess, gateway_process
from helpers.server import Hold, ScriptedServer, error
from interaction.operators import OPS, VIEWER, tokens

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800 if "DOCUMENT_SEED" in os.environ else 120)]

EXAMPLES = os.environ.get("DOCUMENT_EXAMPLES", "15")
SEED = os.environ.get("DOCUMENT_SEED")
TESTS = Path(__file__).parents[1]
API = "/api/v1"
ENDLESS, ENDING = f"{API}/events", f"{API}/drain"
"""A stream goes on for ever, and a drain ends the gateway: of these, requests are made that must be refused."""
CONFIGURATION = """
[warnings]
fail-on = ["rate_limited", "unmatched_filter", "unresolvable_reference", "unsupported_regex"]
"""


@asynccontextmanager
async def busy_gateway(folder: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway with a task of each status but `input_required`, and a session of their host."""
    async with ScriptedServer() as server:
        server.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "report", "broken")]
        server.script["report"] = Hold()
        server.script["broken"] = error(-32000, "no")
        file = write_configuration(folder, server.url, admin=tokens(folder))
        log = folder / "gateway.log"
        async with gateway_process(["--config", file], log=log) as gateway, aiohttp.ClientSession() as http:
            host = gateway.host(http)
            await host.initialize()
            for _ in range(2):
                await host.start("report")
            await host.ask("tasks/cancel", {"taskId": (await host.start("report"))["taskId"]})
            for tool in ("echo", "broken"):
                # It waits for the end.
                await host.ask("tasks/result", {"taskId": (await host.start(tool))["taskId"]})
            yield gateway


async def expect_no_findings(gateway: GatewayProcess, folder: Path, token: str, *options: str) -> None:
    """Run schemathesis, and fail with all that it says if it finds anything."""
    configuration = folder / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
    command = [
        *(str(Path(sys.executable).with_name("st")), "--config-file", str(configuration), "run", "--no-color"),
        *(f"http://{gateway.admin}{API}/openapi.json", "--header", f"Authorization: {token}", "--checks", "all"),
        *("--max-examples", EXAMPLES, "--continue-on-failure", "--request-timeout", "20"),
        # How fast the machine makes up requests says nothing about the API.
        *("--suppress-health-check", "all"),
        *(("--generation-deterministic",) if SEED is None else ("--seed", SEED)),
        *options,
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "SCHEMATHESIS_HOOKS": "interop.document_hooks",
        "RIGHT_TOKEN": token,
    }
    running = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        said, _ = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    if running.returncode:
        pytest.fail(said.decode(errors="replace"), pytrace=False)


@pytest.mark.parametrize("token", [OPS, VIEWER], ids=["operator", "viewer"])
async def test_answers_to_requests_from_the_document_are_as_it_says(tmp_path: Path, token: str) -> None:
    async with busy_gateway(tmp_path) as gateway:
        others = ("--exclude-path", ENDLESS, "--exclude-path", ENDING)
        await expect_no_findings(gateway, tmp_path, token, *others)


async def test_wrong_requests_for_a_stream_and_a_drain_are_refused_as_the_document_says(tmp_path: Path) -> None:
    async with busy_gateway(tmp_path) as gateway:
        chosen = ("--include-path", ENDLESS, "--include-path", ENDING, "--mode", "negative")
        await expect_no_findings(gateway, tmp_path, OPS, *chosen)
