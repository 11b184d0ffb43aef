"""Batches of test files, and the last line of `make test` and `make test-all`."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from helpers.forms import LONG, ON_UVLOOP, THOROUGH
from helpers.tally import Tally, tallies
from house.lanes import (
    CHECKOUT,
    FORMS,
    MOST_AGAIN,
    SECONDS,
    Batch,
    Lanes,
    again,
    batches,
    closing_line,
    costs,
    measured,
    skipped_line,
)

pytestmark = pytest.mark.thorough

TESTS = CHECKOUT / "tests"
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

def test_e():
    assert False
"""
PARAMETRIZED = """
import pytest

pytestmark = pytest.mark.thorough

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("letter", ["x", "y"])
def test_it(letter, number):
    pass
"""


@pytest.mark.program
def test_runs_add_up_also_on_several_processes(tmp_path: Path) -> None:
    (tmp_path / "test_module.py").write_text(MODULE)
    environment = {**os.environ, "TALLY": str(tmp_path), "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": ""}
    for more in ([], ["--numprocesses=2"]):
        command = (sys.executable, "-m", "pytest", "-p", "helpers.tally", "-p", "no:schemathesis", *more, tmp_path)
        ended = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, check=False)
        assert ended.returncode == 1
    tally = Tally()
    for one in tallies(tmp_path):
        tally.add(one)
    assert tally.outcomes == {"passed": 2, "failed": 2, "skipped": 8, "xfailed": 2}
    assert tally.failed == ["test_module.py::test_e"] * 2
    assert list(tally.seconds) == ["test_module.py"]
    assert closing_line(FORMS["quick"], tally, 61.6) == (
        "make test: 2 passed, 2 failed, 8 skipped, 2 xfailed in 1 min 2 s. The rest: make test-all, then make soak. "
        "8 skipped: 6: there is no a here; 2: takes long. To install what Debian has: make test SYSTEM=1 (a, b)"
    )


def test_packages_of_all_reasons_are_named_once() -> None:
    found = Counter(
        {
            "no p (Debian: apt-get install --no-install-recommends prometheus)": 2,
            "no n: (Debian: apt-get install nodejs npm)": 1,
            "again no n (Debian: apt-get install nodejs npm)": 1,
        }
    )
    assert skipped_line(found, "make test-all").endswith(": make test-all SYSTEM=1 (prometheus, nodejs, npm)")


def test_where_nothing_was_skipped_the_line_names_no_reason() -> None:
    line = closing_line(FORMS["all"], Tally(Counter(passed=1234)), 25 * 60)
    assert line == "make test-all: 1,234 passed in 25 min 0 s. The rest: make soak."


FAILING = """
from pathlib import Path

PLACE = Path(__file__).with_suffix(".count")

def test_it():
    runs = int(PLACE.read_text()) + 1 if PLACE.exists() else 1
    PLACE.write_text(str(runs))
    assert runs not in {FAILS}

def test_another():
    pass
"""


@pytest.mark.program
@pytest.mark.parametrize(("fails", "outcomes", "left"), [
    ({1}, {"passed": 1, "failed": 0, "passed only alone": 1}, 0),
    ({1, 3}, {"passed": 1, "failed": 1, "passed only alone": 0}, 1),
], ids=["beside others", "once more"])  # fmt: skip
def test_what_failed_beside_others_counts_as_passed_if_it_passes_twice_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: set[int], outcomes: dict[str, int], left: int
) -> None:
    module = tmp_path / "test_module.py"
    module.write_text(FAILING.replace("{FAILS}", repr(fails)))
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    lanes = Lanes(tmp_path)
    lanes.run([Batch("a module", (module.name,), 1, ("-p", "helpers.tally", "-p", "no:schemathesis"))], side_by_side=1)
    assert len(again(lanes)) == left
    assert {name: lanes.tally.outcomes[name] for name in outcomes} == outcomes


def test_more_tests_than_a_few_that_failed_beside_others_do_not_run_again() -> None:
    lanes = Lanes()
    names = [f"tests/test_a.py::test_{number}" for number in range(MOST_AGAIN + 1)]
    lanes.tally.failed += names
    assert again(lanes) == names


@pytest.mark.program
@pytest.mark.parametrize(("options", "names"), [((), ["x-1", "x-2", "y-1", "y-2"]), (("--one",), ["x-2"])])
def test_a_run_has_all_parameters_or_one(tmp_path: Path, options: tuple[str, ...], names: list[str]) -> None:
    (tmp_path / "test_module.py").write_text(PARAMETRIZED)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", CHECKOUT / "pyproject.toml"]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, "-v", tmp_path],
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT}:{TESTS}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.findall(r"test_it\[(.*?)\] PASSED", ended.stdout) == names


def test_the_long_form_has_what_the_form_of_everything_leaves_out() -> None:
    bench, tasks, other = (
        "tests/house/test_bench.py",
        "tests/interaction/test_tasks.py",
        "tests/interaction/test_other.py",
    )
    seconds = dict.fromkeys([bench, tasks, other], 1.0)
    ran = {name: [(batch.files, batch.options[1:]) for batch in FORMS[name].work(seconds)] for name in ("all", "long")}
    assert ran["all"] == [((other, tasks), ()), ((tasks,), ("--loop", "uvloop", "--one"))]
    assert ran["long"] == [((bench,), ()), ((other, tasks), ("--loop", "uvloop"))]


def test_a_batch_has_files_of_one_folder_up_to_its_seconds() -> None:
    files = {"a/test_1.py": 4.0, "a/in/test_2.py": 5.0, "a/test_3.py": 6.0, "b/test_1.py": 1.0, "b/test_2.py": 30.0}
    seconds = {f"tests/{file}": each for file, each in files.items()}
    found = [(batch.files, batch.seconds) for batch in batches(seconds, (), 10)]
    assert found == [
        (("tests/a/in/test_2.py", "tests/a/test_1.py"), 9),
        (("tests/a/test_3.py",), 6),
        (("tests/b/test_1.py",), 1),
        (("tests/b/test_2.py",), 30),
    ]


def test_a_measured_run_says_what_folders_and_files_cost() -> None:
    one, two = "tests/unit/auth/test_keys.py", "tests/interop/test_matrix.py"
    tally = Tally(seconds=Counter({one: 2.0, two: 8.0}), busy=Counter({one: 1.0, two: 4.0}))
    assert [*costs(tally)] == [
        "tests/interop: 8 s, 4 s of the processors\n",
        "tests/unit/auth: 2 s, 1 s of the processors\n",
        f"{two}: 8 s, 4 s of the processors\n",
        f"{one}: 2 s, 1 s of the processors\n",
    ]


def test_each_folder_and_file_that_forms_name_is_there() -> None:
    named = [TESTS / folder / f"{file}.py" for folder, files in THOROUGH.items() for file in files]
    assert [file for file in named if not file.is_file()] == []
    assert [folder for folder in THOROUGH if not (TESTS / folder).is_dir()] == []
    assert [file for file in LONG | ON_UVLOOP if not (CHECKOUT / file).is_file()] == []


def test_each_file_whose_seconds_are_known_is_there() -> None:
    assert [file for file in json.loads(SECONDS.read_text()) if not (CHECKOUT / file).is_file()] == []


def test_what_did_not_run_keeps_its_seconds_and_what_is_gone_has_none() -> None:
    ran, left_out, gone = (f"tests/house/{name}.py" for name in ("test_lanes", "test_bench", "test_nothing"))
    before = {ran: 3.0, left_out: 78.8, gone: 9.0}
    assert measured(before, {ran}, {ran: 4.26}) == {left_out: 78.8, ran: 4.3}
    assert measured(before, {ran}, {ran: 0.1}) == {left_out: 78.8}
