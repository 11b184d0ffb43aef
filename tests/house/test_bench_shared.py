"""The benchmark of the shared store runs from start to end and says what it is asked for. No time is judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import shared
from bench.report import FIGURES, finding

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
BOUND = 150.0
pytestmark = pytest.mark.timeout(BOUND + 10)
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


def run(*given: str) -> "subprocess.CompletedProcess[str]":
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "bench.shared", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What the smallest possible run of every part printed, and what it wrote for programs."""
    file = tmp_path_factory.mktemp("bench") / "figures.json"
    done = run("--rounds", "1", "--scale", "0.001", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, json.loads(file.read_text())


def test_a_run_prints_every_ratio_once(ran: tuple[str, dict[str, Any]]) -> None:
    printed, written = ran

    rows = [line.split(" | ")[0].removeprefix("| ") for line in printed.splitlines() if line.startswith("| ")]

    assert {ratio: rows.count(ratio) for ratio in RATIOS} == dict.fromkeys(RATIOS, 1)
    assert [found["what"] for found in written["ratios"]] == RATIOS


def test_a_run_counts_the_commands_of_every_request_and_of_idle_gateways(ran: tuple[str, dict[str, Any]]) -> None:
    _, written = ran

    counted = {found["what"]: found["value"] for found in written["commands"]}

    assert {what: counted[what] for what in COMMANDS} == COMMANDS
    assert counted[f"{shared.VALKEY}: commands of a `create`"] >= 1
    assert len([what for what in counted if "idle" in what]) == 2


def test_a_part_that_does_not_exist_is_refused() -> None:
    done = run("--only", "relay,nothing")

    assert done.returncode == 2
    assert "unknown: nothing" in done.stderr


@pytest.mark.parametrize(("values", "verdict"), [([0.4, 0.7, 0.5], "met"), ([0.4, 0.7, 0.49], "missed")])
def test_a_goal_may_be_the_least_that_is_wanted(values: list[float], verdict: str) -> None:
    found = finding("rate", values, None, at_least=0.5)

    assert (found.goal, found.verdict) == ("≥ 0.5", verdict)


@pytest.mark.parametrize("name", [*shared.PARTS, *shared.TARGETS])
def test_the_page_names_every_part_and_every_gateway(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text()


def test_the_page_names_the_command() -> None:
    assert ".venv/bin/python -m bench.shared" in PAGE.read_text()
