"""docs/metrics.md and the catalogue say the same, both ways."""

import re
from pathlib import Path

import pytest

from taskgate.telemetry.catalogue import FAMILIES, Family, Label

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def _rows(heading: str | None) -> list[list[str]]:
    """The cells of every table row: of the section with that heading, or of all sections before `Labels`."""
    text = PAGE.read_text(encoding="utf-8")
    families, _, labels = text.partition("\n## Labels\n")
    rows = re.findall(r"^\| (`.*) \|$", labels if heading else families, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def _label_rows(name: str, family: str) -> list[str]:
    rows = [(of, values) for label, of, values in _rows("Labels") if label == f"`{name}`"]
    return [values for of, values in rows if of == "all" or family in _quoted(of)]


def test_the_page_lists_every_family_once_and_no_other_in_the_order_of_the_catalogue() -> None:
    assert [_quoted(row[0]) for row in _rows(None)] == [[family.name] for family in FAMILIES]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_has_its_type_labels_and_meaning_on_the_page(family: Family) -> None:
    [row] = [row for row in _rows(None) if _quoted(row[0]) == [family.name]]
    _, kind, labels, meaning = row
    assert (kind, _quoted(labels), meaning) == (family.kind, [label.name for label in family.labels], family.meaning)


@pytest.mark.parametrize(
    ("family", "label"),
    [(family, label) for family in FAMILIES for label in family.labels],
    ids=lambda each: each.name,
)
def test_the_values_of_a_label_are_on_the_page(family: Family, label: Label) -> None:
    [values] = _label_rows(label.name, family.name)
    if label.values is not None:
        assert ["" if word == "empty" else word.strip("`") for word in values.split(", ")] == list(
            label.values.values()
        )


def test_the_page_explains_no_label_that_no_family_has() -> None:
    known = {(label.name, family.name) for family in FAMILIES for label in family.labels}
    for name, of, _ in _rows("Labels"):
        [label] = _quoted(name)
        for family in _quoted(of) or [family for one, family in known if one == label]:
            assert (label, family) in known
        assert label in {one for one, _ in known}


def test_the_dashboards_page_points_here() -> None:
    folder = PAGE.parents[1] / "grafana"
    text = (folder / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (folder / target).resolve() == PAGE
    assert "docs/metrics.md" in text
