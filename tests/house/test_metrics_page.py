"""docs/metrics.md and the catalogue say the same, both ways."""

import re
from pathlib import Path

import orjson
import pytest

from taskgate.config.sections.telemetry import MetricsSection
from taskgate.telemetry.metrics.catalogue import FAMILIES, PARTS, Family, series_bound
from taskgate.telemetry.metrics.labels import Label
from taskgate.telemetry.metrics.settings import MetricsConfig

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def _rows(heading: str | None) -> list[list[str]]:
    """The cells of every table row: of the section with that heading, or of all those of families before `Labels`."""
    text = PAGE.read_text(encoding="utf-8")
    families, _, labels = text[text.index("\n## The process\n") :].partition("\n## Labels\n")
    return _cells(labels if heading else families)


def _keys() -> list[list[str]]:
    """The cells of the table of keys."""
    text = PAGE.read_text(encoding="utf-8")
    return _cells(text[: text.index("\n## The process\n")])


def _cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in row.split("|")] for row in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE)]


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


def test_every_part_of_the_catalogue_has_its_heading() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = [heading for heading in re.findall(r"^## (.*)$", text, re.MULTILINE) if heading in PARTS]
    assert headings == list(PARTS)


def test_the_page_explains_every_key_of_the_section_with_its_default() -> None:
    usual = MetricsSection().model_dump(mode="json")
    shown = {_quoted(key)[0]: _quoted(default) for key, default, _ in _keys()}
    assert shown == {
        key: [value if isinstance(value, str) else orjson.dumps(value).decode()] for key, value in usual.items()
    }


def test_the_page_is_right_about_how_many_series_there_can_be() -> None:
    def bound(upstreams: int) -> int:
        names = {str(number): str(number) for number in range(upstreams)}
        rates = ("ip", "auth_failures", "calls", "polls", "rest")
        sinks = ("file", "stdout")
        return series_bound(
            MetricsConfig(backend="sqlite", upstreams=names, issuers=("corp",), policies=rates, sinks=sinks)
        )

    said = re.search(r"at most about\s+(\d+), and (\d+) more for each", PAGE.read_text(encoding="utf-8"))
    assert said is not None
    each = bound(4) - bound(3)
    assert int(said[1]) == pytest.approx(bound(3) - 3 * each, abs=50)
    assert int(said[2]) == pytest.approx(each, abs=10)


def test_the_dashboards_page_points_here() -> None:
    folder = PAGE.parents[1] / "grafana"
    assert "(../docs/metrics.md)" in (folder / "README.md").read_text(encoding="utf-8")
