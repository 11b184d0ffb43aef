"""Without taskgate each row has the outcome that its verdict says: where they differ, taskgate is the cause."""

import asyncio
from collections.abc import Mapping

import pytest

from interop.peers import require_peers
from suites import conformance, fastmcp_tests, interaction, typescript_rows
from suites.verdicts import INTERACTION, TYPESCRIPT_ROWS, Outcomes, Suite, disagreements

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


def expect(suite: Suite, found: Mapping[str, Outcomes]) -> None:
    """That each row of these parts has its outcome."""
    verdicts = suite.verdicts()
    wrong = [each for part in found for each in disagreements(verdicts[part], found[part], directly=True)]
    assert not wrong, "\n".join(wrong)


async def test_the_interaction_suite(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_peers(INTERACTION.environment, packages=False)
    runs = (interaction.run(part).directly(tmp_path_factory.mktemp("suite")) for part in interaction.PARTS)
    parts = zip(interaction.PARTS, await asyncio.gather(*runs), strict=True)
    expect(INTERACTION, {part: interaction.rows(part, each) for part, each in parts})


@pytest.mark.parametrize("suite", fastmcp_tests.FOLDERS, ids=["client", "proxy"])
async def test_tests_of_fastmcp(tmp_path_factory: pytest.TempPathFactory, suite: Suite) -> None:
    require_peers(suite.environment, packages=False)
    found = await fastmcp_tests.run(suite).directly(tmp_path_factory.mktemp("suite"))
    expect(suite, {part: fastmcp_tests.rows(suite, found) for part in suite.verdicts()})


async def test_rows_after_the_requirements_of_the_typescript_sdk(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_peers()
    found = await typescript_rows.outcomes(lambda: tmp_path_factory.mktemp("rows"), directly=True)
    expect(TYPESCRIPT_ROWS, found)


async def test_the_conformance_suites(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_peers(*conformance.ENVIRONMENTS)
    async with conformance.places(tmp_path_factory.mktemp("conformance")) as places:
        for (suite, part), (server, _) in conformance.PARTS.items():
            judgement = tmp_path_factory.mktemp("judgement")
            expect(suite, {part: await conformance.outcomes(suite, part, places[server].directly, judgement)})
