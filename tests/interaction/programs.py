"""Servers that are programs: how one is configured, and what it says of itself."""

import sys
from typing import Any

from helpers.gateway.configuration import GatewayConfig, configuration
from helpers.server import PROGRAM


def program(*arguments: str, **keys: Any) -> dict[str, Any]:
    """The program as an upstream of a file."""
    # Without its site packages Python starts in a third of the time.
    command = [sys.executable, "-IS", PROGRAM, *arguments]
    return {"path": "/reports/mcp", "transport": "stdio", "command": command, **keys}


def with_program(*arguments: str, sections: dict[str, Any] | None = None, **keys: Any) -> GatewayConfig:
    """A configuration that has that program alone."""
    return configuration({}, upstreams={"reports": program(*arguments, **keys)}, **(sections or {}))


async def who(host: Any) -> dict[str, Any]:
    """What the process says of itself that the host's calls go to."""
    said: dict[str, Any] = (await host.call("who")).result["structuredContent"]
    return said
