"""taskgate as a user runs it: the command, in a process of its own that can be killed."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from example.processes import Child, running

from helpers import told
from helpers.waiting import bounded

TASKGATE = Path(sys.executable).with_name("taskgate")
START_WITHIN = 20.0
_SERVING = re.compile(rb'\{[^\n]*"event":"serving"[^\n]*\}')


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcess:
    """A gateway that serves; `listen` and `admin` are HOST:PORT."""

    child: Child
    listen: str
    admin: str
    log: Path

    def kill(self) -> None:
        """End it as a machine does that loses its power, as far as one process can."""
        self.child.process.kill()

    def ask(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.child.process.send_signal(number)

    async def exit_status(self) -> int:
        """Wait for its end, twenty seconds at most."""
        async with asyncio.timeout(20):
            return await self.child.process.wait()

    def log_lines(self) -> list[dict[str, object]]:
        """What it has logged; every line must be JSON. What its audit log has on standard output is not among it."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if "seq" not in line]


@asynccontextmanager
async def gateway_process(
    arguments: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str | Path] = (),
) -> AsyncIterator[GatewayProcess]:
    """`taskgate serve` with these arguments for the length of a block, ready to be spoken to when it begins.

    See `starting_gateway`. Its page of metrics, where it still serves at the end, is judged when the test ends.
    """
    async with starting_gateway(arguments, log=log, environment=environment, program=program) as child:
        gateway = await serving(child)
        yield gateway
        if child.process.returncode is None:
            await _hear_metrics(gateway.admin)


@asynccontextmanager
async def starting_gateway(
    arguments: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str | Path] = (),
) -> AsyncIterator[Child]:
    """`taskgate serve` with these arguments for the length of a block, from the start of its process on.

    What it has logged is judged when the test ends. Its data directory is beside its log, unless `environment` names
    another: two gateways cannot share one. It runs on asyncio, as the tests do, where the arguments do not say
    otherwise; the package of an earlier commit, to which `environment` leads, has no choice.
    """
    loop = () if "--loop" in arguments or "PYTHONPATH" in (environment or {}) else ("--loop", "asyncio")
    command = [*(program or [TASKGATE]), "serve", *arguments, *loop]
    environment = {"TASKGATE_DATA_DIR": str(log.with_name(f"{log.name}-data")), **(environment or {})}
    try:
        async with running(command, log=log, environment=environment, polite=signal.SIGINT) as child:
            yield child
    finally:
        if log.exists():
            told.now().hear(log.read_text(errors="replace"))


async def serving(child: Child) -> GatewayProcess:
    """Wait until a gateway that was started serves. Raises ChildEnded once it never will."""
    async with asyncio.timeout(START_WITHIN):
        said = json.loads((await child.said(_SERVING))[0])
    return GatewayProcess(child=child, listen=said["listen"], admin=said["admin"], log=child.log)


def taskgate(*arguments: str | Path, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A command of taskgate that ends by itself, whose data directory is in the folder, and what it said."""
    environment = {**os.environ, "TASKGATE_DATA_DIR": str(folder / "data"), **variables}
    command = [TASKGATE, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=START_WITHIN, check=False)


async def _hear_metrics(admin: str) -> None:
    # Whether it was killed a moment ago is not known here.
    with suppress(aiohttp.ClientConnectionError):
        async with bounded(), aiohttp.ClientSession() as http, http.get(f"http://{admin}/metrics") as response:
            told.now().hear_page(await response.text())


def write_configuration(folder: Path, url: str, **lines: str) -> Path:
    """A file for one server at /reports/mcp, on free ports, its store in the folder; `lines` are further sections.

    Nobody is too fast, and servers are asked nothing of their own accord, where no line says otherwise.
    """
    file = folder / "taskgate.yaml"
    sections = {
        "version": "1",
        "auth": "{mode: none}",
        "server": '{listen: "127.0.0.1:0", drain: {delay: 0s, timeout: 5s}}',
        "admin": '{listen: "127.0.0.1:0"}',
        "upstreams": f'{{reports: {{path: /reports/mcp, url: "{url}", health: null}}}}',
        "limits": "{rate: []}",
        "store": f'{{sqlite: {{path: "{folder}/taskgate.db"}}}}',
        **lines,
    }
    file.write_text("".join(f"{name}: {text}\n" for name, text in sections.items()))
    return file
