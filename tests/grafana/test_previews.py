"""Drawing: numbers with units, lines that stay in their panel, and a picture for every dashboard."""

import re
from xml.etree import ElementTree

import pytest
from grafana.src.drawing import BAD, GOOD, Box, Series, heatmap, lines, number, table
from grafana.src.numbers import written
from grafana.src.preview import FOLDER
from grafana.src.reading import dashboards, panels

ALL = dashboards()
BOX = Box(100, 50, 400, 200)


def panel(unit: str = "short", *, stacks: bool = False, **defaults: object) -> dict[str, object]:
    """One that draws what it is given; its threshold is at 10."""
    steps = [{"color": "green", "value": None}, {"color": "red", "value": 10}]
    custom = {"stacking": {"mode": "normal"}} if stacks else {}
    return {"fieldConfig": {"defaults": {"unit": unit, "thresholds": {"steps": steps}, "custom": custom} | defaults}}


def drawn(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<svg>{text}</svg>")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "s", "0"),
        (0.0123, "s", "12.3 ms"),
        (90, "s", "1.5 min"),
        (0.0000042, "s", "4.2 µs"),
        (172800, "s", "2 d"),
        (1536, "bytes", "1.5 KiB"),
        (4 * 2**30, "bytes", "4 GiB"),
        (0.0144, "percentunit", "1.44 %"),
        (12, "short", "12"),
        (1234, "short", "1.23k"),
        (2.5, "reqps", "2.5 req/s"),
        (0.25, "cps", "0.25/s"),
        (1, "bool_yes_no", "yes"),
        (4812, "locale", "4,812"),
        (-0.002, "s", "-2 ms"),
    ],
)
def test_a_number_is_written_short_and_with_its_unit(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


@pytest.mark.parametrize("stacks", [False, True])
def test_lines_stay_in_their_panel_whatever_their_values(*, stacks: bool) -> None:
    """Also where a value is below zero, and where some are missing."""
    series = [Series("a", [1.0, None, 30.0]), Series("b", [-500.0, 2.0, 0.0])]
    for line in drawn(lines(panel(stacks=stacks), series, BOX)):
        for x, y in re.findall(r"([-\d.]+),([-\d.]+)", line.get("points", "")):
            assert BOX.x <= float(x) <= BOX.x + BOX.width
            assert BOX.y <= float(y) <= BOX.y + BOX.height


def test_stacked_lines_stand_one_upon_the_other() -> None:
    series = [Series("a", [1.0, 1.0]), Series("b", [1.0, 1.0])]
    upper, lower = (each for each in drawn(lines(panel(stacks=True), series, BOX)) if each.tag == "polygon")
    tops = [float(re.findall(r",([\d.]+)", each.get("points", ""))[1]) for each in (upper, lower)]
    assert tops[0] < tops[1]


def test_a_threshold_is_drawn_where_it_fits() -> None:
    near = lines(panel(), [Series("a", [8.0, 9.0])], BOX)
    far = lines(panel(), [Series("a", [0.1, 0.2])], BOX)
    assert ("stroke-dasharray" in near, "stroke-dasharray" in far) == (True, False)


def test_a_line_that_is_nothing_but_zero_is_drawn() -> None:
    assert "polyline" in lines(panel(), [Series("a", [0.0, 0.0])], BOX)


@pytest.mark.parametrize(("value", "colour"), [(9.0, GOOD), (10.0, BAD)])
def test_a_number_has_the_colour_of_its_threshold(value: float, colour: str) -> None:
    [text] = drawn(number(panel(), [Series("a", [1.0, value, None])], BOX))
    assert (text.text, text.get("fill")) == (f"{value:g}", colour)


def test_a_number_that_has_a_word_is_shown_as_that() -> None:
    words = [{"type": "value", "options": {"1": {"text": "ready", "color": "green", "index": 0}}}]
    [text] = drawn(number(panel(mappings=words), [Series("a", [1.0])], BOX))
    assert text.text == "ready"


def test_a_heatmap_shows_what_is_in_each_bucket_and_not_what_is_below_too() -> None:
    series = [Series("1.0", [4.0]), Series("+Inf", [4.0]), Series("0.5", [1.0])]
    cells = [each for each in drawn(heatmap(panel("s"), series, BOX)) if each.tag == "rect"]
    assert [each.get("fill-opacity") for each in cells] == ["0.33", "1.00"]


def test_a_table_has_no_more_rows_than_room() -> None:
    texts = [each.text for each in drawn(table([["name", "n"], *(["x", "1"] for _ in range(99))], BOX))]
    assert texts[:2] == ["name", "n"]
    assert len(texts) < 40


def test_names_are_escaped() -> None:
    assert "<b>" not in number(panel(), [Series("<b>", [1.0]), Series("c", [2.0])], BOX)


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one["uid"])
def test_the_committed_preview_is_of_the_dashboard_as_it_is(dashboard: dict[str, object]) -> None:
    """The same panels under the same headings; the numbers are those of some other day."""
    picture = ElementTree.fromstring((FOLDER / f"{dashboard['uid']}.svg").read_text(encoding="utf-8"))
    bold = ["".join(each.itertext()) for each in picture.iter() if each.get("font-weight") == "bold"]
    rows = [f"▾ {each['title']}" for each in dashboard["panels"] if each["type"] == "row"]  # type: ignore[attr-defined]
    wanted = {dashboard["title"], *rows, *(panel["title"] for panel in panels(dashboard))}
    assert wanted <= set(bold)
    assert any("preview, drawn without Grafana" in "".join(each.itertext()) for each in picture.iter())
