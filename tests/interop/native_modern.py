"""A real server of the modern era that makes tasks of calls itself: FastMCP 4 with its tasks extension."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from example import environments
from example.processes import UVICORN_LISTENS, running

from helpers.waiting import bounded
from interop.native import Native
from interop.peers import require_peers
from peers.install import HOME


def native_modern_program(ledger: Path) -> list[str]:
    """The command of that server as a program that is spoken to by its pipes; skips as the other."""
    require_peers("fastmcp-4.1.4")
    script = HOME / "native_tasks_fastmcp.py"
    return [str(each) for each in (environments.python_of("fastmcp-4.1.4"), script, ledger, "--stdio")]


@asynccontextmanager
async def native_modern_server(folder: Path) -> AsyncIterator[Native]:
    """That server for the length of a block; skips where its environment cannot be had."""
    require_peers("fastmcp-4.1.4")
    ledger = folder / "ledger"
    command = (environments.python_of("fastmcp-4.1.4"), HOME / "native_tasks_fastmcp.py", ledger)
    async with running(command, log=folder / "native-modern.log") as child:
        async with bounded():
            listening = await child.said(UVICORN_LISTENS)
        yield Native(f"{listening[1].decode()}/mcp", ledger)
