"""The work of `top`: a screen of upstreams and unfinished tasks, with their rates.

Elsewhere than on a terminal one snapshot is printed, as text or as JSON.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from taskgate.cli.exits import FAILED, fail
from taskgate.cli.printing import json_text, one_line
from taskgate.cli.remote.client import AdminClient, ApiRefused, GatewayUnreachable
from taskgate.cli.remote.event_stream import Notice
from taskgate.cli.remote.health import ask_readiness
from taskgate.cli.remote.screen import show_screen
from taskgate.cli.remote.tables import (
    STATUS_STYLES,
    UPSTREAM_STYLES,
    later,
    seconds_between,
    state_of,
    table_of,
    text_of,
)
from taskgate.cli.remote.tasks import COLUMNS, CUT, row_of

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_TASKS: Final = 100
"""Tasks of a snapshot."""
_UPSTREAM_COLUMNS: Final = ("UPSTREAM", "STATE", "PER MIN", "FAILED", "CIRCUIT", "IN USE", "LIMIT", "QUEUED")
_SHOWN: Final = tuple(at for at, name in enumerate(COLUMNS) if name not in ("TOOK", "REASON"))
"""The columns that an unfinished task has."""
_TASK_COLUMNS: Final = tuple(COLUMNS[at] for at in _SHOWN)
_FRAME: Final = 12
"""Lines of a screen beside the rows of tasks: heads, borders and the state of the gateway."""
_SPAN: Final = 60
"""Seconds in which tasks that began and ended are counted."""
_COUNTED_MINUTES: Final = 5
"""Minutes in which the gateway counts requests."""
_MOST_NOTED: Final = 10_000
_SORTS: Final[Mapping[str, str]] = {
    "created": "oldest first",
    "updated": "silent longest first",
    "-created": "newest first",
    "-updated": "last changed first",
}


class Snapshot(NamedTuple):
    """The state of a gateway: the document of `/readyz?verbose`, and unfinished tasks."""

    health: Mapping[str, Any]
    tasks: Sequence[Mapping[str, Any]]
    now: Any
    has_more: bool


def show_top(client: AdminClient, interval: float, sort: str, once: bool, as_json: bool) -> None:
    """Draw snapshots until `q` or Ctrl-C; without a terminal, or with `once`, print one."""
    try:
        snapshot = take_snapshot(client, sort)
    except (ApiRefused, GatewayUnreachable) as error:
        fail(error, FAILED)
    if as_json:
        click.echo(json_text({**snapshot.health, "tasks": snapshot.tasks, "has_more": snapshot.has_more}))
    elif once or not sys.stdout.isatty():
        click.echo("\n".join(_text(snapshot)))
    else:
        show_screen(client, _TopView(client, snapshot, sort), ("task", "upstream"), interval)


def take_snapshot(client: AdminClient, sort: str) -> Snapshot:
    """Ask for the state. Raises ApiRefused and GatewayUnreachable."""
    health = ask_readiness(client).document
    query = [("status", "working,input_required"), ("sort", sort), ("limit", str(MAX_TASKS))]
    page = client.ask("GET", "/tasks", query)
    items = page.get("items")
    tasks = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return Snapshot(health, tasks, page.get("now"), page.get("next") is not None)


def _upstream_rows(health: Mapping[str, Any]) -> list[tuple[str, ...]]:
    upstreams = health.get("upstreams")
    rows = []
    for name, state in upstreams.items() if isinstance(upstreams, dict) else ():
        values = state if isinstance(state, dict) else {}
        ended, failed = values.get("recent_requests"), values.get("recent_failures")
        rate = f"{ended / _COUNTED_MINUTES:.1f}" if isinstance(ended, int) else "-"
        load = (text_of(values.get(key)) for key in ("circuit", "in_use", "limit", "queued"))
        rows.append((name, state_of(values), rate, f"{text_of(failed)}/{text_of(ended)}", *load))
    return rows


def _task_row(task: Mapping[str, Any], now: Any) -> tuple[str, ...]:
    row = row_of(task, now)
    return tuple(row[at] for at in _SHOWN)


def _head(snapshot: Snapshot) -> str:
    count = f"{len(snapshot.tasks)}{' or more' if snapshot.has_more else ''}"
    return f"{one_line(text_of(snapshot.health.get('status')))}, unfinished tasks: {count}"


def _text(snapshot: Snapshot) -> list[str]:
    lines = [_head(snapshot)]
    rows = [_UPSTREAM_COLUMNS, *_upstream_rows(snapshot.health), _TASK_COLUMNS]
    rows += [_task_row(task, snapshot.now) for task in snapshot.tasks]
    return lines + ["\t".join(one_line(cell, 120) for cell in row) for row in rows]


class _TopView:
    """The screen of `top`: a `View`."""

    def __init__(self, client: AdminClient, snapshot: Snapshot, sort: str) -> None:
        self._client = client
        self._snapshot = snapshot
        self._sort = sort
        self._since = snapshot.now
        # When tasks began and ended, by reference, the one with the last event at the end.
        self._times: dict[str, tuple[Any, Any]] = {}

    def ask(self) -> None:
        self._snapshot = take_snapshot(self._client, self._sort)

    def note(self, notice: Notice) -> None:
        reference = notice.data.get("reference")
        if notice.name == "task" and isinstance(reference, str):
            self._times.pop(reference, None)
            self._times[reference] = (notice.data.get("created_at"), notice.data.get("ended_at"))
            if len(self._times) > _MOST_NOTED:
                del self._times[next(iter(self._times))]

    def press(self, key: str) -> bool:
        if key != "s":
            return False
        order = list(_SORTS)
        self._sort = order[(order.index(self._sort) + 1) % len(order)]
        return True

    def draw(self, height: int, problem: str | None, age: float) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        shown, now = self._snapshot, later(self._snapshot.now, age)
        upstreams = _upstream_rows(shown.health)
        tasks = [_task_row(task, now) for task in shown.tasks[: max(1, height - _FRAME - len(upstreams))]]
        return Group(
            Text(f"{_head(shown)}{self._rates(now)}, {_SORTS[self._sort]}", no_wrap=True, overflow="ellipsis"),
            Text("" if problem is None else one_line(problem), style="red", no_wrap=True, overflow="ellipsis"),
            table_of(_UPSTREAM_COLUMNS, upstreams, styles=UPSTREAM_STYLES, cut={"UPSTREAM"}),
            table_of(_TASK_COLUMNS, tasks, styles=STATUS_STYLES, cut=CUT),
            Text("q ends, s sorts", style="dim"),
        )

    def _rates(self, now: Any) -> str:
        """How many tasks began and ended in the last minute, or since the start of the screen."""
        watched = seconds_between(self._since, now)
        if watched is None or watched < 1:
            return ""
        span = min(_SPAN, int(watched))
        # A copy in one step: the other thread goes on.
        times = list(self._times.values())
        began, ended = (sum(_is_within(each[at], now, span) for each in times) for at in (0, 1))
        return f", in {span} s {began} began and {ended} ended"


def _is_within(moment: Any, now: Any, seconds: float) -> bool:
    age = seconds_between(moment, now)
    return age is not None and age <= seconds
