"""Without taskgate each row has the outcome that its verdict says: where they differ, taskgate is the cause."""

import asyncio

import pytest

from interop.peers import require_peers
from suites import conformance, fastmcp_tests, interaction, typescript_rows
from suites.verdicts import INTERACTION, TYPESCRIPT_ROWS, Suite, judge

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


async def test_the_interaction_suite(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_peers(INTERACTION.environment, packages=False)
    runs = (interaction.run(part).directly(tmp_path_factory.mktemp("suite")) for part in interaction.PARTS)
    for part, found in zip(interaction.PARTS, await asyncio.gather(*runs), strict=True):
        judge(INTERACTION, part, interaction.rows(part, found), directly=True)


@pytest.mark.parametrize("suite", fastmcp_tests.FOLDERS, ids=["client", "proxy"])
async def test_tests_of_fastmcp(tmp_path_factory: pytest.TempPathFactory, suite: Suite) -> None:
    require_peers(suite.environment, packages=False)
    found = await fastmcp_tests.run(suite).directly(tmp_path_factory.mktemp("suite"))
    for part in suite.verdicts():
        judge(suite, part, fastmcp_tests.rows(suite, found), directly=True)


async def test_rows_after_the_requirements_of_the_typescript_sdk(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_peers()
    found = await typescript_rows.outcomes(lambda: tmp_path_factory.mktemp("rows"), directly=True)
    for part, outcomes in found.items():
        judge(TYPESCRIPT_ROWS, part, outcomes, directly=True)


async def test_the_conformance_suites(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_peers(*conformance.ENVIRONMENTS)
    async with conformance.places(tmp_path_factory.mktemp("conformance")) as places:
        for (suite, part), (server, _) in conformance.PARTS.items():
            judgement = tmp_path_factory.mktemp("judgement")
            found = await conformance.outcomes(suite, part, places[server].directly, judgement)
            judge(suite, part, found, directly=True)
