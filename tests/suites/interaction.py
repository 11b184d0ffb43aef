"""The interaction suite of `mcp` between real sockets, with taskgate in between or without it.

The rows are the tests that run on each transport. A part of the suite is a process, with a gateway of its own. Each
connection of a test has its own mount, since a gateway remembers what it has learnt of a server.
"""

import asyncio
import json
import os
import socket
from pathlib import Path

from example import environments
from example.processes import running

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from suites.verdicts import INTERACTION, Outcomes

PARTS = {
    "legacy hosts, servers with sessions": "streamable-http-2025-11-25",
    "legacy hosts, servers without sessions": "streamable-http-stateless-2025-11-25",
    "modern hosts": "streamable-http-2026-07-28",
}
"""The parts, and what the suite calls their transport and revision."""
MOUNTS = 160
"""No part connects more often."""
WITHIN = 240.0
SOURCE = environments.source_of(INTERACTION.environment)
TESTS = SOURCE / "tests" / "interaction"


async def directly(part: str, folder: Path) -> Outcomes:
    """The outcomes of a part without a gateway."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return await _run(PARTS[part], listener, _url(listener), folder)


async def through_taskgate(part: str, folder: Path) -> Outcomes:
    """The outcomes of a part through a gateway."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        upstreams = {
            f"suite-{number}": {"path": f"/{number}/mcp", "url": f"{_url(listener)}/{number}/mcp", "health": None}
            for number in range(MOUNTS)
        }
        file = write_configuration(folder, "", upstreams=upstreams)
        async with gateway_process(["--config", file], log=folder / "gateway.log") as gateway:
            return await _run(PARTS[part], listener, f"http://{gateway.listen}", folder)


async def _run(transport: str, listener: socket.socket, url: str, folder: Path) -> Outcomes:
    written, log = folder / "outcomes.json", folder / "suite.log"
    # The suite's own fixtures for all of its folders need packages without wheels, and are about the SDK alone.
    options = ("--rootdir", SOURCE, "--confcutdir", TESTS, "-c", SOURCE / "pyproject.toml", "-o", "addopts=")
    # The suite has no sockets of its own: one that is left to the collector is the plugin's or the server's.
    warnings = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
    plugins = ("-p", "interaction_plugin", "-p", "no:cacheprovider", *warnings)
    files = [file for file in sorted(TESTS.rglob("test_*.py")) if "connect: Connect" in file.read_text()]
    environment = {
        "PYTHONPATH": os.fspath(Path(__file__).parent),
        "SUITE_SOCKET": str(listener.fileno()),
        "SUITE_URL": url,
        "SUITE_OUTCOMES": os.fspath(written),
    }
    command = (environments.python_of(INTERACTION.environment), "-m", "pytest", "--quiet", *options, *plugins)
    async with running(
        [*command, "-k", transport, *files], log=log, environment=environment, pass_fds=[listener.fileno()]
    ) as child:
        async with asyncio.timeout(WITHIN):
            await child.process.wait()
    assert written.exists(), log.read_text()
    return {_row(name, transport): problem for name, problem in json.loads(written.read_text()).items()}


def _row(name: str, transport: str) -> str:
    return name.removeprefix("tests/interaction/").replace(f"[asyncio-{transport}]", "")


def _url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"
