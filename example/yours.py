"""What `make run UPSTREAM=…` starts taskgate with: a server of one's own, by its URL or the command that runs it."""

import os
import shlex
import shutil
from collections.abc import Mapping
from typing import Any

from gateways import RunFailed

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


def server_from(upstream: str) -> Mapping[str, Any]:
    """The server as a file has it."""
    if is_url(upstream):
        return {"url": upstream}
    program, *arguments = shlex.split(upstream)
    # A path is relative to where make was called, and not to the file. A link stays: the Python of a venv is one.
    found = os.path.abspath(program) if "/" in program else program
    return {"transport": "stdio", "command": [found, *arguments]}
