"""Whether what a configuration starts is there: programs, and the folders that they run in.

What must not live here: starting anything. What holds: nothing here is the last word, since programs come and go, and
another machine may have others than the one where a configuration is looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from taskgate.config import GatewayConfig

_BROUGHT_BY: Final = {"npx": "Node.js", "npm": "Node.js", "node": "Node.js", "uvx": "uv", "uv": "uv"}


def missing_programs(config: GatewayConfig, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The dotted path of a key and what is wrong with it, for each program and folder that a start would not find."""
    for name, section in config.upstreams.items():
        if section.command is None:
            continue
        if section.cwd is not None and not section.cwd.is_dir():
            yield f"upstreams.{name}.cwd", f"{section.cwd} is no folder of this machine"
            continue
        path = section.env.get("PATH", environ.get("PATH", os.defpath))
        program, cwd = section.command[0], section.cwd or Path()
        if not _is_there(program, cwd, path, os.F_OK):
            yield f"upstreams.{name}.command", _missing(program)
        elif not _is_there(program, cwd, path, os.F_OK | os.X_OK):
            yield f"upstreams.{name}.command", f"the program {program} is there, but may not be executed"


def _is_there(program: str, cwd: Path, path: str, mode: int) -> bool:
    # With a slash in it the name is a path, which counts from where the program is to run.
    return shutil.which(cwd / program if os.sep in program else program, mode, path) is not None


def _missing(program: str) -> str:
    brought_by = _BROUGHT_BY.get(program)
    return f"there is no program {program} on this machine{f', which {brought_by} brings' if brought_by else ''}"
