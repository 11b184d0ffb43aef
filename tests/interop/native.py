"""A real server that makes tasks of calls itself, on the SDK for Python that the tests themselves run on.

Its support of tasks is patched (`peers/native_tasks_server.py`): as the SDK comes, the end of any session stops the
tasks of all.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from example.processes import UVICORN_LISTENS, running

from helpers.waiting import bounded
from peers.install import HOME


@dataclass(frozen=True)
class Native:
    """The server, for as long as it runs."""

    url: str
    ledger: Path

    def did(self, what: str) -> int:
        """How often it noted that."""
        return self.ledger.read_text().splitlines().count(what) if self.ledger.exists() else 0


@asynccontextmanager
async def native_server(folder: Path, *more: str) -> AsyncIterator[Native]:
    """That server for the length of a block; `--as-it-comes` has it without the patch."""
    ledger = folder / "ledger"
    command = (sys.executable, HOME / "native_tasks_server.py", ledger, *more)
    async with running(command, log=folder / "native.log") as child:
        async with bounded():
            listening = await child.said(UVICORN_LISTENS)
        yield Native(f"{listening[1].decode()}/mcp", ledger)
