"""Drawing: numbers with units, lines that stay in their panel, and a picture for every dashboard."""

import re
from xml.etree import ElementTree

import pytest
from grafana.src.axes import Box, Mark, Span, marked, ticks, time_axis
from grafana.src.drawing import BAD, GOOD, Series, bars, heatmap, lines, number, table, timeline
from grafana.src.numbers import written
from grafana.src.preview import FOLDER
from grafana.src.reading import dashboards, shown
from grafana.src.story.__main__ import HEALTHY_DAY, NOTE_OF_THE_DAY, NOTE_OF_THE_HOUR

ALL = dashboards()
BOX = Box(100, 50, 400, 200)
NOON = 1_791_979_200.0
SPAN = Span(begin=NOON, end=NOON + 3600)


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
    for line in drawn(lines(panel(stacks=stacks), series, BOX, SPAN)):
        for x, y in re.findall(r"([-\d.]+),([-\d.]+)", line.get("points", "")):
            assert BOX.x <= float(x) <= BOX.x + BOX.width
            assert BOX.y <= float(y) <= BOX.y + BOX.height


def test_stacked_lines_stand_one_upon_the_other() -> None:
    series = [Series("a", [1.0, 1.0]), Series("b", [1.0, 1.0])]
    upper, lower = (each for each in drawn(lines(panel(stacks=True), series, BOX, SPAN)) if each.tag == "polygon")
    tops = [float(re.findall(r",([\d.]+)", each.get("points", ""))[1]) for each in (upper, lower)]
    assert tops[0] < tops[1]


def test_a_threshold_is_drawn_where_it_fits() -> None:
    near = lines(panel(), [Series("a", [8.0, 9.0])], BOX, SPAN)
    far = lines(panel(), [Series("a", [0.1, 0.2])], BOX, SPAN)
    assert ("stroke-dasharray" in near, "stroke-dasharray" in far) == (True, False)


def test_a_line_that_is_nothing_but_zero_is_drawn() -> None:
    assert "polyline" in lines(panel(), [Series("a", [0.0, 0.0])], BOX, SPAN)


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
    cells = [each for each in drawn(heatmap(panel("s"), series, BOX, SPAN)) if each.tag == "rect"]
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
    rows = [
        f"{'▸' if each['collapsed'] else '▾'} {each['title']}"
        for each in dashboard["panels"]  # type: ignore[attr-defined]
        if each["type"] == "row"
    ]
    wanted = {dashboard["title"], *rows, *(panel["title"] for panel in shown(dashboard))}
    assert wanted <= set(bold)
    assert any("preview, drawn without Grafana" in "".join(each.itertext()) for each in picture.iter())


# --- time, marks, states, bars ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3600, ["12:00", "12:15", "12:30", "12:45", "13:00"]),
        (86400, ["12:00", "18:00", "00:00", "06:00", "12:00"]),
        (20, ["12:00:00", "12:00:05", "12:00:10", "12:00:15", "12:00:20"]),
    ],
)
def test_a_time_axis_has_round_times_of_day(seconds: int, words: list[str]) -> None:
    assert [text for _, text in ticks(Span(begin=NOON, end=NOON + seconds))] == words


def test_every_plot_over_time_has_a_time_axis() -> None:
    flags = [{"type": "value", "options": {"1": {"text": "up", "color": "green", "index": 0}}}]
    series = [Series("1.0", [1.0, 1.0])]
    for text in (
        lines(panel(), series, BOX, SPAN),
        heatmap(panel(), series, BOX, SPAN),
        timeline(panel(mappings=flags), series, BOX, SPAN),
    ):
        assert time_axis(SPAN, BOX).count("<text") == [each.text for each in drawn(text)].count("12:15") * 5


def test_a_mark_is_a_shaded_stretch_or_a_line_and_stays_in_its_plot() -> None:
    marks = [Mark(NOON - 60, NOON + 1800, "incident", "#e02f44"), Mark(NOON + 2700, NOON + 2700, "reload", "#3d7fe0")]
    stretch, line = drawn(marked(Span(begin=NOON, end=NOON + 3600, marks=marks), BOX))
    assert (stretch.get("x"), stretch.get("width")) == ("100.0", "200.0")
    assert (line.get("x1"), line.get("x2")) == ("400.0", "400.0")
    assert [each[0].text for each in (stretch, line)] == ["incident", "reload"]


def test_a_state_timeline_has_a_bar_for_each_stretch_of_a_state_in_its_colour() -> None:
    words = {"0": {"text": "down", "color": "red", "index": 0}, "1": {"text": "up", "color": "green", "index": 1}}
    mapped = panel(mappings=[{"type": "value", "options": words}])
    parts = drawn(timeline(mapped, [Series("reports", [1.0, 1.0, 0.0, None])], BOX, SPAN))
    assert [each.get("fill") for each in parts if each.tag == "rect"] == [GOOD, BAD]
    assert {"up", "reports"} <= {each.text for each in parts}


def test_a_bar_is_as_long_as_its_part_of_the_largest() -> None:
    series = [Series("calls", [3.0, 200.0]), Series("tasks", [100.0, None])]
    wide, half = (float(each.get("width", "")) for each in drawn(bars(panel(), series, BOX)) if each.tag == "rect")
    assert half == pytest.approx(wide / 2)


def test_a_lonely_value_between_gaps_is_a_dot() -> None:
    assert "<circle" in lines(panel(), [Series("a", [None, 3.0, None])], BOX, SPAN)


def test_a_line_does_not_cross_a_gap() -> None:
    assert lines(panel(), [Series("a", [1.0, 2.0, None, 2.0, 1.0])], BOX, SPAN).count("<polyline") == 2


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one["uid"])
def test_the_committed_preview_is_of_the_hour_with_its_incident(dashboard: dict[str, object]) -> None:
    text = (FOLDER / f"{dashboard['uid']}.svg").read_text(encoding="utf-8")
    assert NOTE_OF_THE_HOUR in text
    assert "13:24 to 13:36 incident: reports is down" in text
    assert "13:48 Configuration changed" in text


def test_the_picture_of_the_documents_is_the_overview_of_a_healthy_day() -> None:
    text = (FOLDER / HEALTHY_DAY).read_text(encoding="utf-8")
    assert NOTE_OF_THE_DAY in text
    assert "incident" not in text
    assert {"06:00", "12:00", "18:00"} <= {each.text for each in ElementTree.fromstring(text).iter()}
    assert f"grafana/previews/{HEALTHY_DAY}" in (FOLDER.parents[1] / "docs" / "operate" / "questions.md").read_text(
        encoding="utf-8"
    )
