"""The page of threats names tests that there are, and leaves no threat out."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from helpers.case_files import read_file
from house.test_requirements import covering
from threats import THREATS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.(?:py|txt))::([\w ]+)`")
ROW = re.compile(r"^\| (?P<ids>[^|]*) ?\| (?P<threat>[^|]+) \| (?P<answer>[^|]+) \| (?P<tests>[^|]+) \|$")

COUNTS = {"I-ISO": 7, "R-RES": 8, "O-AUD": 6, "A-AUTH": 18, "S-SEC": 10}
IDS = {f"{kind}-{n}" for kind, count in COUNTS.items() for n in range(1, count + 1)} | THREATS.keys()


def ids_in(text: str) -> set[str]:
    """The ids of requirements and threats that a text names."""
    return set(re.findall(r"\b(?:(?:I-ISO|R-RES|O-AUD|A-AUTH|S-SEC)-\d+|T\d+)\b", text))


@cache
def names_of(file: Path) -> frozenset[str]:
    """The names of a file's tests, or the sentences of a file of cases."""
    if file.suffix == ".txt":
        return frozenset(section.sentence for section in read_file(file).sections)
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


def named_for(page: str, id: str) -> set[str]:
    """The tests that rows with an id name, as FILE::NAME."""
    of_id = [row["tests"] for row in rows(page) if id in ids_in(row["ids"])]
    return {f"{file}::{name}" for tests in of_id for file, name in NAMED.findall(tests)}


@pytest.mark.parametrize("id", THREATS)
def test_a_threat_has_a_row_whose_tests_say_that_they_show_it(id: str) -> None:
    """And each test that says so is in a row of it."""
    named, said = named_for(PAGE, id), covering().get(id, frozenset())
    assert named & said, "no test in a row of the page says that it covers this"
    assert said - named == set(), "tests that cover this are in no row of it"


# --- each check can fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["tests/house/test_security_page.py::test_of_nothing", "tests/none.py::test_a"])
def test_a_test_that_is_not_there_is_seen(place: str) -> None:
    assert missing(f"| T1 | a | b | `{place}` |") == [place.rpartition("/")[2]]


def test_an_id_is_read_whole() -> None:
    assert ids_in("T1, A-AUTH-17 and XT2, T30.") == {"T1", "A-AUTH-17", "T30"}


def test_of_a_row_the_tests_belong_to_each_of_its_ids() -> None:
    first = "| T1, T2 | a | b | `tests/a.py::test_b`, `tests/a.py::test_c` |\n"
    page = f"\n## Threats\n{first}| T3 | a | b | `tests/d.py::test_e` |\n"
    assert named_for(page, "T2") == {"tests/a.py::test_b", "tests/a.py::test_c"}
    assert named_for(page, "T3") == {"tests/d.py::test_e"}
    assert named_for(page, "T4") == set()
