"""Runs of suites whose hosts connect to servers over sockets, with taskgate in between or without it.

Each connection has its own mount at the gateway, which remembers what it has learnt of a server.
"""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from example import environments
from example.processes import running

from helpers.gateway.configuration import write_configuration
from helpers.gateway.process import gateway_process
from suites.verdicts import Outcomes

WITHIN = 240.0


def streamable(url: str, number: int) -> Mapping[str, object]:
    """A mount of the suite at this URL: what the configuration says of the upstream."""
    return {"url": f"{url}/{number}/mcp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A part of a suite: its command, variables for it, how many connections it makes at most, and its upstreams."""

    command: Sequence[str | Path]
    variables: Mapping[str, str] = field(default_factory=dict)
    mounts: int
    upstream: Callable[[str, int], Mapping[str, object]] = streamable

    async def directly(self, folder: Path) -> Outcomes:
        """The outcomes without a gateway, by the names that pytest gives the rows."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return await self._run(listener, _url(listener), folder)

    async def through_taskgate(self, folder: Path, **sections: object) -> Outcomes:
        """The outcomes through a gateway, with these sections in its configuration."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            upstreams = {
                f"suite-{number}": {"path": f"/{number}/mcp", "health": None, **self.upstream(_url(listener), number)}
                for number in range(self.mounts)
            }
            file = write_configuration(folder, "", upstreams=upstreams, **sections)
            async with gateway_process(["--config", file], log=folder / "gateway.log") as gateway:
                return await self._run(listener, f"http://{gateway.listen}", folder, SUITE_THROUGH="1")

    async def _run(self, listener: socket.socket, url: str, folder: Path, **variables: str) -> Outcomes:
        written, log = folder / "outcomes.json", folder / "suite.log"
        environment = {
            **self.variables,
            **variables,
            "SUITE_SOCKET": str(listener.fileno()),
            "SUITE_URL": url,
            "SUITE_OUTCOMES": os.fspath(written),
        }
        async with running(self.command, log=log, environment=environment, pass_fds=[listener.fileno()]) as child:
            async with asyncio.timeout(WITHIN):
                await child.process.wait()
        assert written.exists(), log.read_text()
        found: Outcomes = json.loads(written.read_text())
        return found


def pytest_run(environment: str, plugin: str, *, mounts: int, arguments: Iterable[str | Path]) -> Run:
    """A part of a suite of pytest: the environment of its package, our plugin, and what pytest is told."""
    source = environments.source_of(environment)
    options = ("--rootdir", source, "-c", source / "pyproject.toml", "-o", "addopts=", "-p", "no:cacheprovider")
    # The suites have no sockets of their own: one that is left to the collector is the plugin's or the server's.
    warnings = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
    python = environments.python_of(environment)
    command = (python, "-m", "pytest", "--quiet", "-p", plugin, *options, *warnings, *arguments)
    return Run(command=command, variables={"PYTHONPATH": os.fspath(Path(__file__).parent)}, mounts=mounts)


def _url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"
