"""Checks beyond the file: key files, certificates and programs, as a start would find them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from taskgate.clock import SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.listener.tls import made_context
from taskgate.upstream.wire.trust import TlsFileRefused, tls_context
from taskgate.wiring.authentication import deployment_keys, operators_token
from taskgate.wiring.observability import expect_keys

_PACKAGES: Final = {"npx": "Node.js", "npm": "Node.js", "node": "Node.js", "uvx": "uv", "uv": "uv"}
"""The packages that install well-known programs."""


def expect_key_files(config: GatewayConfig) -> None:
    """Read each file with keys or certificates, and make none.

    Raises KeyFileRefused, TlsRefused or TlsFileRefused with the message that `taskgate serve` has.
    """
    expect_keys(config)
    if config.auth.context.key_file is not None:
        deployment_keys(config, None, SystemEntropy())
    operators_token(config)
    tls = config.server.tls.to_settings()
    if tls is not None:
        made_context(tls)
    for name, section in config.upstreams.items():
        if section.url is not None and section.url.lower().startswith("https:"):
            try:
                tls_context(section.tls.to_settings())
            except TlsFileRefused as refused:
                raise TlsFileRefused(f"upstreams.{name}.{refused}") from None


def missing_programs(config: GatewayConfig, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Find programs and working folders that a start on this machine would not find.

    Yields the dotted path of a key and what is wrong with it. This is a warning: programs come and
    go, and the configuration may be for another machine.
    """
    for name, section in config.upstreams.items():
        if section.command is None:
            continue
        if section.cwd is not None and not section.cwd.is_dir():
            yield f"upstreams.{name}.cwd", f"{section.cwd} is no folder of this machine"
            continue
        path = section.env.get("PATH", environ.get("PATH", os.defpath))
        program, cwd = section.command[0], section.cwd or Path()
        if not _is_there(program, cwd, path, os.F_OK):
            package = f", which {_PACKAGES[program]} brings" if program in _PACKAGES else ""
            yield f"upstreams.{name}.command", f"there is no program {program} on this machine{package}"
        elif not _is_there(program, cwd, path, os.F_OK | os.X_OK):
            yield f"upstreams.{name}.command", f"the program {program} is there, but may not be executed"


def _is_there(program: str, cwd: Path, path: str, mode: int) -> bool:
    # A name with a slash is a path relative to the working folder of the program.
    return shutil.which(cwd / program if os.sep in program else program, mode, path) is not None
