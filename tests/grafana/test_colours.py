"""Colours by meaning: the same status has the same colour in every panel, in Grafana and in previews."""

import re
from itertools import product
from typing import Any

import pytest
from grafana.src.axes import Box, Span
from grafana.src.colours import MEANINGS, Meaning, contrast, rules, shade
from grafana.src.drawing import Series, lines
from grafana.src.reading import dashboards, panels

from taskgate.domain.record import TaskStatus
from taskgate.telemetry.metrics.catalogue import FAMILIES

PANELS = [panel for dashboard in dashboards() for panel in panels(dashboard)]
WANTED = {
    "completed": Meaning.GOOD,
    "failed": Meaning.BAD,
    "cancelled": Meaning.STOPPED,
    "input_required": Meaning.WAITS,
    "working": Meaning.WORKS,
}
STATUS = re.compile(r"\{\{(to_status|status)\}\}")
DRAWN_OVER_TIME = ("timeseries", "bargauge")


def colour_in(panel: dict[str, Any], name: str) -> str | None:
    """The colour that Grafana gives to a series of that name."""
    for override in panel["fieldConfig"]["overrides"]:
        if re.search(override["matcher"]["options"].strip("/"), name):
            [colour] = [each["value"] for each in override["properties"] if each["id"] == "color"]
            return str(colour["fixedColor"])
    return None


def legends(pattern: re.Pattern[str]) -> list[tuple[dict[str, Any], str]]:
    """The panels and legends that show such a label."""
    return [
        (panel, target["legendFormat"])
        for panel in PANELS
        for target in panel["targets"]
        if panel["type"] in DRAWN_OVER_TIME and pattern.search(target["legendFormat"])
    ]


def test_every_status_has_its_colour_in_every_panel_that_shows_one() -> None:
    found = legends(STATUS)
    assert len(found) >= 5
    for (panel, legend), status in product(found, TaskStatus):
        name = STATUS.sub(status.value, legend.replace("{{from_status}}", "working"))
        name = re.sub(r"\{\{\w+\}\}", "anything", name)
        assert colour_in(panel, name) == WANTED[status.value], (panel["title"], name)


def test_every_label_with_a_meaning_colours_the_panels_that_show_it() -> None:
    for label, meanings in MEANINGS.items():
        for panel, legend in legends(re.compile(rf"\{{\{{{label}\}}\}}")):
            name = re.sub(r"\{\{\w+\}\}", "x", legend.replace(f"{{{{{label}}}}}", next(iter(meanings))))
            assert colour_in(panel, name), (panel["title"], name)


@pytest.mark.parametrize("label", MEANINGS)
def test_a_meaning_is_that_of_a_value_that_there_is(label: str) -> None:
    known = {
        text for family in FAMILIES for each in family.labels if each.name == label for text in each.values.values()
    }
    assert set(MEANINGS[label]) <= known


@pytest.mark.parametrize("label", MEANINGS)
def test_every_value_of_a_label_with_a_meaning_has_one(label: str) -> None:
    known = {
        text for family in FAMILIES for each in family.labels if each.name == label for text in each.values.values()
    }
    assert known <= set(MEANINGS[label])


@pytest.mark.parametrize("meaning", Meaning)
@pytest.mark.parametrize("panel", ["#ffffff", "#181b1f"], ids=["light", "dark"])
def test_a_colour_is_told_apart_from_a_light_and_from_a_dark_panel(meaning: Meaning, panel: str) -> None:
    assert contrast(meaning.value, panel) >= 3


def test_the_contrast_of_black_and_white_is_the_largest() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_reasons_of_one_status_are_shades_of_its_colour() -> None:
    shades = [shade(Meaning.BAD, place) for place in range(4)]
    assert shades[0] == Meaning.BAD.value
    assert len(set(shades)) == 4


def test_a_legend_without_a_meaning_has_no_colours() -> None:
    assert list(rules("{{upstream}}")) == []


def test_a_pattern_takes_a_name_that_holds_signs_of_patterns_as_it_is() -> None:
    [pattern, *_] = [rule.pattern for rule in rules("({{upstream}}) {{status}}")]
    assert re.search(pattern, "(reports) completed")
    assert not re.search(pattern, "reports completed")


def test_a_preview_has_the_colours_of_the_panel() -> None:
    [panel] = [panel for panel in PANELS if panel["title"] == "Stored tasks by status"]
    span = Span(begin=0, end=60)
    text = lines(panel, [Series("working", [1.0, 2.0]), Series("failed", [1.0, 1.0])], Box(0, 0, 400, 200), span)
    assert {Meaning.WORKS.value, Meaning.BAD.value} <= set(re.findall(r'fill="(#\w+)"', text))
    assert Meaning.GOOD.value not in text
