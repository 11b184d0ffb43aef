"""The benchmark of what being seen costs runs from start to end and says what it is asked for. No time is judged."""

from typing import Any

import pytest
from bench import observing

from house.bench_runs import BOUND, PAGE, figures, times

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(BOUND + 10)]
RATIOS = [
    *(
        f"{load}: CPU, {of} / {observing.UNSEEN}"
        for load in observing.scenarios()
        for of in (observing.SEEN, observing.METRICS, observing.LOG, observing.SYNCED, observing.TRACED)
    ),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What the smallest possible run of every part printed, and what it wrote for programs."""
    return figures(tmp_path_factory.mktemp("bench"), "bench.observing", "--scale", "0.001", "--series", "2000")


def test_a_run_prints_every_ratio_once(ran: tuple[str, dict[str, Any]]) -> None:
    printed, written = ran

    assert times(printed, RATIOS) == dict.fromkeys(RATIOS, 1)
    assert [found["what"] for found in written["ratios"]] == RATIOS


def test_every_request_has_a_line_and_lines_go_together(ran: tuple[str, dict[str, Any]]) -> None:
    """A round is 64 requests and as many to warm up; and there may be a checkpoint."""
    _, written = ran

    for load in ("relay", "get"):
        for kept in written["audit"][load]:
            assert kept["lines"] >= 128
            assert kept["writes"] < kept["lines"] / 4


def test_a_scrape_has_as_many_series_as_it_is_asked_for(ran: tuple[str, dict[str, Any]]) -> None:
    _, written = ran

    (count,) = {found["what"].split()[2] for found in written["scrapes"] if found["what"].startswith("scrape")}

    assert 1_500 <= int(count.replace(",", "")) <= 2_500


@pytest.mark.parametrize("name", [*observing.PARTS, *(f"`{name}`" for name in observing.TARGETS)])
def test_the_page_names_every_part_and_every_gateway(name: str) -> None:
    assert name in PAGE.read_text()


def test_the_page_names_the_command() -> None:
    assert ".venv/bin/python -m bench.observing" in PAGE.read_text()
