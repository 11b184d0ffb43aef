"""Which lines and branches of a pure module its own tests leave out.

Its own tests are the files `test_<module>*.py` in the folder of `tests/unit` that mirrors the module's. They run alone,
in a process of their own, on few examples that are the same in every run: neither luck nor other modules' tests count.
"""

import ast
import json
import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import coverage

CHECKOUT = Path(__file__).parents[2]
PACKAGES = CHECKOUT / "proxy"
UNIT = CHECKOUT / "tests" / "unit"
_CONTRACT = "Pure floors do no I/O and know no time"

# No pragma is heard here: what cannot be reached does not belong into a pure module. A bare `...` is a Protocol's.
_CONFIGURATION = r"""
[run]
branch = True
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
    """The test files that stand for a module of the package."""
    place = module.relative_to(PACKAGES / "taskgate")
    return sorted((UNIT / place.parent).glob(f"test_{place.stem}.py")) + sorted(
        (UNIT / place.parent).glob(f"test_{place.stem}_*.py")
    )


def left_out(module: Path, tests: list[Path], scratch: Path) -> str:
    """What `tests` leave out of `module`: "" for nothing, else places, or the output of tests that fail."""
    if not tests:
        return "it has no tests of its own"
    data = scratch / "-".join(module.relative_to(PACKAGES).with_suffix(".data").parts)
    configuration = scratch / "coverage.ini"
    configuration.write_text(_CONFIGURATION)
    measure = ["coverage", "run", f"--rcfile={configuration}", f"--data-file={data}", f"--include={module}"]
    pytest = ["pytest", "-c", str(CHECKOUT / "pyproject.toml"), "--rootdir", str(CHECKOUT), "-p", "no:cacheprovider"]
    # anyio's plugin came with the SDK; nothing here needs it and every start would pay for it.
    options = ["-q", "-p", "no:anyio", "--hypothesis-profile=few"]
    command = [sys.executable, "-m", *measure, "-m", *pytest, *options, *map(str, tests)]
    run = subprocess.run(
        command, cwd=CHECKOUT, env=_environment(), capture_output=True, text=True, timeout=100, check=False
    )
    if run.returncode != 0:
        return run.stdout + run.stderr
    return _gaps(module, data, configuration)


def left_out_of_each(modules: list[Path], scratch: Path) -> dict[Path, str]:
    """What its own tests leave out of each module, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(
            zip(modules, pool.map(lambda module: left_out(module, own_tests(module), scratch), modules), strict=True)
        )


def _environment() -> dict[str, str]:
    """Without what would let a measurement that is going on outside into this one."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def _gaps(module: Path, data: Path, configuration: Path) -> str:
    measured = coverage.Coverage(data_file=data, config_file=str(configuration))
    measured.load()
    report = data.with_suffix(".json")
    measured.json_report(morfs=[str(module)], outfile=str(report))
    (found,) = json.loads(report.read_text())["files"].values()
    lines, branches = found["missing_lines"], found["missing_branches"]
    return f"lines {lines}, branches {branches}" if lines or branches else ""
