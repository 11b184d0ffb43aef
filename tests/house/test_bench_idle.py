"""The measure of idle programs runs from start to end and says what it is asked for. No time is judged."""

from pathlib import Path

import pytest

from house.bench_runs import figures

pytestmark = pytest.mark.thorough


def test_a_run_tells_what_idle_programs_cost(tmp_path: Path) -> None:
    printed, written = figures(tmp_path, "bench.idle", "--programs", "2", "--seconds", "0.1")
    assert "| the gateway, with 2 |" in printed
    assert "2 idle programs add" in printed
    assert written["programs"] == 2
    assert {len(written[name]) for name in ("without", "gateway", "nursery", "kib")} == {1}
