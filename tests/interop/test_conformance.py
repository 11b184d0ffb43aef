"""The official conformance suite says the same of a server through taskgate as it says of the server itself.

What it says is compared by scenario. `conformance_baseline.json` names those that a server on an unmodified SDK passes,
and of them those that are known to fail through the gateway. Each of the two lists must be exactly true: what is named
there and passes after all has to be taken out.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from interop.hosts import place_for
from interop.peers import HOME, output_of, python_server, require_peers
from peers import install

pytestmark = pytest.mark.interop

BASELINE = json.loads(Path(__file__).with_name("conformance_baseline.json").read_text())
SUITE = HOME / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
VERSION = "1.23.3"
REVISIONS = ("2025-06-18", "2025-11-25")


def passes(checks: list[dict[str, Any]]) -> bool:
    """Whether a scenario passed: something was checked, and nothing of it even warned about."""
    said = {check["status"] for check in checks}
    return "SUCCESS" in said and not said & {"FAILURE", "WARNING"}


def complaints(checks: list[dict[str, Any]]) -> list[str]:
    """What the suite holds against a server in one scenario."""
    return [f"{check['id']}: {check.get('errorMessage')}" for check in checks if check["status"] != "SUCCESS"]


async def judged(url: str, folder: Path) -> Mapping[str, list[dict[str, Any]]]:
    """Every scenario's checks, by its name."""
    command = [install.node(), SUITE, "server", "--url", url, "--suite", "all", "--output-dir", folder]
    status, output, errors = await output_of(command)
    found = {place.parent.name: json.loads(place.read_text()) for place in folder.glob("*/checks.json")}
    assert found, f"status {status}: {output}{errors}"
    # The folders are called server-SCENARIO-TIME, the time being the last 24 characters.
    return {name.removeprefix("server-")[: -len("-2026-01-01T00-00-00-000Z")]: checks for name, checks in found.items()}


async def test_whatever_passes_directly_passes_through_the_gateway_but_for_what_is_known(tmp_path: Path) -> None:
    require_peers(f"mcp-{VERSION}")
    async with python_server("conformance_server.py", VERSION, tmp_path) as upstream:
        place = place_for(upstream, tmp_path)
        direct = await judged(upstream, tmp_path / "direct")
        async with place.gateway():
            through = await judged(place.url, tmp_path / "through")
    assert sorted(direct) == sorted(through)
    assert sorted(name for name in direct if passes(direct[name])) == BASELINE["pass directly"]
    failing = {name: complaints(through[name]) for name in BASELINE["pass directly"] if not passes(through[name])}
    assert sorted(failing) == BASELINE["known to fail through the gateway"], failing


async def test_both_revisions_are_covered(tmp_path: Path) -> None:
    require_peers()
    for revision in REVISIONS:
        _, output, _ = await output_of([install.node(), SUITE, "list", "--server", "--spec-version", revision])
        scenarios = {line.split()[1] for line in output.splitlines() if line.startswith("  - ")}
        assert len(scenarios) > 20
        left_out = scenarios - {*BASELINE["pass directly"], *BASELINE["fail directly"]}
        assert left_out == set(), revision


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        (["SUCCESS", "INFO"], True),
        (["SUCCESS", "FAILURE"], False),
        (["SUCCESS", "WARNING"], False),
        (["INFO"], False),
        ([], False),
    ],
)
def test_a_scenario_passes_where_something_was_checked_and_nothing_held_against_the_server(
    said: list[str], passed: bool
) -> None:
    assert passes([{"id": "any", "status": status} for status in said]) is passed
