"""Colours by what a series means: the same status has the same colour in every panel and in every preview.

`Meaning` names them. A legend such as `{{status}}, {{reason}}` is coloured by the first of its
labels that `MEANINGS` has; several reasons of one status are shades of its colour.
"""

import colorsys
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class Meaning(StrEnum):
    """A colour. Each has enough contrast to a white and to a dark panel."""

    GOOD = "#37872d"
    BAD = "#e02f44"
    STOPPED = "#85888f"
    WAITS = "#d07c00"
    WORKS = "#3d7fe0"
    SHADOW = "#a352cc"


_STATUS: Final[Mapping[str, Meaning]] = {
    "completed": Meaning.GOOD,
    "failed": Meaning.BAD,
    "cancelled": Meaning.STOPPED,
    "input_required": Meaning.WAITS,
    "working": Meaning.WORKS,
}
MEANINGS: Final[Mapping[str, Mapping[str, Meaning]]] = {
    "to_status": _STATUS,
    "status": _STATUS,
    "phase": {"queued": Meaning.STOPPED, "working": Meaning.WORKS, "input_required": Meaning.WAITS},
    "disposition": {
        "task": Meaning.WORKS,
        "handoff": Meaning.WORKS,
        "inline": Meaning.GOOD,
        "direct": Meaning.STOPPED,
        "rejected": Meaning.BAD,
    },
    "result": {
        "ok": Meaning.GOOD,
        "accepted": Meaning.GOOD,
        "success": Meaning.GOOD,
        "terminal": Meaning.GOOD,
        "hit": Meaning.GOOD,
        "changed": Meaning.WORKS,
        "unchanged": Meaning.STOPPED,
        "miss": Meaning.STOPPED,
        "early": Meaning.WAITS,
        "stale": Meaning.WAITS,
        "needs_restart": Meaning.WAITS,
        "limited": Meaning.SHADOW,
        "error": Meaning.BAD,
        "rejected": Meaning.BAD,
        "failed": Meaning.BAD,
        "invalid": Meaning.BAD,
        "denied": Meaning.BAD,
    },
    "decision": {
        "allowed": Meaning.GOOD,
        "delayed": Meaning.WAITS,
        "rejected": Meaning.BAD,
        "shadow": Meaning.SHADOW,
        "fail_local": Meaning.WAITS,
        "fail_open": Meaning.BAD,
    },
    "outcome": {
        "answered": Meaning.GOOD,
        "success": Meaning.GOOD,
        "retried": Meaning.WORKS,
        "propagated": Meaning.WORKS,
        "already_terminal": Meaning.STOPPED,
        "superseded": Meaning.STOPPED,
        "declined": Meaning.WAITS,
        "expired": Meaning.BAD,
        "failed": Meaning.BAD,
        "failure": Meaning.BAD,
        "denied": Meaning.WAITS,
    },
}
"""What the values of labels mean, the label that counts most first."""

_LABEL: Final = re.compile(r"\{\{(\w+)\}\}")


class Rule(NamedTuple):
    """The series that have a colour: those whose name the pattern finds."""

    pattern: str
    colour: str


def rules(legend: str) -> Iterator[Rule]:
    """The rules for the series that a legend names; none where no label of it has a meaning."""
    labels = _LABEL.findall(legend)
    label = next((label for label in MEANINGS if label in labels), None)
    if label is not None:
        for value, meaning in MEANINGS[label].items():
            yield Rule(f"^{''.join(_pattern(part, label, value) for part in _parts(legend))}$", meaning.value)


def colour_of(name: str, known: Mapping[str, str]) -> str | None:
    """The colour of a series by rules, as patterns and their colours; None where none holds."""
    return next((colour for pattern, colour in known.items() if re.search(pattern, name)), None)


def shade(colour: str, place: int) -> str:
    """One of four shades of a colour, the colour itself first."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    lighter = min(0.9, light + (0.0, 0.16, -0.14, 0.28)[place % 4])
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, lighter, saturation))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21, by WCAG."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _parts(legend: str) -> list[str]:
    return [part for part in re.split(r"(\{\{\w+\}\})", legend) if part]


def _pattern(part: str, label: str, value: str) -> str:
    if part == f"{{{{{label}}}}}":
        return value
    return ".*" if _LABEL.fullmatch(part) else re.sub(r"([^\w\s,:])", r"\\\1", part)
