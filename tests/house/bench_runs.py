"""Runs of the programs in `bench`: `run` one to its end, `figures` of its smallest run, and `times` that it prints
a ratio."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
BOUND = 150.0
"""Seconds that a run may take."""


def run(module: str, *given: str) -> "subprocess.CompletedProcess[str]":
    """The command, to its end."""
    command = [sys.executable, "-m", module, *given]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BOUND, check=False)


def figures(folder: Path, module: str, *given: str) -> tuple[str, Any]:
    """What a run with one round printed, and what it wrote for programs."""
    file = folder / "figures.json"
    done = run(module, "--rounds", "1", *given, "--json", str(file))
    assert (done.returncode, done.stderr) == (0, ""), f"{module} ended with {done.returncode}: {done.stderr}"
    return done.stdout, json.loads(file.read_text())


def times(printed: str, ratios: list[str]) -> dict[str, int]:
    """How often each ratio is the name of a row."""
    rows = [line.split(" | ")[0].removeprefix("| ") for line in printed.splitlines() if line.startswith("| ")]
    return {ratio: rows.count(ratio) for ratio in ratios}
