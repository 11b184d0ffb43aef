"""taskgate as the example starts it: what it is told, and when it is ready."""

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from addresses import Address, is_ready
from console_link import write_token
from processes import Child, ChildEnded, running

TASKGATE = Path(sys.executable).with_name("taskgate")
READY_WITHIN = 30.0

HEAD = """\
version: 1
server: {{listen: "{listen}"}}
admin:
  listen: "{admin}"
  tokens: [{{file: "{token}", role: operator, name: console}}]
"""
PLAIN = (
    HEAD
    + """\
upstreams:
  default: {server}
auth: {{mode: none}}
"""
)
GUARDED = (
    HEAD
    + """\
upstreams:
  reports: {{path: /mcp, url: "{upstream}"}}
auth:
  mode: required
  issuers:
    example: {{issuer: "{issuer}", profile: rfc9068}}
authorization:
  rules:
    - {{name: broken, tool: broken_report, require_scopes: [reports.admin]}}
"""
)


class RunFailed(Exception):
    """The example cannot go on; the text says why, for a person to read."""


async def url_of(child: Child, pattern: bytes, name: str) -> str:
    """Waits until the child says where it listens. Raises RunFailed."""
    return (await said(child, pattern, name))[1].decode()


async def said(child: Child, pattern: bytes, name: str) -> re.Match[bytes]:
    """Waits until the child says that. Raises RunFailed where it ends instead, or takes too long."""
    try:
        async with asyncio.timeout(READY_WITHIN):
            return await child.said(pattern)
    except ChildEnded as error:
        raise RunFailed(f"{name} ended at once; what it said is in {child.log}") from error
    except TimeoutError as error:
        raise RunFailed(f"{name} did not start within {READY_WITHIN:.0f} s") from error


def options_for(
    folder: Path, listen: Address, admin: Address, upstream: str, issuer: str | None
) -> Sequence[str | Path]:
    """How taskgate is told what to do, in a file: without tokens of hosts, or with an issuer of them."""
    if issuer is None:
        return options_before_server({"url": upstream}, folder, listen, admin)
    config, token = folder / "gateway.yaml", write_token(folder)
    config.write_text(GUARDED.format(listen=listen, admin=admin, upstream=upstream, issuer=issuer, token=token))
    return ["--config", config]


def options_before_server(
    server: Mapping[str, Any], folder: Path, listen: Address, admin: Address
) -> Sequence[str | Path]:
    """The same before any one server, given as in a file."""
    config, token = folder / "gateway.yaml", write_token(folder)
    # A dollar sign would begin a variable.
    text = json.dumps({"path": "/mcp", **server}).replace("$", "$$")
    config.write_text(PLAIN.format(listen=listen, admin=admin, server=text, token=token))
    return ["--config", config]


def gateway_before(
    options: Sequence[str | Path], folder: Path, name: str = "gateway", environment: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[Child]:
    """taskgate, started as anybody would start it; its log has that name, and its data a folder of their own."""
    data = folder / ("data" if name == "gateway" else f"data-of-{name}")
    return running(
        [TASKGATE, "serve", *options],
        log=folder / f"{name}.log",
        environment={"TASKGATE_DATA_DIR": str(data), **(environment or {})},
        polite=signal.SIGINT,  # a person's way to end it; SIGTERM would first let a load balancer take its hosts away
    )


async def wait_until_ready(gateway: Child, admin: Address) -> None:
    """Asks the admin listener until it says yes."""
    deadline = time.monotonic() + READY_WITHIN
    while not await is_ready(admin):
        if gateway.process.returncode is not None:
            raise RunFailed(f"taskgate ended at once, with {gateway.process.returncode}")
        if time.monotonic() > deadline:
            raise RunFailed(f"taskgate was not ready within {READY_WITHIN:.0f} s")
        await asyncio.sleep(0.1)
