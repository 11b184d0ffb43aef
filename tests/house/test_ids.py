"""Every id that code, tests and documents name is explained in this repository.

Requirements are in `docs/requirements.md`, rulings in `docs/rulings.md`, decisions in `docs/decisions`.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from requirements import NOT_BUILT, REQUIREMENTS

CHECKOUT = Path(__file__).resolve().parents[2]
NUMBERED = re.compile(r"(?<![\w-])((?:[A-Z]+-)+)\d+[a-z]?(?![\w-])")
"""Such as `L-TASK-3` and `AMB-1`."""
PUBLISHED = {"UTF-", "SEP-", "P-", "SHA-", "HMAC-SHA-", "RSA-", "CVE-", "SSH-", "ISO-"}
"""Names that others number."""
MADE_UP = {"WORD-", "MCP-PARAM-OTHER-"}
"""Texts of tests that look like an id."""
ELSEWHERE = re.compile(r"§|\.\./shared|\b[Ll]edger \d|\bdecisions (?:\d+[a-d]?|[a-d])\b")
DECISION = re.compile(r"\bdecisions? (\d+)\b|decisions/(\d{4})-")


@cache
def texts() -> dict[str, str]:
    """What is looked through, by its name in the checkout."""
    found = [CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for folder, suffixes in (("proxy", ".py .lua .sql"), ("tests", ".py .txt"), ("docs", ".md"), ("config", ".yaml")):
        found += [file for file in (CHECKOUT / folder).rglob("*") if file.suffix in suffixes.split()]
    here = {file for file in found if file != Path(__file__) and "node_modules" not in file.parts}
    return {str(file.relative_to(CHECKOUT)): file.read_text() for file in sorted(here)}


def ids_in(text: str) -> Iterator[str]:
    """The ids of ours in a text."""
    for match in NUMBERED.finditer(text):
        if match[1] not in PUBLISHED | MADE_UP:
            yield match[0]


@cache
def rulings() -> frozenset[str]:
    return frozenset(re.findall(r"^\| ([A-Z]+-\d+) \|", texts()["docs/rulings.md"], flags=re.MULTILINE))


def test_every_id_is_a_requirement_or_a_ruling() -> None:
    known = REQUIREMENTS.keys() | NOT_BUILT.keys() | rulings()
    assert [f"{name}: {id}" for name, text in texts().items() for id in ids_in(text) if id not in known] == []


def test_no_id_is_explained_twice() -> None:
    assert NOT_BUILT.keys() & REQUIREMENTS.keys() == set()


def test_every_ruling_is_named_somewhere_else() -> None:
    named = {id for name, text in texts().items() if name != "docs/rulings.md" for id in ids_in(text)}
    assert rulings() - named == set()


def test_every_decision_that_is_named_is_there() -> None:
    there = {int(file.name[:4]) for file in (CHECKOUT / "docs" / "decisions").glob("[0-9]*.md")}
    named = {
        int(next(filter(None, match)))
        for name, text in texts().items()
        if not name.startswith("tests/")
        for match in DECISION.findall(text)
    }
    assert named - there == set()


def test_nothing_is_explained_by_what_is_not_in_this_repository() -> None:
    assert [f"{name}: {found}" for name, text in texts().items() for found in ELSEWHERE.findall(text)] == []


@pytest.mark.parametrize(
    ("text", "ids"),
    [("as L-TASK-3 (X-UE-1) says, AMB-12", ["L-TASK-3", "X-UE-1", "AMB-12"]), ("UTF-8, P-256, a-B-1, T1, B-1-x", [])],
)
def test_an_id_is_seen_in_any_text(text: str, ids: list[str]) -> None:
    assert [*ids_in(text)] == ids
