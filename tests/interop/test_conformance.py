"""The official conformance suite says the same of a server through taskgate as it says of the server itself.

What it says is compared by scenario. `conformance_baseline.json` names those that a server on an unmodified SDK passes,
and of them those that are known to fail through the gateway. Each of the two lists must be exactly true: what is named
there and passes after all has to be taken out.
"""

import json
from pathlib import Path

import pytest

from interop.hosts import place_for
from interop.peers import HOME, output_of, python_server, require_peers
from interop.suite import complaints, judged, passes
from peers import install

pytestmark = pytest.mark.interop

BASELINE = json.loads(Path(__file__).with_name("conformance_baseline.json").read_text())
SUITE = HOME / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
ALL = ("--suite", "all")
VERSION = "1.23.3"
REVISIONS = ("2025-06-18", "2025-11-25")


async def test_whatever_passes_directly_passes_through_the_gateway_but_for_what_is_known(tmp_path: Path) -> None:
    require_peers(f"mcp-{VERSION}")
    async with python_server("conformance_server.py", VERSION, tmp_path) as upstream:
        place = place_for(upstream, tmp_path)
        direct = await judged(SUITE, upstream, tmp_path / "direct", *ALL)
        async with place.gateway():
            through = await judged(SUITE, place.url, tmp_path / "through", *ALL)
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
