"""What `make run UPSTREAM=…` starts taskgate with: a server of one's own, by its URL or the command that runs it."""

import asyncio
import json
import os
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateways import TASKGATE, RunFailed
from processes import bound_to_us, end

ALONE = ("AUTH", "OBSERVE", "REPLICAS")
NODE = frozenset({"npx", "npm", "node"})


def upstream_from(environment: Mapping[str, str]) -> str | None:
    """Reads UPSTREAM; None where the example's own server is wanted.

    Raises RunFailed where it cannot be had, or not together with what else is wanted.
    """
    upstream = environment.get("UPSTREAM", "").strip()
    if not upstream:
        return None
    others = [name for name in ALONE if environment.get(name, "") not in {"", "0"}]
    if others:
        raise RunFailed(f"UPSTREAM does not go together with {' and '.join(others)}, which show the example's server")
    if not is_url(upstream):
        expect_program(upstream)
    return upstream


def is_url(upstream: str) -> bool:
    """Whether it is a URL; else it is a command."""
    return upstream.lower().startswith(("http://", "https://"))


def expect_program(command: str) -> None:
    """Raises RunFailed unless the command begins with a program that is here."""
    try:
        program = next(iter(shlex.split(command)), "")
    except ValueError as error:
        raise RunFailed(f"UPSTREAM={command}: this should be a URL or a command ({error})") from error
    if shutil.which(program) is None:
        hint = ": it comes with Node.js (Debian: apt-get install nodejs npm)" if program in NODE else ""
        raise RunFailed(f"UPSTREAM={command}: there is no program {program!r} here{hint}")


async def expect_answer(url: str, options: Sequence[str | Path], folder: Path) -> None:
    """Raises RunFailed with the cause unless the server at a URL answers taskgate with these options."""
    asked = await asyncio.create_subprocess_exec(
        *bound_to_us([TASKGATE, "check", "--online", "--json", *options]),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TASKGATE_DATA_DIR": str(folder / "data")},
        start_new_session=True,
    )
    try:
        output, _ = await asked.communicate()
    finally:
        await end(asked, signal.SIGTERM)
    answers = json.loads(output or "{}").get("online", [])
    why = [each["message"] for each in answers if each["passed"] is False]
    if why:
        raise RunFailed(f"UPSTREAM={url}: {why[0]}")


def server_from(upstream: str) -> Mapping[str, Any]:
    """The server as a file has it."""
    if is_url(upstream):
        return {"url": upstream}
    program, *arguments = shlex.split(upstream)
    # A path is relative to where make was called, and not to the file. A link stays: the Python of a venv is one.
    found = os.path.abspath(program) if "/" in program else program
    return {"transport": "stdio", "command": [found, *arguments]}
