"""The measure of the loop's longest stretch runs from start to end and says what it is asked for. No time is judged."""

from pathlib import Path

import pytest
from bench.stretches import SHAPES

from house.bench_runs import PAGE, figures

pytestmark = pytest.mark.thorough


def test_a_run_tells_the_longest_stretch_by_each_shape(tmp_path: Path) -> None:
    printed, found = figures(tmp_path, "bench.stretches", "--size", "20000")
    assert "The goal of 20 ms is " in printed
    written = {one["shape"]: one for one in found}
    assert written.keys() == SHAPES.keys()
    assert all(
        len(one[side]) == 1 and one[side][0] > 0 for one in written.values() for side in ("as_request", "as_answer")
    )
    assert {shape: one["request"] for shape, one in written.items() if one["request"] != "relayed"} == {
        "not JSON": "refused, -32700"
    }
    assert {shape for shape, one in written.items() if one["answer"] != "relayed"} == {"not JSON"}


def test_the_page_shows_every_shape_and_the_command() -> None:
    page = PAGE.read_text()
    assert ".venv/bin/python -m bench.stretches" in page
    assert [shape for shape in SHAPES if f"| {shape} |" not in page] == []
