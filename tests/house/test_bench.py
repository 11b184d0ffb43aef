"""The benchmark runs from start to end and says what it is asked for; its page names every load. No time is judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.caller import Expectation
from bench.report import FIGURES
from bench.scenarios import LARGE, PARTS, SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
BOUND = 50.0

RATIOS = [
    f"{scenario.name}: {FIGURES[ratio.figure]}, {ratio.of} / {ratio.to}"
    for scenario in SCENARIOS
    for ratio in scenario.ratios
] + [
    "memory per held call: taskgate / bare",
    "memory per held task: taskgate / least",
    "memory per held task: taskgate, KiB",
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What the smallest possible run of every part printed, and what it wrote for programs."""
    file = tmp_path_factory.mktemp("bench") / "figures.json"
    small = ("--rounds", "1", "--scale", "0.001", "--held", "10", "--warm-up", "64", "--json", str(file))
    done = subprocess.run(
        [sys.executable, "-m", "bench", *small], cwd=ROOT, capture_output=True, text=True, timeout=BOUND, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, json.loads(file.read_text())


def test_a_run_prints_every_ratio_once(ran: tuple[str, dict[str, Any]]) -> None:
    printed, _ = ran

    rows = [line.split(" | ")[0].removeprefix("| ") for line in printed.splitlines() if line.startswith("| ")]

    assert {ratio: rows.count(ratio) for ratio in RATIOS} == dict.fromkeys(RATIOS, 1)


def test_a_run_writes_the_same_ratios_for_programs(ran: tuple[str, dict[str, Any]]) -> None:
    _, written = ran

    assert [found["what"] for found in written["ratios"]] == RATIOS
    assert all(found["value"] > 0 for found in written["ratios"] if not found["what"].startswith("memory"))


def test_a_run_measures_every_target_of_every_load(ran: tuple[str, dict[str, Any]]) -> None:
    _, written = ran

    measured = {name: tuple(found["samples"]) for name, found in written["scenarios"].items()}

    assert measured == {scenario.name: scenario.targets for scenario in SCENARIOS}


def test_the_parts_that_run_when_named_run_from_start_to_end() -> None:
    small = ("--only", ",".join(LARGE), "--stored", "200", "--waiters", "10", "--rounds", "1", "--scale", "0.001")
    done = subprocess.run(
        [sys.executable, "-m", "bench", *small], cwd=ROOT, capture_output=True, text=True, timeout=BOUND, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "among 200 / among 100" in done.stdout
    assert "10 running tasks" in done.stdout


def test_a_load_that_does_not_exist_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--only", "relay,nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )

    assert done.returncode == 2
    assert "unknown: nothing" in done.stderr


@pytest.mark.parametrize(
    ("head", "body", "complaint"),
    [
        (b"HTTP/1.1 200 OK", b'{"id":123456789,"result":"fox"}', ""),
        (b"HTTP/1.1 503 No", b'{"id":123456789,"result":"fox"}', "HTTP/1.1 503 No"),
        (b"HTTP/1.1 200 OK", b'{"id":123456780,"result":"fox"}', "another id"),
        (b"HTTP/1.1 200 OK", b'{"id":123456789,"error":{}}', "0 times fox"),
        (b"HTTP/1.1 200 OK", b'{"id":123456789,"result":"fox fox"}', "2 times fox"),
    ],
    ids=["right", "status", "id", "error", "twice"],
)
def test_a_wrong_answer_never_counts_as_fast(head: bytes, body: bytes, complaint: str) -> None:
    told = Expectation(b"fox", 1).complaint(head, body, b"123456789")

    assert told.partition(":")[0] == complaint


@pytest.mark.parametrize("name", [*PARTS, *LARGE, *(scenario.name for scenario in SCENARIOS)])
def test_the_page_names_every_load(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text()


@pytest.mark.parametrize("command", ["make bench", ".venv/bin/python -m bench", "--quick", "--only"])
def test_the_page_names_the_command(command: str) -> None:
    assert command in PAGE.read_text()
