"""The interaction suite of `mcp` between real sockets: the rows are the tests that run on each transport."""

from collections.abc import Mapping
from functools import cache

from example import environments

from suites.runs import Run, pytest_run
from suites.verdicts import INTERACTION, Outcomes

PARTS = {
    "legacy hosts, servers with sessions": "streamable-http-2025-11-25",
    "legacy hosts, servers without sessions": "streamable-http-stateless-2025-11-25",
    "modern hosts": "streamable-http-2026-07-28",
}
"""The parts, and what the suite calls their transport and revision."""
MOUNTS = 160
"""No part connects more often."""


@cache
def run(part: str, *names: str) -> Run:
    """A part, as a process with a gateway of its own; with names, only the rows of these functions."""
    tests = environments.source_of(INTERACTION.environment) / "tests" / "interaction"
    files = [file for file in sorted(tests.rglob("test_*.py")) if "connect: Connect" in file.read_text()]
    # The suite's own fixtures for all of its folders need packages without wheels, and are about the SDK alone.
    chosen = f"{PARTS[part]} and ({' or '.join(names)})" if names else PARTS[part]
    arguments = ("--confcutdir", tests, "-k", chosen, *files)
    return pytest_run(INTERACTION.environment, "interaction_plugin", mounts=MOUNTS, arguments=arguments)


def rows(part: str, found: Outcomes) -> Mapping[str, str | None]:
    """The outcomes of a part by the names of its rows, which no part has twice."""
    parameters = f"[asyncio-{PARTS[part]}]"
    return {name.removeprefix("tests/interaction/").replace(parameters, ""): problem for name, problem in found.items()}
