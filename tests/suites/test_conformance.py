"""The official conformance suites judge servers through taskgate as the verdict of each row says."""

from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from interop.peers import HOME, output_of, require_peers
from interop.suite import passes
from peers import install
from suites.conformance import ENVIRONMENTS, PACKAGES, PARTS, Places, outcomes, places
from suites.verdicts import CONFORMANCE, Suite, judge

pytestmark = [pytest.mark.interop, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[tuple[str, str], Places]]:
    """The servers, directly and behind a gateway."""
    require_peers(*ENVIRONMENTS)
    async with places(tmp_path_factory.mktemp("conformance")) as found:
        yield found


@pytest.mark.parametrize(("suite", "part"), PARTS, ids=lambda each: str(getattr(each, "release", each)))
async def test_each_row_has_the_outcome_of_its_verdict(
    served: Mapping[tuple[str, str], Places], tmp_path_factory: pytest.TempPathFactory, suite: Suite, part: str
) -> None:
    url = served[PARTS[suite, part].server].through_taskgate
    judge(suite, part, await outcomes(suite, part, url, tmp_path_factory.mktemp("judgement")))


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_the_scenarios_of_a_revision_are_rows(revision: str) -> None:
    require_peers()
    program = HOME / "node_modules" / PACKAGES[CONFORMANCE] / "dist" / "index.js"
    _, output, _ = await output_of([install.node(), program, "list", "--server", "--spec-version", revision])
    scenarios = {line.split()[1] for line in output.splitlines() if line.startswith("  - ")}
    (rows,) = CONFORMANCE.verdicts().values()
    assert len(scenarios) > 20
    assert scenarios - rows.keys() == set()


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
async def test_a_scenario_passes_where_something_was_checked_and_nothing_held_against_the_server(
    said: list[str], passed: bool
) -> None:
    assert passes([{"id": "any", "status": status} for status in said]) is passed
