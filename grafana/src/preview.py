"""`python -m grafana.src.preview URL`: draws every dashboard as a picture, from what a Prometheus answers.

One SVG for each dashboard. What must not live here: how something is drawn (`drawing`).
"""

import argparse
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

from grafana.src import drawing
from grafana.src.axes import Box, Mark, Span
from grafana.src.drawing import Series
from grafana.src.numbers import written
from grafana.src.reading import dashboards, expanded, shown

FOLDER: Final = Path(__file__).parents[1] / "previews"
WIDTH, COLUMN, ROW, TOP = 1200, 50, 24, 56
STEPS: Final = 120
_COLOURS: Final = {"blue": "#3d7fe0", "purple": "#a352cc", "red": "#e02f44"}
_EXPLAINED: Final = 6
_LABEL: Final = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """Where to ask, and over which time: `seconds` up to `end`, with rates over `window`."""

    url: str
    end: float
    seconds: float
    window: str

    def over_time(self, expr: str) -> list[dict[str, Any]]:
        """The series of an expression."""
        times = {"start": self.end - self.seconds, "end": self.end, "step": self.seconds / STEPS}
        return self._ask("query_range", {"query": self._plain(expr), **times})

    def at_the_end(self, expr: str) -> list[dict[str, Any]]:
        """The values of an expression, as they are at the end."""
        return self._ask("query", {"query": self._plain(expr), "time": self.end})

    def _plain(self, expr: str) -> str:
        return expanded(expr, window=self.window, span=f"{self.seconds:.0f}s")

    def _ask(self, what: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        with urlopen(f"{self.url}/api/v1/{what}?{urlencode(parameters)}", timeout=30) as answer:  # noqa: S310
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result


def picture(dashboard: dict[str, Any], prometheus: Prometheus, note: str, marks: Sequence[Mark] = ()) -> str:
    """A dashboard as the text of an SVG. The note names the source of the numbers; marks are annotations of them."""
    height = TOP + ROW * max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in dashboard["panels"]) + 8
    rows = [each for each in dashboard["panels"] if each["type"] == "row"]
    begin = prometheus.end - prometheus.seconds
    span = Span(begin=begin, end=prometheus.end, marks=[*marks, *_annotations(dashboard, prometheus)])
    drawn = [
        drawing.text(12, 26, dashboard["title"], size=20, weight="bold"),
        drawing.text(12, 44, f"preview, drawn without Grafana; {note}", size=11, colour=drawing.FAINT),
        *_explained(span),
        *(_heading(row) for row in rows),
        *(_drawn(panel, prometheus, span) for panel in shown(dashboard)),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="Helvetica, Arial, sans-serif">'
    )
    page = f'<rect width="{WIDTH}" height="{height}" class="page"/>'
    return "\n".join([head, drawing.STYLE, page, *drawn, "</svg>", ""])


def _annotations(dashboard: dict[str, Any], prometheus: Prometheus) -> Iterator[Mark]:
    """The moments in which an annotation of the dashboard begins; one that is there from the start is none."""
    step = prometheus.seconds / STEPS
    for annotation in dashboard["annotations"]["list"]:
        for one in prometheus.over_time(annotation["expr"]):
            begins = float(one["values"][0][0])
            if begins > prometheus.end - prometheus.seconds + step:
                words = " ".join((annotation["name"], *sorted(one["metric"].values())))
                yield Mark(begins, begins, words, _COLOURS[annotation["iconColor"]])


def _explained(span: Span) -> Iterator[str]:
    """What the marks are, on the right of the heading; each text once."""
    first = {mark.text: mark for mark in reversed(span.marks)}
    for place, mark in enumerate(sorted(first.values(), key=lambda mark: mark.begin)[:_EXPLAINED]):
        x, y = WIDTH - 620 + 310 * (place % 2), 14 + 13 * (place // 2)
        times = " to ".join(_clock(moment) for moment in sorted({mark.begin, mark.end}))
        yield f'<rect x="{x}" y="{y - 7}" width="8" height="8" fill="{mark.colour}" fill-opacity="0.6"/>'
        yield drawing.text(x + 12, y, f"{times} {mark.text}", size=9.5)


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M")


def _heading(row: dict[str, Any]) -> str:
    """The title of a row; that of a closed one names its panels, too."""
    closed = [panel["title"] for panel in row.get("panels", [])]
    x, y = 14, _place(row).y + 17
    title = drawing.text(x, y, f"{'▸' if closed else '▾'} {row['title']}", size=13, weight="bold")
    return title + (drawing.text(x + 420, y, ", ".join(closed), size=11, colour=drawing.FAINT) if closed else "")


def _place(panel: dict[str, Any]) -> Box:
    at = panel["gridPos"]
    return Box(at["x"] * COLUMN + 3, TOP + at["y"] * ROW + 3, at["w"] * COLUMN - 6, at["h"] * ROW - 6)


def _drawn(panel: dict[str, Any], prometheus: Prometheus, span: Span) -> str:
    box = _place(panel)
    if panel["type"] == "table":
        rows = _rows(panel, prometheus)
        return drawing.framed(panel, box, drawing.table(rows, box) if len(rows) > 1 else drawing.empty(box))
    if panel["type"] == "bargauge":
        return drawing.framed(panel, box, drawing.bars(panel, _newest(panel, prometheus), box))
    found = [
        Series(_renamed(series.name, panel), series.values)
        for target in panel["targets"]
        for series in _series(target, prometheus)
    ]
    if not found:
        return drawing.framed(panel, box, drawing.empty(box))
    if panel["type"] == "stat":
        return drawing.framed(panel, box, drawing.number(panel, found, box))
    return drawing.framed(panel, box, _OVER_TIME[panel["type"]](panel, found, box, span))


_OVER_TIME: Final = {
    "timeseries": drawing.lines,
    "heatmap": drawing.heatmap,
    "state-timeline": drawing.timeline,
}


def _newest(panel: dict[str, Any], prometheus: Prometheus) -> list[Series]:
    return [
        Series(_named(target["legendFormat"], one["metric"]), [float(one["value"][1])])
        for target in panel["targets"]
        for one in prometheus.at_the_end(target["expr"])
    ]


def _series(target: dict[str, Any], prometheus: Prometheus) -> list[Series]:
    """The series of a query that have a value at all, each at every step."""
    begin, step = prometheus.end - prometheus.seconds, prometheus.seconds / STEPS
    found = []
    for one in prometheus.over_time(target["expr"]):
        values: list[float | None] = [None] * (STEPS + 1)
        for moment, value in one["values"]:
            if math.isfinite(float(value)):
                values[round((moment - begin) / step)] = float(value)
        if any(value is not None for value in values):
            found.append(Series(_named(target["legendFormat"], one["metric"]), values))
    return sorted(found)


def _named(legend: str, labels: dict[str, str]) -> str:
    named = _LABEL.sub(lambda label: labels.get(label[1], ""), legend)
    return named if named.strip() else "(none)"


def _renamed(name: str, panel: dict[str, Any]) -> str:
    """The name of a series after the transformations of its panel."""
    for each in panel.get("transformations", []):
        if each["id"] == "renameByRegex":
            name = re.sub(each["options"]["regex"], each["options"]["renamePattern"].replace("$", "\\"), name)
    return name


def _rows(panel: dict[str, Any], prometheus: Prometheus) -> list[Sequence[str]]:
    """A table as Grafana merges it: the labels, then a column for each query; the first query decides the rows."""
    answers = [
        {tuple(sorted(one["metric"].items())): float(one["value"][1]) for one in prometheus.at_the_end(target["expr"])}
        for target in panel["targets"]
    ]
    order = sorted(answers[0], key=lambda labels: (-answers[0][labels], labels))
    columns = [name for name, _ in order[0]] if order else []
    unit = panel["fieldConfig"]["defaults"]["unit"]
    heading = [*columns, *(target["legendFormat"] for target in panel["targets"])]
    return [
        heading,
        *([*dict(one).values(), *(written(each.get(one, 0.0), unit) for each in answers)] for one in order),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw them all."""
    parser = argparse.ArgumentParser(prog="python -m grafana.src.preview", description=__doc__)
    parser.add_argument("url", help="a Prometheus, as http://127.0.0.1:9090")
    parser.add_argument("--into", type=Path, default=FOLDER, help="the folder of the pictures")
    parser.add_argument("--seconds", type=float, default=3600.0, help="the time that they show")
    parser.add_argument("--window", default="1m", help="the window of rates: four scrapes at least")
    parser.add_argument(
        "--note", default="numbers of a running gateway", help="the source of the numbers, for the pictures"
    )
    given = parser.parse_args(arguments)
    prometheus = Prometheus(url=given.url, end=time.time(), seconds=given.seconds, window=given.window)
    for dashboard in dashboards():
        text = picture(dashboard, prometheus, given.note)
        (given.into / f"{dashboard['uid']}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
