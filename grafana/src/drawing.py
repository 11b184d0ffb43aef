"""Draws panels as SVG: lines, stacks, numbers, bars, state timelines, tables and heatmaps.

For previews alone: it shows what a panel asks and about how it looks, and is no Grafana. Page, frames
and plain text take their colours from `STYLE`, light or dark as the reader's browser has it.
"""

import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple

from grafana.src.axes import Box, Span, marked, time_axis
from grafana.src.colours import Meaning, colour_of, shade
from grafana.src.numbers import written

PALETTE: Final = ("#3b7dd8", "#e0752d", "#0f9c9c", "#a352cc", "#b8860b", "#5b9a41", "#c2559d", "#7a7a7a")
GOOD, BAD = Meaning.GOOD.value, Meaning.BAD.value
INK, FAINT = "ink", "faint"
STYLE: Final = (
    "<style>.page{fill:#f4f5f8}.panel{fill:#fff;stroke:#d5d8e0}.ink{fill:#1f2430}.faint{fill:#6b7283}"
    ".grid{stroke:#e6e8ee}.axis{stroke:#aab0bd}"
    "@media (prefers-color-scheme:dark){.page{fill:#111217}.panel{fill:#181b1f;stroke:#2c3038}.ink{fill:#dfe2ea}"
    ".faint{fill:#9097a6}.grid{stroke:#2a2e36}.axis{stroke:#5b616e}}</style>"
)
_HEAD, _LEGEND, _MARGIN, _TIMES = 24, 34, 46, 12


class Series(NamedTuple):
    """One line: its name, and its value at each moment; None where there is none."""

    name: str
    values: Sequence[float | None]


def framed(panel: dict[str, Any], box: Box, inside: str) -> str:
    """A panel's frame and title around what is drawn inside."""
    title = text(box.x + 8, box.y + 16, panel["title"], size=12, weight="bold")
    frame = (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="3" '
        'class="panel"/>'
    )
    return f"{frame}{title}{inside}"


def text(x: float, y: float, words: str, *, size: float = 10, colour: str = INK, weight: str = "normal") -> str:
    """A line of text that begins there."""
    place = f'x="{x:.1f}" y="{y:.1f}"'
    look = f'fill="{colour}"' if colour.startswith("#") else f'class="{colour}"'
    return f'<text {place} font-size="{size:g}" {look} font-weight="{weight}">{escape(words)}</text>'


def empty(box: Box) -> str:
    """The text of a panel that has nothing to show."""
    return text(box.x + 8, box.y + box.height / 2 + 8, "nothing to show", size=12, colour=FAINT)


def number(panel: dict[str, Any], series: Sequence[Series], box: Box) -> str:
    """The newest value of each series, large, in the colour of its threshold."""
    defaults = panel["fieldConfig"]["defaults"]
    each = (box.height - _HEAD) / len(series)
    drawn = []
    for row, one in enumerate(series):
        value = next((value for value in reversed(one.values) if value is not None), None)
        top = box.y + _HEAD + row * each
        shown, colour = "none" if value is None else _word(value, defaults), _colour(value, defaults)
        size = min(26.0, each * 0.6, (box.width - 12) / (0.66 * len(shown)))
        drawn.append(text(box.x + 8, top + each * 0.7, shown, size=size, colour=colour, weight="bold"))
        if len(series) > 1:
            drawn.append(text(box.x + box.width * 0.5, top + each * 0.7, one.name, size=11))
    return "".join(drawn)


def lines(panel: dict[str, Any], series: Sequence[Series], box: Box, span: Span) -> str:
    """Lines over time, one upon the other where the panel stacks them, with the threshold where it has one."""
    defaults = panel["fieldConfig"]["defaults"]
    stacks = defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal"
    shown = _stacked(series) if stacks else [list(one.values) for one in series]
    bounds = [step["value"] for step in defaults["thresholds"]["steps"] if step["value"] is not None]
    known = [value for values in shown for value in values if value is not None]
    most = max([*known, *(bound for bound in bounds if bound <= 4 * max(known))])
    top = most * 1.08 or 1.0
    if defaults["unit"] == "percentunit" and most <= 1:
        top = min(top, 1.0)
    plot = Box(box.x + _MARGIN, box.y + _HEAD + 4, box.width - _MARGIN - 10, box.height - _HEAD - _LEGEND - _TIMES - 8)
    drawn = [_grid(plot, top, defaults["unit"]), time_axis(span, plot)]
    order, colours = list(enumerate(shown)), _colours(panel, series)
    for place, values in reversed(order) if stacks else order:
        drawn.append(_line(values, plot, top, colours[place], fills=stacks))
    for bound in bounds:
        if bound <= top:
            y = plot.y + plot.height * (1 - bound / top)
            drawn.append(_rule(plot, y, BAD, dash="5 4"))
    drawn.append(marked(span, plot))
    return "".join(drawn) + _legend([_summary(one, defaults["unit"]) for one in series], colours, box)


def timeline(panel: dict[str, Any], series: Sequence[Series], box: Box, span: Span) -> str:
    """A bar for each series, with the colour and the word of its state at each moment."""
    defaults = panel["fieldConfig"]["defaults"]
    plot = Box(box.x + 72, box.y + _HEAD + 4, box.width - 82, box.height - _HEAD - _TIMES - 12)
    tall = plot.height / len(series)
    drawn = [time_axis(span, plot)]
    for row, one in enumerate(series):
        y, step = plot.y + row * tall + tall * 0.15, plot.width / len(one.values)
        drawn.append(text(box.x + 8, y + tall * 0.4, one.name, size=10))
        at = 0
        for value, run in groupby(one.values):
            number = len(list(run))
            if value is not None:
                x, wide, colour = plot.x + at * step, number * step, _state_colour(value, defaults)
                drawn.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall * 0.7:.1f}" '
                    f'fill="{colour}" fill-opacity="0.85"/>'
                )
                word = _word(value, defaults)
                if wide > 7 * len(word):
                    drawn.append(text(x + 5, y + tall * 0.35 + 3.5, word, size=9.5, colour="#ffffff"))
            at += number
    return "".join((*drawn, marked(span, plot)))


def bars(panel: dict[str, Any], series: Sequence[Series], box: Box) -> str:
    """A bar for the newest value of each series, as long as its part of the largest."""
    defaults, colours = panel["fieldConfig"]["defaults"], _colours(panel, series)
    newest = [next((value for value in reversed(one.values) if value is not None), 0.0) for one in series]
    tall, most = (box.height - _HEAD - 10) / len(series), max(newest) or 1.0
    left, wide = box.x + 120, box.width - 190
    drawn = []
    for row, (one, value) in enumerate(zip(series, newest, strict=True)):
        y = box.y + _HEAD + 4 + row * tall
        drawn.append(text(box.x + 8, y + tall * 0.55, one.name, size=11))
        drawn.append(
            f'<rect x="{left:.1f}" y="{y + tall * 0.15:.1f}" width="{wide * value / most:.1f}" '
            f'height="{tall * 0.6:.1f}" fill="{colours[row]}" fill-opacity="0.85"/>'
        )
        drawn.append(text(left + wide * value / most + 6, y + tall * 0.55, written(value, defaults["unit"]), size=11))
    return "".join(drawn)


def heatmap(panel: dict[str, Any], series: Sequence[Series], box: Box, span: Span) -> str:
    """Cells: a column for each moment, a row for each bucket. The series are cumulative, as Prometheus has them."""
    rows = sorted(series, key=lambda one: float(one.name))
    below: list[float] = [0.0] * len(rows[0].values)
    plot = Box(box.x + _MARGIN, box.y + _HEAD + 4, box.width - _MARGIN - 10, box.height - _HEAD - _TIMES - 12)
    tall, wide = plot.height / len(rows), plot.width / len(below)
    counts = []
    for row in rows:
        counts.append([max(0.0, (value or 0.0) - under) for value, under in zip(row.values, below, strict=True)])
        below = [value or 0.0 for value in row.values]
    most = max(max(cells) for cells in counts) or 1.0
    drawn = []
    for level, cells in enumerate(counts):
        y = plot.y + plot.height - (level + 1) * tall
        drawn.append(
            text(box.x + 6, y + tall * 0.8, _bucket(rows[level].name, panel), size=min(9.0, tall), colour=FAINT)
        )
        drawn += [
            f'<rect x="{plot.x + column * wide:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" '
            f'fill="{PALETTE[0]}" fill-opacity="{count / most:.2f}"/>'
            for column, count in enumerate(cells)
            if count > most / 50
        ]
    return "".join((*drawn, time_axis(span, plot), marked(span, plot)))


def table(rows: Sequence[Sequence[str]], box: Box) -> str:
    """Rows of text; the first is the heading."""
    wide = (box.width - 16) / len(rows[0])
    drawn = []
    for place, row in enumerate(rows[: int((box.height - _HEAD) / 16) - 1]):
        y = box.y + _HEAD + 14 + place * 16
        weight = "bold" if place == 0 else "normal"
        drawn += [text(box.x + 8 + at * wide, y, cell, size=10.5, weight=weight) for at, cell in enumerate(row)]
    return "".join(drawn)


# --- parts ------------------------------------------------------------------------------------------------------------


def _stacked(series: Sequence[Series]) -> list[list[float | None]]:
    columns = [
        list(accumulate(value or 0.0 for value in column)) for column in zip(*(s.values for s in series), strict=True)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _grid(plot: Box, top: float, unit: str) -> str:
    drawn = []
    for part in (0.0, 0.5, 1.0):
        y = plot.y + plot.height * (1 - part)
        drawn.append(_rule(plot, y, "grid"))
        drawn.append(text(plot.x - _MARGIN + 4, y + 3, written(top * part, unit), size=8, colour=FAINT))
    return "".join(drawn)


def _rule(plot: Box, y: float, colour: str, *, dash: str = "") -> str:
    look = f'stroke="{colour}" stroke-dasharray="{dash}"' if dash else f'class="{colour}"'
    return f'<line x1="{plot.x:.1f}" x2="{plot.x + plot.width:.1f}" y1="{y:.1f}" y2="{y:.1f}" {look}/>'


def _line(values: Sequence[float | None], plot: Box, top: float, colour: str, *, fills: bool) -> str:
    """A line with its gaps; a value without neighbours is a dot."""
    step = plot.width / max(1, len(values) - 1)
    points = [
        None
        if value is None
        else f"{plot.x + at * step:.1f},{plot.y + plot.height * (1 - min(1.0, max(0.0, value) / top)):.1f}"
        for at, value in enumerate(values)
    ]
    if fills:
        foot = plot.y + plot.height
        joined = [f"{plot.x:.1f},{foot:.1f}", *filter(None, points), f"{plot.x + plot.width:.1f},{foot:.1f}"]
        return f'<polygon points="{" ".join(joined)}" fill="{colour}" stroke="{colour}" stroke-width="0.5"/>'
    drawn = []
    for known, run in groupby(points, key=lambda point: point is not None):
        joined = [point for point in run if point is not None]
        if known and len(joined) == 1:
            x, y = joined[0].split(",")
            drawn.append(f'<circle cx="{x}" cy="{y}" r="1.2" fill="{colour}"/>')
        elif known:
            drawn.append(f'<polyline points="{" ".join(joined)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return "".join(drawn)


def _colours(panel: dict[str, Any], series: Sequence[Series]) -> list[str]:
    """The colour of each series: by what its name means, shades of it where several mean the same, else in turn."""
    known = {
        each["matcher"]["options"].strip("/"): each["properties"][0]["value"]["fixedColor"]
        for each in panel["fieldConfig"].get("overrides", [])
    }
    colours, used = [], Counter[str]()
    for one in series:
        meant = colour_of(one.name, known)
        place = used[meant or ""]
        used[meant or ""] += 1
        colours.append(PALETTE[place % len(PALETTE)] if meant is None else shade(meant, place))
    return colours


def _summary(one: Series, unit: str) -> str:
    """The name of a series with its last and its largest value."""
    known = [value for value in one.values if value is not None]
    return f"{one.name}: {written(known[-1], unit)}, max {written(max(known), unit)}"


def _legend(names: Sequence[str], colours: Sequence[str], box: Box) -> str:
    """As many names as two lines have room for."""
    drawn, x, y = [], box.x + 10.0, box.y + box.height - _LEGEND + 12
    for place, name in enumerate(names):
        wide = 20 + 5.0 * len(name)
        if x + wide > box.x + box.width and x > box.x + 10:
            x, y = box.x + 10.0, y + 14
        if y > box.y + box.height:
            break
        drawn.append(f'<rect x="{x:.1f}" y="{y - 7:.1f}" width="8" height="8" fill="{colours[place]}"/>')
        drawn.append(text(x + 11, y, name, size=9.5))
        x += wide
    return "".join(drawn)


def _word(value: float, defaults: dict[str, Any]) -> str:
    words = {word: each["text"] for one in defaults.get("mappings", []) for word, each in one["options"].items()}
    return words.get(f"{value:g}") or written(value, defaults["unit"])


def _colour(value: float | None, defaults: dict[str, Any]) -> str:
    steps = defaults["thresholds"]["steps"]
    passed = [step["color"] for step in steps if value is not None and (step["value"] or -math.inf) <= value]
    return {"green": GOOD, "red": BAD}.get(passed[-1] if passed else "", INK)


def _state_colour(value: float, defaults: dict[str, Any]) -> str:
    known = {word: each["color"] for one in defaults.get("mappings", []) for word, each in one["options"].items()}
    named = {"green": GOOD, "red": BAD, "blue": Meaning.WORKS.value}
    return named.get(known.get(f"{value:g}", ""), Meaning.STOPPED.value)


def _bucket(le: str, panel: dict[str, Any]) -> str:
    bound = float(le)
    return "more" if math.isinf(bound) else written(bound, panel["fieldConfig"]["defaults"]["unit"])
