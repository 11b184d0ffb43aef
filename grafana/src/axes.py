"""The time of a picture: `Span`, its `Mark`s, and how a plot shows both.

A mark is a moment, or a stretch of time, that the picture annotates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MOST_LABELS: Final = 5


class Mark(NamedTuple):
    """What a picture annotates, from `begin` to `end` in seconds since 1970; both are the same for a moment."""

    begin: float
    end: float
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Box:
    """A place on the picture."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time that a picture shows, in seconds since 1970."""

    begin: float
    end: float
    marks: Sequence[Mark] = ()

    def place(self, moment: float, plot: Box) -> float:
        """Where a moment is in a plot, no farther than its edges."""
        part = (moment - self.begin) / ((self.end - self.begin) or 1.0)
        return plot.x + plot.width * min(1.0, max(0.0, part))


def ticks(span: Span) -> Iterator[tuple[float, str]]:
    """Round moments, five at most, with the time of day in UTC."""
    seconds = span.end - span.begin
    step = next((step for step in _STEPS if seconds / step <= _MOST_LABELS), _STEPS[-1])
    shape = "%H:%M" if step >= 60 else "%H:%M:%S"
    moment = span.begin - span.begin % -step
    while moment <= span.end:
        yield moment, datetime.fromtimestamp(moment, UTC).strftime(shape)
        moment += step


def time_axis(span: Span, plot: Box) -> str:
    """Times of day below a plot, each with a short line."""
    foot = plot.y + plot.height
    drawn = []
    for moment, words in ticks(span):
        x = span.place(moment, plot)
        drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{foot:.1f}" y2="{foot + 3:.1f}" class="axis"/>')
        half = 2.4 * len(words)
        at = min(max(x, plot.x + half - 6), plot.x + plot.width - half + 6)
        drawn.append(
            f'<text x="{at:.1f}" y="{foot + 11:.1f}" font-size="8" class="faint" text-anchor="middle">{words}</text>'
        )
    return "".join(drawn)


def marked(span: Span, plot: Box, *, names: bool = False) -> str:
    """The marks of a span over a plot: a stretch is shaded, a moment is a dashed line."""
    drawn = []
    for mark in span.marks:
        begin, end = span.place(mark.begin, plot), span.place(mark.end, plot)
        if mark.end > mark.begin:
            drawn.append(
                f'<rect x="{begin:.1f}" y="{plot.y:.1f}" width="{end - begin:.1f}" height="{plot.height:.1f}" '
                f'fill="{mark.colour}" fill-opacity="0.13"><title>{escape(mark.text)}</title></rect>'
            )
            if names:
                middle = (begin + end) / 2
                drawn.append(
                    f'<text x="{middle:.1f}" y="{plot.y + 8:.1f}" font-size="8" fill="{mark.colour}" '
                    f'text-anchor="middle">{escape(mark.text)}</text>'
                )
        else:
            drawn.append(
                f'<line x1="{begin:.1f}" x2="{begin:.1f}" y1="{plot.y:.1f}" y2="{plot.y + plot.height:.1f}" '
                f'stroke="{mark.colour}" stroke-dasharray="2 2"><title>{escape(mark.text)}</title></line>'
            )
    return "".join(drawn)
