"""Released hosts, servers and suites that run as processes of their own: what is in `tests/peers`, started and read.

Where they cannot be had the test is skipped with the reason; with TASKGATE_REQUIRE_ALL=1 that is a failure.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from example import environments
from example.processes import UVICORN_LISTENS, bound_to_us, running

from helpers.waiting import bounded
from peers import install

HOME = install.HOME
ANSWERS_WITHIN = 40.0
"""Seconds for one process, from its start to its end."""

Told = dict[str, Any]
Call = tuple[str, dict[str, Any]]
HOSTS = ("python", "sdk", "ext-tasks", "fastmcp")
MODERN_HOSTS = ("modern-python", "stateless-ext-tasks")


def require_peers(*names: str, packages: bool = True) -> None:
    """Sees to it that the packages and the named environments are there, or skips; a failure where nothing may miss."""
    try:
        if packages:
            install.ensure()
        for name in names:
            environments.ensure(name)
    except (install.PeersNotInstalled, environments.EnvironmentNotMade) as reason:
        if install.nothing_may_be_missing():
            pytest.fail(f"nothing may be missing here, but: {reason}", pytrace=False)
        pytest.skip(str(reason))


def host_command(host: str) -> list[str | Path]:
    """The command that the URL and the calls are put after."""
    python = environments.python_of("fastmcp-3.4.10")
    commands: dict[str, list[str | Path]] = {
        "python": [sys.executable, HOME / "host_python.py"],
        "sdk": [install.node(), HOME / "host_sdk.mjs"],
        "ext-tasks": [install.node(), HOME / "host_ext_tasks.mjs"],
        "fastmcp": [python, HOME / "host_fastmcp.py"],
        "modern-python": [environments.python_of("mcp-2.3.0"), HOME / "host_modern_python.py"],
        "stateless-ext-tasks": [install.node(), HOME / "host_ext_tasks.mjs", "--stateless"],
        "tasks-modern-python": [environments.python_of("mcp-2.3.0"), HOME / "host_tasks_modern_python.py"],
        "fastmcp-4": [environments.python_of("fastmcp-4.1.4"), HOME / "host_modern_fastmcp.py"],
    }
    return commands[host]


def handoff_command(host: str) -> list[str | Path]:
    """The command of a host without tasks that plans are put after (`tests/peers/handoff_words.py`)."""
    python = environments.python_of
    commands: dict[str, list[str | Path]] = {
        "python-1.12": [python("mcp-1.12.4"), HOME / "host_handoff_python.py"],
        "python-1.30": [sys.executable, HOME / "host_handoff_python.py"],
        "python-2.3": [python("mcp-2.3.0"), HOME / "host_handoff_modern_python.py"],
        "python-2.3-legacy": [python("mcp-2.3.0"), HOME / "host_handoff_modern_python.py", "--legacy"],
        "fastmcp-3": [python("fastmcp-3.4.10"), HOME / "host_handoff_fastmcp.py"],
        "fastmcp-4": [python("fastmcp-4.1.4"), HOME / "host_handoff_fastmcp.py"],
        "sdk": [install.node(), HOME / "host_handoff_sdk.mjs"],
        "client": [install.node(), HOME / "host_handoff_client.mjs"],
        "client-stateless": [install.node(), HOME / "host_handoff_client.mjs", "--stateless"],
    }
    return commands[host]


async def told_by(host: str, url: str, calls: Sequence[Call], *options: str) -> list[Told]:
    """What one host process says of each call of a tool with these arguments, made as a task.

    The options are `--plainly` and `--together`. After a call that did not end it says no more.
    """
    words = [word for tool, given in calls for word in (tool, json.dumps(given))]
    _, output, errors = await output_of([*host_command(host), url, *options, *words])
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines, errors
    return lines


async def output_of(command: Sequence[str | Path], *, within: float = ANSWERS_WITHIN) -> tuple[int | None, str, str]:
    """A command's exit status, output and errors; AssertionError with both where it does not end."""
    child = await asyncio.create_subprocess_exec(
        *bound_to_us(command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    speaking = asyncio.create_task(child.communicate())
    try:
        done, _ = await asyncio.wait([speaking], timeout=within)
    finally:
        if child.returncode is None:
            child.kill()
        output, errors = (said.decode() for said in await speaking)
    assert done, f"{command[1:]} did not end within {within} s; it said: {output}{errors}"
    return child.returncode, output, errors


@asynccontextmanager
async def python_server(script: str, version: str, folder: Path) -> AsyncIterator[str]:
    """One of the Python servers on that release of the SDK; its URL."""
    command = (environments.python_of(f"mcp-{version}"), HOME / script)
    async with running(command, log=folder / f"{script}-{version}.log") as child:
        async with bounded():
            listening = await child.said(UVICORN_LISTENS)
        yield f"{listening[1].decode()}/mcp"


@asynccontextmanager
async def node_server(script: str, folder: Path) -> AsyncIterator[str]:
    """One of the servers in TypeScript; its URL."""
    async with running([install.node(), HOME / script], log=folder / f"{script}.log") as child:
        async with bounded():
            serving = await child.said(rb"serving at (http://\S+)")
        yield serving[1].decode()
