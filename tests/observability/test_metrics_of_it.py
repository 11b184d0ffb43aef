"""The metrics of a gateway to which everything has happened: clean, all in the catalogue, and every one has moved."""

import re

import pytest

from helpers.prometheus_server import promtool
from observability.drive import Run
from observability.reading import Archive
from taskgate.telemetry.metrics.catalogue import FAMILIES, Family, FamilyKind

pytestmark = [pytest.mark.alone, pytest.mark.timeout(480), pytest.mark.asyncio(loop_scope="module")]

PAGES = ("new", "used", "new again", "at the end", "a replica", "another replica", "the last replica")
OF_EVERY_PROGRAM = ("process_", "python_")
NOT_PLAYED = {"taskgate_rate_limit_waiting", "taskgate_sessions_evicted_total"}
"""Families that the scenario does not move; `test_waits_for_rates` and `test_session_and_stream_caps` do."""


def families_in(page: str) -> dict[str, str]:
    """The families of a page, and their types."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))


@pytest.mark.parametrize("place", range(len(PAGES)), ids=PAGES)
async def test_a_scrape_is_free_of_mistakes(run: Run, place: int) -> None:
    assert promtool("check", "metrics", stdin=run.pages[place]) == (0, "")


@pytest.mark.parametrize("place", range(len(PAGES)), ids=PAGES)
async def test_a_scrape_has_every_family_of_the_catalogue_and_no_other(run: Run, place: int) -> None:
    found = {
        name: kind for name, kind in families_in(run.pages[place]).items() if not name.startswith(OF_EVERY_PROGRAM)
    }
    assert found == {family.name: family.kind for family in FAMILIES}


@pytest.mark.parametrize(
    "family", [each for each in FAMILIES if each.name not in NOT_PLAYED], ids=lambda family: family.name
)
async def test_what_happened_has_moved_it(run: Run, archive: Archive, family: Family) -> None:
    """A counter and a histogram have counted; a gauge was now this and now that. What tells of a build is always 1."""
    name = f"{family.name}_count" if family.kind is FamilyKind.HISTOGRAM else family.name
    seen = [{value for _, value in one["values"]} for one in await archive.found(name)]
    if family.name.endswith("_info"):
        assert set().union(*seen) == {"1"}
    elif family.kind is FamilyKind.GAUGE:
        assert max(map(len, seen), default=0) > 1
    else:
        assert set().union(*seen) - {"0"}
