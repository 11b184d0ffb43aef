"""What the package imports is declared, and what is declared is imported."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from requirements import covers

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "proxy" / "taskgate"


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
# What comes with an extra is imported where a store or an event loop is made that takes it.
DECLARED = {
    normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    for requirement in [
        *PROJECT["dependencies"],
        *PROJECT["optional-dependencies"]["redis"],
        *PROJECT["optional-dependencies"]["uvloop"],
    ]
}


def imported(source: str) -> set[str]:
    """The top-level names that a module imports, wherever the statement stands; its own package is left out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - {"taskgate"}


@cache
def foreign() -> dict[str, set[str]]:
    """The third-party names that the package imports, each with the files that do."""
    found: dict[str, set[str]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for name in imported(file.read_text()) - sys.stdlib_module_names:
            found.setdefault(name, set()).add(str(file.relative_to(PACKAGE)))
    return found


@cache
def distributions(name: str) -> set[str]:
    """The distributions that install a top-level name."""
    return {normal(distribution) for distribution in packages_distributions().get(name, [])}


def test_what_is_imported_is_declared() -> None:
    undeclared = {name: sorted(files) for name, files in foreign().items() if not distributions(name) & DECLARED}
    assert undeclared == {}


@pytest.mark.parametrize("declared", sorted(DECLARED))
def test_what_is_declared_is_imported(declared: str) -> None:
    assert any(declared in distributions(name) for name in foreign())


# Below these, published advisories concern code that is used here.
SAFE = {"aiohttp": ">=3.14.3", "cryptography": ">=50", "pyjwt": ">=2.15.1"}
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(each for name in ("tracing", "redis", "uvloop") for each in PROJECT["optional-dependencies"][name]),
]


def is_bounded(requirement: str) -> bool:
    """Whether a requirement has a floor and a ceiling."""
    return bool(re.search(r">=[\d.]+", requirement)) and bool(re.search(r"<\d", requirement))


@covers("T56")
def test_every_dependency_has_a_floor_and_a_ceiling() -> None:
    assert [requirement for requirement in REQUIREMENTS if not is_bounded(requirement)] == []


@pytest.mark.parametrize("name", sorted(SAFE))
def test_no_release_with_a_known_hole_is_accepted(name: str) -> None:
    (requirement,) = [one for one in REQUIREMENTS if normal(re.split(r"[^\w.-]", one, maxsplit=1)[0]) == name]
    assert f"{SAFE[name]}," in requirement


def test_a_dependency_without_a_floor_or_a_ceiling_is_seen() -> None:
    assert [one for one in ("a>=1,<2", "b>=1", "c<2", "d", "e[x]>=1.5,<2") if is_bounded(one)] == [
        "a>=1,<2",
        "e[x]>=1.5,<2",
    ]


def test_an_import_is_seen_wherever_it_stands() -> None:
    source = "import a.b, c\nfrom d.e import f\nfrom . import g\nfrom taskgate import h\ndef i():\n    import j as k\n"
    assert imported(source) == {"a", "c", "d", "j"}


def test_every_file_of_the_package_that_is_no_module_is_in_what_is_installed() -> None:
    patterns = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "taskgate"
    ]
    installed = {file for pattern in patterns for file in PACKAGE.glob(pattern)}
    others = {file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix not in {".py", ".pyc"}}
    # The folder of examples has links into the checkout; tests/packages compares them.
    share = PACKAGE / "share"
    assert {str(file.relative_to(PACKAGE)) for file in others ^ installed if not file.is_relative_to(share)} == set()
