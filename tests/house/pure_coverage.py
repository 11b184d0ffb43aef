"""Which lines and branches of a pure module the tests of its folder leave out.

The tests are the files in the folder of `tests/unit` with the name of the module's top folder. They run in a process
of their own, on few examples that are the same in every run: neither luck nor tests of other folders count. All
folders are measured together at first. What seems to be left out then is measured alone: a test of another folder may
have filled a cache.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import coverage

CHECKOUT = Path(__file__).parents[2]
PACKAGES = CHECKOUT / "proxy"
UNIT = CHECKOUT / "tests" / "unit"
PATIENCE = 240
"""Seconds."""
_CONTRACT = "Pure floors do no I/O and know no time"

# No pragma is heard here: what cannot be reached does not belong into a pure module. A bare `...` is a Protocol's.
_CONFIGURATION = r"""
[run]
branch = True
include = {}
[report]
exclude_lines = ^\s*\.\.\.$
"""


def pure_modules() -> list[Path]:
    """The files of the floors that the import contract calls pure, less those that hold nothing but a docstring."""
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (names,) = [contract["source_modules"] for contract in contracts if contract["name"] == _CONTRACT]
    places = [PACKAGES.joinpath(*name.split(".")) for name in names]
    files = [file for place in places for file in (sorted(place.rglob("*.py")) or [place.with_suffix(".py")])]
    return [file for file in files if len(ast.parse(file.read_text()).body) > 1]


def own_tests(module: Path) -> list[Path]:
    """The test files of the folder that a module of the package is in."""
    return sorted((UNIT / module.relative_to(PACKAGES / "taskgate").parts[0]).rglob("test_*.py"))


def left_out(module: Path, tests: list[Path], scratch: Path) -> str:
    """What `tests` leave out of `module`: "" for nothing, else places, or the output of tests that fail."""
    if not tests:
        return "it has no tests of its own"
    data = scratch / "-".join(module.relative_to(PACKAGES).with_suffix(".data").parts)
    failed = _measured([module], tests, data)
    return failed or _gaps(module, [module, *tests], data)


def left_out_of_each(tests: dict[Path, list[Path]], scratch: Path) -> dict[Path, str]:
    """What its tests leave out of each module; see `left_out`."""
    data = scratch / "together.data"
    failed = _measured(list(tests), sorted({file for files in tests.values() for file in files}), data)
    found = {module: failed or _gaps(module, [module, *files], data) for module, files in tests.items()}
    return {module: seems and left_out(module, tests[module], scratch) for module, seems in found.items()}


def _measured(modules: list[Path], tests: list[Path], data: Path) -> str:
    """Has the tests run, and keeps what of the modules they ran in `data`; what they said, if they failed."""
    configuration = data.with_suffix(".ini")
    configuration.write_text(_CONFIGURATION.format("".join(f"\n  {module}" for module in modules)))
    pytest = ["-c", str(CHECKOUT / "pyproject.toml"), "--rootdir", str(CHECKOUT), "-p", "no:cacheprovider"]
    # Plugins that nothing here needs, and every start would pay for; anyio's came with the SDK.
    options = ["-q", "-p", "no:anyio", "-p", "no:xdist", "--hypothesis-profile=few"]
    measure = [sys.executable, "-P", str(Path(__file__).with_name("measured_together.py")), configuration, data]
    command = [*measure, *pytest, *options, *tests]
    run = subprocess.run(
        command, cwd=CHECKOUT, env=_environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return run.stdout + run.stderr if run.returncode else ""


def _environment() -> dict[str, str]:
    """Without what would let a measurement that is going on outside into this one."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def _gaps(module: Path, by: list[Path], data: Path) -> str:
    """What nothing of `by` ran of the module."""
    measured = coverage.Coverage(data_file=data, config_file=str(data.with_suffix(".ini")))
    measured.load()
    report = data.with_suffix(".json")
    contexts = [f"^{re.escape(str(one))}$" for one in by]
    measured.json_report(morfs=[str(module)], outfile=str(report), contexts=contexts)
    (found,) = json.loads(report.read_text())["files"].values()
    lines, branches = found["missing_lines"], found["missing_branches"]
    return f"lines {lines}, branches {branches}" if lines or branches else ""
