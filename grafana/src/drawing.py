"""Draws panels as SVG: lines, stacks, single numbers, tables and heatmaps, plainly.

For previews alone: it shows what a panel asks and about how it looks, and is no Grafana.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import Any, Final, NamedTuple

from grafana.src.numbers import written

PALETTE: Final = ("#3b7dd8", "#e0752d", "#5b9a41", "#a352cc", "#c4162a", "#0f9c9c", "#b8860b", "#7a7a7a")
GOOD, BAD, INK, FAINT = "#3a8a3a", "#c4162a", "#1f2430", "#8a90a0"
_HEAD, _LEGEND, _MARGIN = 24, 34, 46


class Series(NamedTuple):
    """One line: its name, and its value at each moment; None where there is none."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Box:
    """A place on the picture."""

    x: float
    y: float
    width: float
    height: float


def framed(panel: dict[str, Any], box: Box, inside: str) -> str:
    """A panel's frame and title around what is drawn inside."""
    title = text(box.x + 8, box.y + 16, panel["title"], size=12, weight="bold")
    frame = (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="3" '
        'fill="#ffffff" stroke="#d5d8e0"/>'
    )
    return f"{frame}{title}{inside}"


def text(x: float, y: float, words: str, *, size: float = 10, colour: str = INK, weight: str = "normal") -> str:
    """A line of text that begins there."""
    place = f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text {place} font-size="{size}" fill="{colour}" font-weight="{weight}">{escape(words)}</text>'


def empty(box: Box) -> str:
    """What stands in a panel that has nothing to show."""
    return text(box.x + 8, box.y + box.height / 2 + 8, "nothing to show", size=12, colour=FAINT)


def number(panel: dict[str, Any], series: Sequence[Series], box: Box) -> str:
    """The newest value of each series, large, in the colour of its threshold."""
    defaults = panel["fieldConfig"]["defaults"]
    each = (box.height - _HEAD) / len(series)
    drawn = []
    for row, one in enumerate(series):
        value = next((value for value in reversed(one.values) if value is not None), None)
        top = box.y + _HEAD + row * each
        size = min(26.0, each * 0.6)
        shown, colour = "none" if value is None else _word(value, defaults), _colour(value, defaults)
        drawn.append(text(box.x + 8, top + each * 0.7, shown, size=size, colour=colour, weight="bold"))
        if len(series) > 1:
            drawn.append(text(box.x + box.width * 0.5, top + each * 0.7, one.name, size=11))
    return "".join(drawn)


def lines(panel: dict[str, Any], series: Sequence[Series], box: Box) -> str:
    """Lines over time, one upon the other where the panel stacks them, with the threshold where it has one."""
    defaults = panel["fieldConfig"]["defaults"]
    stacks = defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal"
    shown = _stacked(series) if stacks else [list(one.values) for one in series]
    bounds = [step["value"] for step in defaults["thresholds"]["steps"] if step["value"] is not None]
    known = [value for values in shown for value in values if value is not None]
    top = max([*known, *(bound for bound in bounds if bound <= 4 * max(known))]) * 1.08 or 1.0
    plot = Box(box.x + _MARGIN, box.y + _HEAD + 4, box.width - _MARGIN - 10, box.height - _HEAD - _LEGEND - 8)
    drawn = [_grid(plot, top, defaults["unit"])]
    order = list(enumerate(shown))
    for place, values in reversed(order) if stacks else order:
        drawn.append(_line(values, plot, top, PALETTE[place % len(PALETTE)], fills=stacks))
    for bound in bounds:
        if bound <= top:
            y = plot.y + plot.height * (1 - bound / top)
            drawn.append(_rule(plot, y, BAD, dash="5 4"))
    return "".join(drawn) + _legend(series, box)


def heatmap(panel: dict[str, Any], series: Sequence[Series], box: Box) -> str:
    """Cells: a column for each moment, a row for each bucket. The series are cumulative, as Prometheus has them."""
    rows = sorted(series, key=lambda one: float(one.name))
    below: list[float] = [0.0] * len(rows[0].values)
    plot = Box(box.x + _MARGIN, box.y + _HEAD + 4, box.width - _MARGIN - 10, box.height - _HEAD - 16)
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
    return "".join(drawn)


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
        drawn.append(_rule(plot, y, "#e6e8ee"))
        drawn.append(text(plot.x - _MARGIN + 4, y + 3, written(top * part, unit), size=8, colour=FAINT))
    return "".join(drawn)


def _rule(plot: Box, y: float, colour: str, *, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{plot.x:.1f}" x2="{plot.x + plot.width:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"{dashed}/>'
    )


def _line(values: Sequence[float | None], plot: Box, top: float, colour: str, *, fills: bool) -> str:
    step = plot.width / max(1, len(values) - 1)
    points = [
        f"{plot.x + at * step:.1f},{plot.y + plot.height * (1 - max(0.0, value) / top):.1f}"
        for at, value in enumerate(values)
        if value is not None
    ]
    if fills:
        foot = plot.y + plot.height
        points = [f"{plot.x:.1f},{foot:.1f}", *points, f"{plot.x + plot.width:.1f},{foot:.1f}"]
        return f'<polygon points="{" ".join(points)}" fill="{colour}" stroke="{colour}"/>'
    return f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _legend(series: Sequence[Series], box: Box) -> str:
    """As many names as two lines have room for."""
    drawn, x, y = [], box.x + 10.0, box.y + box.height - _LEGEND + 12
    for place, one in enumerate(series):
        wide = 22 + 5.6 * len(one.name)
        if x + wide > box.x + box.width and x > box.x + 10:
            x, y = box.x + 10.0, y + 14
        if y > box.y + box.height:
            break
        drawn.append(f'<rect x="{x:.1f}" y="{y - 7:.1f}" width="8" height="8" fill="{PALETTE[place % len(PALETTE)]}"/>')
        drawn.append(text(x + 11, y, one.name, size=9.5))
        x += wide
    return "".join(drawn)


def _word(value: float, defaults: dict[str, Any]) -> str:
    words = {word: each["text"] for one in defaults.get("mappings", []) for word, each in one["options"].items()}
    return words.get(f"{value:g}") or written(value, defaults["unit"])


def _colour(value: float | None, defaults: dict[str, Any]) -> str:
    steps = defaults["thresholds"]["steps"]
    passed = [step["color"] for step in steps if value is not None and (step["value"] or -math.inf) <= value]
    return {"green": GOOD, "red": BAD}.get(passed[-1] if passed else "", PALETTE[0])


def _bucket(le: str, panel: dict[str, Any]) -> str:
    bound = float(le)
    return "more" if math.isinf(bound) else written(bound, panel["fieldConfig"]["defaults"]["unit"])
