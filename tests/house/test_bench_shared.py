"""The benchmark of the shared store runs from start to end and says what it is asked for. No time is judged."""

from typing import Any

import pytest
from bench import shared
from bench.report import FIGURES, finding

from house.bench_runs import BOUND, PAGE, figures, times

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(BOUND + 10)]
RATIOS = [
    f"{load.name}: {FIGURES[ratio.figure]}, {ratio.of} / {ratio.to}"
    for load in shared.scenarios().values()
    for ratio in load.ratios
]
COMMANDS = {
    f"{name}: commands of a `{kind}`": count
    for name, counts in {
        shared.VALKEY: {"relay": 0, "get": 1},
        shared.VALKEY + shared.RATED: {"relay": 1, "get": 2},
    }.items()
    for kind, count in counts.items()
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What the smallest possible run of every part printed, and what it wrote for programs."""
    return figures(tmp_path_factory.mktemp("bench"), "bench.shared", "--scale", "0.001")


def test_a_run_prints_every_ratio_once(ran: tuple[str, dict[str, Any]]) -> None:
    printed, written = ran

    assert times(printed, RATIOS) == dict.fromkeys(RATIOS, 1)
    assert [found["what"] for found in written["ratios"]] == RATIOS


def test_a_run_counts_the_commands_of_every_request_and_of_idle_gateways(ran: tuple[str, dict[str, Any]]) -> None:
    _, written = ran

    counted = {found["what"]: found["value"] for found in written["commands"]}

    assert {what: counted[what] for what in COMMANDS} == COMMANDS
    assert counted[f"{shared.VALKEY}: commands of a `create`"] >= 1
    assert len([what for what in counted if "idle" in what]) == 2


@pytest.mark.parametrize(("values", "verdict"), [([0.4, 0.7, 0.5], "met"), ([0.4, 0.7, 0.49], "missed")])
def test_a_goal_may_be_the_least_that_is_wanted(values: list[float], verdict: str) -> None:
    found = finding("rate", values, None, at_least=0.5)

    assert (found.goal, found.verdict) == ("≥ 0.5", verdict)


@pytest.mark.parametrize("name", [*shared.PARTS, *shared.TARGETS])
def test_the_page_names_every_part_and_every_gateway(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text()


def test_the_page_names_the_command() -> None:
    assert ".venv/bin/python -m bench.shared" in PAGE.read_text()
