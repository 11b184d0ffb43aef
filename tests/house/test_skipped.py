"""The last line of `make test` counts what was skipped in all its runs, by reason, and says what brings it."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from house import skipped
from house.skipped import closing_line

TESTS = Path(__file__).resolve().parents[1]
MODULE = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_a(number):
    pytest.skip("there is no a here (Debian: apt-get install a b)")

@pytest.mark.skipif(True, reason="takes long")
def test_b():
    pass

@pytest.mark.xfail
def test_c():
    assert False

def test_d():
    pass
"""


@pytest.mark.program
def test_the_line_adds_up_several_runs_also_on_several_processes(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text(MODULE)
    file = tmp_path / "skipped"
    environment = {**os.environ, "SKIPPED": str(file), "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": ""}
    for more in ([], ["--numprocesses=2"]):
        command = (sys.executable, "-m", "pytest", "-p", "helpers.skips", "-p", "no:schemathesis", *more, tmp_path)
        subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, timeout=50, check=True)
    shown = subprocess.run([sys.executable, skipped.__file__, file], capture_output=True, text=True, check=True)
    assert shown.stdout == (
        "8 skipped: 6: there is no a here; 2: takes long. To install what Debian has: make test SYSTEM=1 (a, b)\n"
    )


def test_packages_of_all_reasons_are_named_once() -> None:
    found = Counter(
        {
            "no p (Debian: apt-get install --no-install-recommends prometheus)": 2,
            "no n: (Debian: apt-get install nodejs npm)": 1,
            "again no n (Debian: apt-get install nodejs npm)": 1,
        }
    )
    assert closing_line(found).endswith(": make test SYSTEM=1 (prometheus, nodejs, npm)")


def test_where_nothing_was_skipped_the_line_says_so() -> None:
    assert closing_line(Counter()) == "No test was skipped."
