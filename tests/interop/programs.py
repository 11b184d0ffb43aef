"""How the servers of `released` are started: as a section of a gateway's configuration, or to listen at a URL."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from example import environments
from example.processes import UVICORN_LISTENS, Child, running

from helpers.left_behind import marked
from helpers.ports import free_port
from helpers.waiting import bounded
from interop.peers import HOME
from interop.released import BOOKS, HTTP, SSE, STDIO
from peers import install

ENVIRONMENTS = (
    "mcp-1.2.1",
    "mcp-1.8.1",
    "mcp-1.12.4",
    "mcp-1.23.3",
    "mcp-2.3.0",
    "mcp-server-sqlite-2025.4.25",
    "mcp-servers-2026.10",
)
"""All that they need, beside the packages of the peers and this interpreter's own `mcp` 1.30."""

_MODULES = HOME / "node_modules"
_EVERYTHING = {
    "everything-2026-08": _MODULES / "@modelcontextprotocol/server-everything/dist/index.js",
    "everything-2025-08": _MODULES / "everything-2025-08/dist/index.js",
    "everything-2025-04": _MODULES / "everything-2025-04/dist/index.js",
}
_APPS = {
    "apps-basic": _MODULES / "@modelcontextprotocol/server-basic-vanillajs/dist/index.js",
    "apps-debug": _MODULES / "@modelcontextprotocol/server-debug/dist/index.js",
}
_INSTALLED = {
    "time-2026-10": ("mcp-servers-2026.10", "mcp-server-time"),
    "time-0-6": ("mcp-1.2.1", "mcp-server-time"),
    "git-2026-10": ("mcp-servers-2026.10", "mcp-server-git", "--repository", "."),
    "fetch-2026-10": ("mcp-servers-2026.10", "mcp-server-fetch"),
    "sqlite-2025-04": ("mcp-server-sqlite-2025.4.25", "mcp-server-sqlite", "--db-path", "books.db"),
}
_IN_URL = {SSE: "sse", HTTP: "mcp"}


Mounts = Mapping[str, tuple[str, str]]
"""By the name of a mount: a server and a transport. A server that listens is started once for all of them."""


@asynccontextmanager
async def upstreams(mounts: Mounts, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """The sections of a configuration for these; what listens does so for the length of the block.

    Programs run in `folder`, which is the repository and has the database that they are asked about.
    """
    repository(folder)
    async with AsyncExitStack() as serving:
        async with asyncio.TaskGroup() as starting:
            begun = {
                served: starting.create_task(serving.enter_async_context(_listening(*served, folder)))
                for served in {*mounts.values()}
                if served[1] != STDIO
            }
        urls = {served: started.result() for served, started in begun.items()}
        yield {
            mount: {"path": f"/{mount}/mcp", "transport": transport, **_where(name, transport, urls, folder)}
            for mount, (name, transport) in mounts.items()
        }


def _where(name: str, transport: str, urls: Mapping[tuple[str, str], str], folder: Path) -> dict[str, Any]:
    if transport == STDIO:
        return {"command": [*map(str, program(name))], "cwd": str(folder), "env": marked(folder)}
    return {"url": urls[name, transport], "health": None}


def program(name: str) -> list[str | Path]:
    """The command that speaks over its standard streams."""
    if name in _INSTALLED:
        environment, script, *options = _INSTALLED[name]
        return [environments.python_of(environment).with_name(script), *options]
    return _started(name, STDIO)


def _started(name: str, transport: str) -> list[str | Path]:
    if name in _EVERYTHING:
        spoken = {STDIO: "stdio", SSE: "sse", HTTP: "streamableHttp"}[transport]
        return [install.node(), _EVERYTHING[name], spoken]
    if name in _APPS:
        return [install.node(), _APPS[name], *(["--stdio"] if transport == STDIO else [])]
    if name in ("apps-legacy", "apps-modern"):
        return [install.node(), HOME / "apps_server.mjs", name.removeprefix("apps-"), transport]
    if name == "typescript":
        return [install.node(), HOME / "matrix_server.mjs", transport]
    release = name.replace("-", ".")
    # What the tests themselves run on has that release, too.
    python = sys.executable if release == "1.30.0" else environments.python_of(f"mcp-{release}")
    return [python, HOME / "matrix_server.py", {HTTP: "streamable-http"}.get(transport, transport)]


@asynccontextmanager
async def _listening(name: str, transport: str, folder: Path) -> AsyncIterator[str]:
    """That server at a port of its own; the URL that a gateway is told."""
    command, log = _started(name, transport), folder / f"{name}-{transport}.log"
    environment, said = {}, UVICORN_LISTENS
    if name in _EVERYTHING or name in _APPS:
        port = free_port()
        environment, said = {"PORT": str(port)}, rf"(port |localhost:){port}\b".encode()
    elif name.startswith("apps-"):
        said = rb"serving at (http://[^/\s]+)"
    # Old ones wait for as long as somebody listens to them when they are asked to end.
    async with running(command, log=log, environment=environment, polite=signal.SIGKILL) as child:
        found = await _said(child, said)
        origin = f"http://127.0.0.1:{environment['PORT']}" if environment else found[1].decode()
        yield f"{origin}/{_IN_URL[transport]}"


async def _said(child: Child, pattern: bytes) -> re.Match[bytes]:
    async with bounded():
        return await child.said(pattern)


def repository(folder: Path) -> None:
    """Makes the folder a repository with one commit."""
    git = ["git", "-C", folder, "-c", "user.name=Clerk", "-c", "user.email=clerk@example.com"]
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", BOOKS], check=True)
