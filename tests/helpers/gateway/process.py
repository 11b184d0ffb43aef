"""taskgate as a user runs it: the command, in a process of its own that can be killed."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from example.processes import Child, running

from helpers import told
from helpers.gateway.configuration import write_configuration
from helpers.host.host import Host
from helpers.ports import free_port
from helpers.waiting import PATIENCE, bounded

TASKGATE = Path(sys.executable).with_name("taskgate")
_SERVING = re.compile(rb'\{[^\n]*"event":"serving"[^\n]*\}')


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProcess:
    """A gateway that serves; `listen` and `admin` are HOST:PORT."""

    child: Child
    listen: str
    admin: str
    log: Path

    def url(self, mount: str = "reports") -> str:
        """Where hosts find a mount."""
        return f"http://{self.listen}/{mount}/mcp"

    def host(self, http: aiohttp.ClientSession, token: str | None = None, **more: Any) -> Host:
        """A host that has said nothing yet; `more` is as `Host` takes it."""
        return Host(http, self.url(), token, **more)

    def again(self, host: Host) -> Host:
        """The same host as it comes here from another gateway: nothing is remembered but its session."""
        return host.again(self.url())

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
async def serve_process(
    folder: Path,
    url: str,
    *,
    program: Sequence[str | Path] = (),
    environment: Mapping[str, str] | None = None,
    **sections: Any,
) -> AsyncIterator[GatewayProcess]:
    """A gateway before the one server at `url`, mounted at /reports/mcp; `sections` as in `write_configuration`.

    Its file and its log are in the folder. `program` starts it, if it is not the usual command alone.
    """
    arguments = ["--config", write_configuration(folder, url, **sections)]
    log = folder / "gateway.log"
    async with gateway_process(arguments, log=log, environment=environment, program=program) as gateway:
        yield gateway


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
    async with bounded():
        said = json.loads((await child.said(_SERVING))[0])
    return GatewayProcess(child=child, listen=said["listen"], admin=said["admin"], log=child.log)


class Replica:
    """One gateway, whose process may be gone for a while; it always listens at the same address.

    `file` is its configuration, which takes that address from `LISTEN` where it is not written there. Its data and its
    logs are in `folder`. `begins_as` is the environment of its first start alone.
    """

    def __init__(
        self, folder: Path, file: Path, listen: str | None = None, *, begins_as: Mapping[str, str] | None = None
    ) -> None:
        self.listen = listen or f"127.0.0.1:{free_port()}"
        self._starts = 0
        self._folder, self._file = folder, file
        self._begins_as = begins_as or {}
        self._life = AsyncExitStack()
        self._process: GatewayProcess | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        name, _, port = self.listen.partition(":")
        return name, int(port)

    def url(self, mount: str = "reports") -> str:
        """Where hosts find a mount."""
        return f"http://{self.listen}/{mount}/mcp"

    @property
    def process(self) -> GatewayProcess:
        """The process that serves."""
        assert self._process is not None, "it was started"
        return self._process

    @property
    def is_up(self) -> bool:
        """Whether it serves, as far as a test had it."""
        return self._process is not None

    async def start(self) -> None:
        """Start it, and wait until it serves."""
        more = self._begins_as if self._starts == 0 else {}
        self._starts += 1
        environment = {"LISTEN": self.listen, "TASKGATE_DATA_DIR": str(self._folder / "data"), **more}
        log = self._folder / f"gateway-{self._starts}.log"
        process = gateway_process(["--config", self._file], log=log, environment=environment)
        self._process = await self._life.enter_async_context(process)

    async def end(self, number: signal.Signals) -> int:
        """End it by a signal, and return its exit status."""
        process, self._process = self.process, None
        process.ask(number)
        async with asyncio.timeout(60):
            status = await process.child.process.wait()
        await self._life.aclose()
        return status

    async def kill(self) -> None:
        """End it as a machine does that loses its power."""
        await self.end(signal.SIGKILL)

    async def restart(self) -> None:
        """End it as an orchestrator does, and start it again."""
        assert await self.end(signal.SIGTERM) == 0
        await self.start()

    async def stop(self) -> None:
        """End it in whatever way it still can."""
        process, self._process = self._process, None
        if process is not None and process.child.process.returncode is None:
            process.ask(signal.SIGCONT)
        await self._life.aclose()


def taskgate(*arguments: str | Path, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A command of taskgate that ends by itself, whose data directory is in the folder, and what it said."""
    environment = {**os.environ, "TASKGATE_DATA_DIR": str(folder / "data"), **variables}
    command = [TASKGATE, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


async def _hear_metrics(admin: str) -> None:
    # Whether it was killed a moment ago is not known here.
    with suppress(aiohttp.ClientConnectionError):
        async with bounded(), aiohttp.ClientSession() as http, http.get(f"http://{admin}/metrics") as response:
            told.now().hear_page(await response.text())
