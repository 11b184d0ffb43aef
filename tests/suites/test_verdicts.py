"""Files of verdicts are read as they are written, and a row with another outcome is named."""

import pytest

from interop.matrix import PAGE
from suites.verdicts import SUITES, Suite, disagreements, parsed, section

CHECKOUT = PAGE.parents[1]
LINK = "(docs/rulings.md)"
VERDICTS = {
    "first": "passes",
    "second": f"differs: it is older {LINK}",
    "third": f"fails: it is late {LINK}",
    "fourth": f"gains: it is bridged {LINK}",
    "fifth": f"neither: it is missing {LINK}",
}
AS_EXPECTED = {"first": None, "second": "old", "third": "late", "fourth": None, "fifth": "no"}
DIRECTLY = {"first": None, "second": None, "third": None, "fourth": "no era", "fifth": "no"}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.environment)
def test_each_verdict_of_a_suite_links_to_a_page_that_is_there(suite: Suite) -> None:
    links = {
        verdict.rpartition("(")[2].removesuffix(")").partition("#")[0]
        for rows in suite.verdicts().values()
        for verdict in rows.values()
        if "(docs/" in verdict
    }
    assert links
    assert [link for link in links if not (CHECKOUT / link).is_file()] == []


def test_the_page_has_the_table_of_the_verdicts() -> None:
    assert section() in PAGE.read_text(encoding="utf-8"), "make suites writes it anew before it runs them"


def test_a_file_has_parts_with_rows() -> None:
    differs, fails = "differs: it is older (https://example.com/)", f"fails: it is late {LINK}"
    text = f"# one\n\na[b c]  passes\n\n# two\n\na[b c]  {differs}\nd  {fails}\n"
    assert parsed(text) == {"one": {"a[b c]": "passes"}, "two": {"a[b c]": differs, "d": fails}}


@pytest.mark.parametrize(
    "line",
    ["a passes", "a  passed", "a  differs", "a  differs: no link", f"a  differs: {LINK}", "b  passes\nb  passes"],
)
def test_a_line_without_a_verdict_and_its_reason_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a row and its verdict"):
        parsed(f"# one\n{line}\n")
    with pytest.raises(ValueError, match="not a row and its verdict"):
        parsed("a  passes\n")


def test_outcomes_as_the_verdicts_say_are_no_disagreement() -> None:
    assert disagreements(VERDICTS, AS_EXPECTED) == []
    assert disagreements(VERDICTS, DIRECTLY, directly=True) == []


@pytest.mark.parametrize(
    ("row", "problem", "named"),
    [
        ("first", "too early", "first: passed before: too early"),
        ("second", None, f"second: passes now: its verdict was “differs: it is older {LINK}”"),
        ("third", None, f"third: passes now: its verdict was “fails: it is late {LINK}”"),
        ("fourth", "no era", "fourth: passed before: no era"),
        ("fifth", None, f"fifth: passes now: its verdict was “neither: it is missing {LINK}”"),
        ("sixth", None, "sixth: has no line: passes"),
        ("sixth", "no", "sixth: has no line: no"),
    ],
)
def test_a_row_with_another_outcome_is_named(row: str, problem: str | None, named: str) -> None:
    assert disagreements(VERDICTS, {**AS_EXPECTED, row: problem}) == [named]


@pytest.mark.parametrize(
    ("row", "problem", "named"),
    [
        ("second", "old", "second: passed before: old"),
        ("fourth", None, f"fourth: passes now: its verdict was “gains: it is bridged {LINK}”"),
        ("fifth", None, f"fifth: passes now: its verdict was “neither: it is missing {LINK}”"),
    ],
)
def test_a_row_with_another_outcome_without_taskgate_is_named(row: str, problem: str | None, named: str) -> None:
    assert disagreements(VERDICTS, {**DIRECTLY, row: problem}, directly=True) == [named]


def test_a_line_of_a_row_that_is_gone_is_named() -> None:
    verdicts = {**VERDICTS, "old": f"neither: it is missing {LINK}"}
    assert disagreements(verdicts, AS_EXPECTED) == ["old: is no row any more: remove its line"]
    assert disagreements(verdicts, DIRECTLY, directly=True) == []
    assert disagreements(VERDICTS | {"old": "passes"}, DIRECTLY, directly=True) == ["old: passed before: no outcome"]
