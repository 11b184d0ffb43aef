"""The hosts of the table as processes: each does everything at all the places that it is given, all at once."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from example import environments

from interop.peers import HOME, output_of
from peers import install

WITHIN = 240.0
"""Seconds for a host, from its start to its end."""


def command(host: str) -> list[str | Path]:
    """The command that the places are put after."""
    python, node = environments.python_of, install.node
    commands: dict[str, list[str | Path]] = {
        "python": [sys.executable, HOME / "host_matrix_python.py"],
        "sdk": [node(), HOME / "host_matrix_sdk.mjs"],
        "client": [node(), HOME / "host_matrix_client.mjs"],
        "stateless-client": [node(), HOME / "host_matrix_client.mjs", "--stateless"],
        "fastmcp": [python("fastmcp-3.4.10"), HOME / "host_matrix_fastmcp.py"],
        "modern-fastmcp": [python("fastmcp-4.1.4"), HOME / "host_matrix_modern_fastmcp.py"],
        "pydantic-ai": [python("fastmcp-4.1.4"), HOME / "host_matrix_pydantic_ai.py"],
        "strands": [python("strands-agents-1.62.0"), HOME / "host_matrix_strands.py"],
        "modern-python": [python("mcp-2.3.0"), HOME / "host_matrix_modern_python.py"],
        "fastmcp-4-2": [python("fastmcp-4.2.3"), HOME / "host_matrix_fastmcp_4_2.py"],
        "fastmcp-4-2-legacy": [python("fastmcp-4.2.3"), HOME / "host_matrix_fastmcp_4_2.py", "--legacy"],
        "agent-framework": [python("fastmcp-4.2.3"), HOME / "host_matrix_agent_framework.py"],
        "agent-framework-legacy": [python("fastmcp-4.2.3"), HOME / "host_matrix_agent_framework.py", "--legacy"],
    }
    return commands[host]


async def told_by(host: str, places: Sequence[str], *, within: float = WITHIN) -> list[dict[str, Any]]:
    """What that host says of each place, in their order: a URL, or a call as matrix_columns.py has it."""
    _, output, errors = await output_of([*command(host), *places], within=within)
    rows = [json.loads(line) for line in output.splitlines()]
    assert len(rows) == len(places), f"{host}: {errors}"
    return rows
