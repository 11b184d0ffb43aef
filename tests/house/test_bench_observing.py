"""The benchmark of what being seen costs runs from start to end and says what it is asked for. No time is judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import observing

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
BOUND = 150.0
pytestmark = pytest.mark.timeout(BOUND + 10)
RATIOS = [
    *(
        f"{load}: CPU, {of} / {observing.UNSEEN}"
        for load in observing.scenarios()
        for of in (observing.SEEN, observing.METRICS, observing.LOG, observing.SYNCED, observing.TRACED)
    ),
]


def run(*given: str) -> "subprocess.CompletedProcess[str]":
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "bench.observing", *given],
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
    done = run("--rounds", "1", "--scale", "0.001", "--series", "2000", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, json.loads(file.read_text())


def test_a_run_prints_every_ratio_once(ran: tuple[str, dict[str, Any]]) -> None:
    printed, written = ran

    rows = [line.split(" | ")[0].removeprefix("| ") for line in printed.splitlines() if line.startswith("| ")]

    assert {ratio: rows.count(ratio) for ratio in RATIOS} == dict.fromkeys(RATIOS, 1)
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


def test_a_part_that_does_not_exist_is_refused() -> None:
    done = run("--only", "relay,nothing")

    assert done.returncode == 2
    assert "unknown: nothing" in done.stderr


@pytest.mark.parametrize("name", [*observing.PARTS, *(f"`{name}`" for name in observing.TARGETS)])
def test_the_page_names_every_part_and_every_gateway(name: str) -> None:
    assert name in PAGE.read_text()


def test_the_page_names_the_command() -> None:
    assert ".venv/bin/python -m bench.observing" in PAGE.read_text()
