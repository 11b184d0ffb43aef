"""The page of threats names tests that there are, and leaves no threat out."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROW = re.compile(r"^\| (?P<ids>[^|]*) ?\| (?P<threat>[^|]+) \| (?P<answer>[^|]+) \| (?P<tests>[^|]+) \|$")

COUNTS = {"I-ISO": 7, "R-RES": 8, "O-AUD": 6, "A-AUTH": 17, "S-SEC": 10}
THREATS = (*range(1, 26), 27, 30, 34, 38, 39, 41, 42, 43, 44, 45, 46, 48, 49, 51, 52, 53, 54, 55)
IDS = {f"{kind}-{n}" for kind, count in COUNTS.items() for n in range(1, count + 1)} | {f"T{n}" for n in THREATS}


def ids_in(text: str) -> set[str]:
    """The ids of requirements and threats that a text names."""
    return set(re.findall(r"\b(?:(?:I-ISO|R-RES|O-AUD|A-AUTH|S-SEC)-\d+|T\d+)\b", text))


@cache
def names_of(file: Path) -> frozenset[str]:
    """The names of a file's tests."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds))
    return frozenset(name for name in found if name.startswith("test_"))


def missing(page: str) -> list[str]:
    """The tests that a page names and that there are not."""
    found = [(ROOT / file, name) for file, name in NAMED.findall(page)]
    return [f"{file.name}::{name}" for file, name in found if not file.is_file() or name not in names_of(file)]


def rows(page: str) -> list[re.Match[str]]:
    """The rows of the tables of threats, without their heads."""
    threats = page.partition("\n## Threats\n")[2].partition("\n## ")[0]
    lines = [line for line in threats.splitlines() if line.startswith("|") and not line.startswith(("| ids", "|---"))]
    found = [ROW.match(line) for line in lines]
    assert None not in found, "a row has other columns"
    return [row for row in found if row is not None]


def test_every_test_that_is_named_exists() -> None:
    assert missing(PAGE) == []


def test_every_threat_of_the_tables_has_a_test_and_nothing_that_looks_like_one() -> None:
    assert len(rows(PAGE)) > 50
    assert [row["threat"] for row in rows(PAGE) if not NAMED.fullmatch(row["tests"].split(", ")[0])] == []
    assert [row["threat"] for row in rows(PAGE) if NAMED.sub("", row["tests"]).strip(" ,")] == []


def test_every_threat_is_on_the_page() -> None:
    assert IDS - ids_in(PAGE) == set()
    assert ids_in(PAGE) - IDS == set()


# --- each check can fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["tests/house/test_security_page.py::test_of_nothing", "tests/none.py::test_a"])
def test_a_test_that_is_not_there_is_seen(place: str) -> None:
    assert missing(f"| T1 | a | b | `{place}` |") == [place.rpartition("/")[2]]


def test_an_id_is_read_whole() -> None:
    assert ids_in("T1, A-AUTH-17 and XT2, T30.") == {"T1", "A-AUTH-17", "T30"}
