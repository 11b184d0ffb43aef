"""What stands before several gateways in tests: nginx, as `make run` starts it, or the balancer of the example.

nginx is a program of the machine (Debian: the package `nginx-light`): a test that needs it is skipped where it is
missing, and fails where nothing may be missing.
"""

import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import pytest
from example import nginx
from example.processes import running

from helpers.ports import free_port
from helpers.waiting import eventually
from provider.install import nothing_may_be_missing

Kind = Literal["nginx", "ours"]
KINDS: tuple[Kind, ...] = ("nginx", "ours")
OURS: Final = Path(__file__).parents[2] / "example" / "balancer.py"


def require_nginx() -> Path:
    """The path of nginx. Skips the test where there is none; a failure where nothing may be missing."""
    program = nginx.program()
    if program is not None:
        return program
    reason = "nginx is not installed (Debian: apt-get install nginx-light)"
    if nothing_may_be_missing():
        pytest.fail(f"nothing may be missing here, but {reason}", pytrace=False)
    pytest.skip(reason)


@asynccontextmanager
async def balanced(kind: Kind, backends: Sequence[str], folder: Path, port: int | None = None) -> AsyncIterator[str]:
    """HOST:PORT of a balancer before these, for the length of the block; on a free port unless one is given."""
    port = port or free_port()
    listen = f"127.0.0.1:{port}"
    command: list[str | Path] = [sys.executable, OURS, listen, *backends]
    if kind == "nginx":
        config = folder / "nginx.conf"
        config.write_text(nginx.configuration(folder, listen, backends))
        command = nginx.command(require_nginx(), folder, config)
    async with running(command, log=folder / "balancer.log") as child:
        await eventually(lambda: _listens(port) or child.process.returncode is not None)
        assert child.process.returncode is None, (folder / "balancer.log").read_text()
        yield listen


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
