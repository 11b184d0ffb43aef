"""Tables: `print_table`, for a terminal with colours, else as lines with tabs between the cells;
`table_of` for a screen.

rich draws them, and honours NO_COLOR. It is loaded for a terminal alone.
"""

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from taskgate.cli.printing import one_line

if TYPE_CHECKING:
    from rich.table import Table

STATUS_STYLES: Final[Mapping[str, str]] = {
    "working": "blue",
    "input_required": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
}
"""The colour of each status of a task."""
_MAX_CELL: Final = 120
_MAX_RIGID: Final = 26
"""Widest column that is not cut."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, styles: Mapping[str, str], cut: Container[str]
) -> None:
    """Print rows of texts under the names of their columns. `styles` and `cut` are as in `table_of`."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(table_of(columns, rows, styles=styles, cut=cut))
        return
    for row in (columns, *rows):
        click.echo("\t".join(one_line(cell, _MAX_CELL) for cell in row))


def table_of(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, styles: Mapping[str, str], cut: Container[str]
) -> "Table":
    """A table for a terminal.

    `styles` has the colours of cells by their text. `cut` has the columns whose cells may be cut in
    a narrow terminal.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cleaned = [[one_line(cell, _MAX_CELL) for cell in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        width = max(len(row[number]) for row in (columns, *cleaned))
        # rich takes width from columns that may wrap first. Their cells are cut instead.
        is_rigid = column not in cut
        table.add_column(Text(column), no_wrap=is_rigid, min_width=min(width, _MAX_RIGID) if is_rigid else None)
    for row in cleaned:
        table.add_row(*(Text(cell, style=styles.get(cell, ""), no_wrap=True, overflow="ellipsis") for cell in row))
    return table


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names with their texts, one a line."""
    shown = [(name, one_line(text, 400)) for name, text in fields]
    width = max((len(name) for name, _ in shown), default=0)
    for name, text in shown:
        click.echo(f"{name:<{width}}  {text}".rstrip())


def text_of(value: Any) -> str:
    """A value of a document as a cell: `-` for null, `yes` and `no` for booleans."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


UPSTREAM_STYLES: Final[Mapping[str, str]] = {
    "up": "green",
    "DOWN": "red",
    "REFUSING": "red",
    "held": "yellow",
    "open": "red",
    "half_open": "yellow",
}
"""The colours of the states and circuits of upstreams."""


def state_of(upstream: Mapping[str, Any]) -> str:
    """The state of an upstream in a document as a cell; bad ones are in capitals."""
    state = upstream.get("state")
    return "unknown" if state is None else str(state).upper() if state in ("down", "refusing") else str(state)


def caller_of(item: Mapping[str, Any]) -> str:
    """The caller in a document as a cell: its subject, with the tenant in brackets; its reference without names."""
    subject, tenant = item.get("subject"), item.get("tenant")
    if subject is None:
        return text_of(item.get("caller"))
    return text_of(subject) if tenant is None else f"{subject} ({tenant})"


def duration_between(start: Any, end: Any) -> str:
    """The time between two timestamps of a document: `45s`, `12m30s`, `3h5m`, `2d4h`; `-` if unknown."""
    seconds = seconds_between(start, end)
    return "-" if seconds is None else duration(int(seconds))


def seconds_between(start: Any, end: Any) -> float | None:
    """The seconds between two timestamps of a document; None if one is none."""
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (TypeError, ValueError):
        return None


def later(moment: Any, seconds: float) -> Any:
    """A timestamp of a document so many seconds later; what is none stays as it is."""
    try:
        return (datetime.fromisoformat(moment) + timedelta(seconds=seconds)).isoformat()
    except (TypeError, ValueError, OverflowError):
        return moment


def duration(seconds: int) -> str:
    """A time in its two largest units, such as `12m30s`."""
    rest = max(0, seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    parts.append(f"{rest}s")
    return "".join(each for each in parts[:2] if each[0] != "0") or "0s"
