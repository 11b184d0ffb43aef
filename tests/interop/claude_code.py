"""Claude Code as npm has it, which asks a stand-in of the model's API (`peers.messages_api`)."""

import asyncio
import fcntl
import json
import os
import platform
import pty
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from example.processes import bound_to_us

from interop.peers import HOME, output_of
from peers import install
from peers.messages_api import Model, messages_api

SERVER = "books"
"""What its settings call the server."""
KEY = "sk-ant-of-no-account-0123456789"
QUIET = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
    "DISABLE_AUTOUPDATER=1",
    "DISABLE_ERROR_REPORTING=1",
    "DISABLE_TELEMETRY=1",
)


def program() -> Path:
    """The program of the package for this machine. Its installer, which is not run, would link it."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    libc = "" if platform.libc_ver()[0] == "glibc" or platform.system() != "Linux" else "-musl"
    return HOME / f"node_modules/@anthropic-ai/claude-code-{platform.system().lower()}-{machine}{libc}/claude"


def require_program() -> None:
    """Skips where the package has no program for this machine; a failure where nothing may be missing."""
    if not program().exists():
        reason = f"there is no {program()}"
        if install.nothing_may_be_missing():
            pytest.fail(f"nothing may be missing here, but: {reason}", pytrace=False)
        pytest.skip(reason)


async def headless(
    model: Model, url: str, folder: Path, patience: float, *environment: str, within: float = 60
) -> list[dict[str, Any]]:
    """Has it ask that model, with the server at the URL; what it prints, which ends with its result.

    It waits `patience` seconds for a call.
    """
    home = folder / "home"
    home.mkdir(exist_ok=True)
    servers = {"mcpServers": {SERVER: {"type": "http", "url": url}}}
    options = ("--strict-mcp-config", "--allowedTools", f"mcp__{SERVER}", "--output-format", "stream-json", "--verbose")
    async with messages_api(model) as api:
        known = (f"ANTHROPIC_BASE_URL={api}", "ANTHROPIC_API_KEY=none", f"HOME={home}", "PATH=/usr/bin:/bin", *QUIET)
        timeout = f"MCP_TOOL_TIMEOUT={1000 * patience:.0f}"
        command: list[str | Path] = [program(), "-p", "Report.", "--mcp-config", json.dumps(servers), *options]
        _, output, errors = await output_of(
            ["env", "-i", f"--chdir={home}", *known, timeout, *environment, *command], within=within
        )
    said: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    assert said, errors
    assert model.others == []
    return said


@asynccontextmanager
async def interactive(model: Model, url: str, folder: Path) -> AsyncIterator[None]:
    """Has it ask that model from a terminal, with the server at the URL, for the length of the block.

    Its settings say that it was started before, and that its user trusts the folder and the key.
    """
    (home := folder / "home").mkdir()
    (file := folder / "servers.json").write_text(json.dumps({"mcpServers": {SERVER: {"type": "http", "url": url}}}))
    started = {
        "hasCompletedOnboarding": True,
        "lastOnboardingVersion": "2.1.332",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(home): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    (home / ".claude.json").write_text(json.dumps(started))
    async with messages_api(model) as api:
        known = (f"ANTHROPIC_BASE_URL={api}", f"ANTHROPIC_API_KEY={KEY}", f"HOME={home}", "PATH=/usr/bin:/bin", *QUIET)
        options = ("--strict-mcp-config", "--allowedTools", f"mcp__{SERVER}", "--mcp-config", file, "--", "Report.")
        clean = ("env", "-i", f"--chdir={home}", *known, "TERM=xterm", "ENABLE_TOOL_SEARCH=false")
        command: list[str | Path] = [*clean, program(), *options]
        screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        os.set_blocking(screen, False)
        child = await asyncio.create_subprocess_exec(
            *bound_to_us(command),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        loop = asyncio.get_running_loop()
        loop.add_reader(screen, _read, screen)
        try:
            yield
        finally:
            child.kill()
            await child.wait()
            loop.remove_reader(screen)
            os.close(screen)


def _read(screen: int) -> None:
    # A terminal that nobody reads holds up what writes to it. Its other end may be closed already.
    with suppress(OSError):
        os.read(screen, 65536)
