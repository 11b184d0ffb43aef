"""Which lines and branches of a pure module the tests of its folder leave out.

The tests are the files in the folders of `tests/unit` and `tests/cases` with the name of the module's top folder; where
that folder is not pure as a whole, those of `tests/unit` that begin with the module's name. Each folder is measured in
a process of its own, on few examples that are the same in every run: neither luck nor tests of other folders count.
"""

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import coverage

CHECKOUT = Path(__file__).parents[2]
PACKAGES = CHECKOUT / "proxy"
UNIT = CHECKOUT / "tests" / "unit"
CASES = CHECKOUT / "tests" / "cases"
PATIENCE = 540
"""Seconds."""
_WHOLE = {"auth", "domain", "jsontext", "protocol"}
"""The folders whose tests stand for all their modules."""
_CONTRACT = "Pure floors do no I/O and know no time"

# No pragma is heard here: what cannot be reached does not belong into a pure module. A bare `...` is a Protocol's, and
# an overload is for types alone.
_CONFIGURATION = r"""
[run]
branch = True
include = {}
[report]
exclude_lines =
  ^\s*\.\.\.$
  ^@overload$
"""


def pure_modules() -> list[Path]:
    """The files of the floors that the import contract calls pure, less those that hold nothing but a docstring."""
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (names,) = [contract["source_modules"] for contract in contracts if contract["name"] == _CONTRACT]
    places = [PACKAGES.joinpath(*name.split(".")) for name in names]
    files = [file for place in places for file in (sorted(place.rglob("*.py")) or [place.with_suffix(".py")])]
    return [file for file in files if len(ast.parse(file.read_text()).body) > 1]


def own_tests(module: Path) -> list[Path]:
    """The test files that stand for a module of the package."""
    place = module.relative_to(PACKAGES / "taskgate")
    folder = UNIT / place.parts[0]
    if place.parts[0] in _WHOLE:
        return sorted(file for each in (folder, CASES / folder.name) for file in each.rglob("test_*.py"))
    return sorted((UNIT / place.parent).glob(f"test_{place.stem}*.py"))


def left_out(modules: Iterable[Path], tests: Iterable[Path], scratch: Path) -> dict[Path, str]:
    """What `tests` leave out of each module: "" for nothing, else places, or the output of tests that fail."""
    modules, tests = [*modules], [*tests]
    if not tests:
        return dict.fromkeys(modules, "it has no tests of its own")
    data = scratch / "measured.data"
    failed = _measured(modules, tests, data)
    return {module: failed or _gaps(module, data) for module in modules}


def left_out_of_each(modules: Iterable[Path], scratch: Path) -> dict[Path, str]:
    """The same of all of them, by their own tests."""
    by_tests: dict[tuple[Path, ...], list[Path]] = {}
    for module in modules:
        by_tests.setdefault(tuple(own_tests(module)), []).append(module)
    found: dict[Path, str] = {}
    for number, (tests, theirs) in enumerate(by_tests.items()):
        folder = scratch / str(number)
        folder.mkdir()
        found |= left_out(theirs, tests, folder)
    return found


def _measured(modules: list[Path], tests: list[Path], data: Path) -> str:
    """Has the tests run, and keeps what of the modules they ran in `data`; what they said, if they failed."""
    configuration = data.with_suffix(".ini")
    configuration.write_text(_CONFIGURATION.format("".join(f"\n  {module}" for module in modules)))
    coverage = [sys.executable, "-P", "-m", "coverage", "run", f"--rcfile={configuration}", f"--data-file={data}"]
    pytest = ["-m", "pytest", "-c", CHECKOUT / "pyproject.toml", "--rootdir", CHECKOUT, "-p", "no:cacheprovider"]
    # Plugins that nothing here needs, and every start would pay for; anyio's came with the SDK.
    options = ["-q", "-p", "no:anyio", "-p", "no:xdist", "--hypothesis-profile=few"]
    command = [*coverage, *pytest, *options, *tests]
    run = subprocess.run(
        command, cwd=CHECKOUT, env=_environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return run.stdout + run.stderr if run.returncode else ""


def _environment() -> dict[str, str]:
    """Without what would let a measurement that is going on outside into this one."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def _gaps(module: Path, data: Path) -> str:
    """What no test ran of the module."""
    measured = coverage.Coverage(data_file=data, config_file=str(data.with_suffix(".ini")))
    measured.load()
    report = data.with_suffix(".json")
    measured.json_report(morfs=[str(module)], outfile=str(report))
    (found,) = json.loads(report.read_text())["files"].values()
    lines, branches = found["missing_lines"], found["missing_branches"]
    return f"lines {lines}, branches {branches}" if lines or branches else ""
