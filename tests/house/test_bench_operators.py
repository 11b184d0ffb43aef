"""The benchmark of the lists of operators runs from start to end, and each list shows what its name says."""

from pathlib import Path

import pytest
from bench import operators

from house.bench_runs import BOUND, PAGE, figures, times

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(BOUND + 10)]
TASKS = 400


def test_a_run_asks_for_each_list_of_both_stores(tmp_path: Path) -> None:
    printed, written = figures(tmp_path, "bench.operators", "--tasks", f"{TASKS}", "--running", "10")

    assert times(printed, list(operators.LISTS)) == dict.fromkeys(operators.LISTS, 1)
    for store in (operators.SQLITE, operators.VALKEY):
        shown = {title: found for title, (_, found) in written[store].items()}
        assert {shown[title] for title in ("running", "running, newest first")} == {"10"}
        assert (shown["all"], shown["completed"]) == ("50 and more", "50 and more")
        assert (shown["of a rare upstream"], shown["of one caller of a thousand"]) == ("4", "1")
        assert shown["that no task matches"] == "0"


@pytest.mark.parametrize("title", operators.LISTS)
def test_the_page_names_every_list(title: str) -> None:
    assert f"| {title} |" in PAGE.read_text()
