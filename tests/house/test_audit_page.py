"""docs/audit.md and the catalogue of events say the same, both ways."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from taskgate.telemetry.auditlog.catalogue import KINDS, EventKind
from taskgate.telemetry.auditlog.formats.native import MAX_ARGUMENTS_LENGTH
from taskgate.telemetry.auditlog.formats.schema import schema

TEXT = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def _rows() -> list[list[str]]:
    """The cells of every row of the table of events."""
    section = TEXT.partition("\n## Events\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in row.split("|")] for row in re.findall(r"^\| (`.*) \|$", section, re.MULTILINE)]


def test_the_page_lists_every_event_once_and_no_other_in_the_order_of_the_catalogue() -> None:
    assert [row[0].strip("`") for row in _rows()] == [kind.name for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_event_has_its_outcomes_meaning_and_events_on_the_page(kind: EventKind) -> None:
    [row] = [row for row in _rows() if row[0] == f"`{kind.name}`"]
    outcomes = ", ".join(f"{outcome} ({severity})" for outcome, severity in kind.severities.items())
    assert row[1:] == [outcomes, kind.meaning, ", ".join(f"`{member}`" for member in kind.members)]


def test_the_line_on_the_page_is_one() -> None:
    [written] = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    line = json.loads(written.replace("6f1c…e2", "6f1c" * 16))
    assert [fault.message for fault in Draft202012Validator(schema()).iter_errors(line)] == []


def test_the_page_says_how_long_arguments_in_full_may_be() -> None:
    assert f"{MAX_ARGUMENTS_LENGTH:,} letters" in TEXT.replace("\n", " ")
