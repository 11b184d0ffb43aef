"""The work of `top`: a screen of upstreams and unfinished tasks that follows the event stream.

rich draws it on a terminal. Elsewhere one snapshot is printed, as text or as JSON.
"""

import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from taskgate.cli.exits import FAILED, fail
from taskgate.cli.printing import json_text, one_line
from taskgate.cli.remote.client import AdminClient, ApiRefused, GatewayUnreachable
from taskgate.cli.remote.event_stream import ALIVE, EventStream, explain_refusal
from taskgate.cli.remote.health import ask_readiness
from taskgate.cli.remote.tables import STATUS_STYLES, UPSTREAM_STYLES, later, state_of, table_of, text_of
from taskgate.cli.remote.tasks import COLUMNS, CUT, row_of

MAX_TASKS: Final = 100
"""Tasks of a snapshot, the oldest first."""
_UPSTREAM_COLUMNS: Final = ("UPSTREAM", "STATE", "CIRCUIT", "IN USE", "LIMIT", "QUEUED")
_FRAME: Final = 12
"""Lines of a screen beside the rows of tasks: heads, borders and the state of the gateway."""
_TICK: Final = 1.0
"""Seconds after which a screen is drawn anew without a change."""
_ASK_EVERY: Final = 10.0
"""Seconds after which the state is asked for without a change."""


class Snapshot(NamedTuple):
    """The state of a gateway: the document of `/readyz?verbose`, and unfinished tasks."""

    health: Mapping[str, Any]
    tasks: Sequence[Mapping[str, Any]]
    now: Any
    has_more: bool


class ChangeWatcher(threading.Thread):
    """A thread that follows the event stream, and notes that there was a change.

    While the gateway has no room for its stream, or is not reached, it does so each `interval` seconds.
    `refusal` is why there will be no stream.
    """

    def __init__(self, stream: EventStream, interval: float) -> None:
        # A read of the stream has no end, so Ctrl-C does not wait for it.
        super().__init__(daemon=True)
        self._stream = stream
        self._interval = interval
        # Ctrl-C may come at any point of a wait for it; an event of threading then has a lock that no thread holds.
        self._changes = queue.SimpleQueue[None]()
        self.refusal: ApiRefused | None = None

    def run(self) -> None:
        while self.refusal is None:
            try:
                for notice in self._stream.read():
                    if notice.name != ALIVE:
                        self._note_change()
                pause = self._stream.pause
            except (ApiRefused, GatewayUnreachable) as error:
                if isinstance(error, ApiRefused) and error.status < 500:
                    self.refusal = error
                pause = self._interval
                self._note_change()
            time.sleep(pause)

    def has_changed(self, within: float) -> bool:
        """Wait for a change, at most for so many seconds; return whether there was one since the last wait."""
        try:
            self._changes.get(timeout=within)
        except queue.Empty:
            return False
        return True

    def _note_change(self) -> None:
        if self._changes.empty():
            self._changes.put(None)


def show_top(client: AdminClient, interval: float, once: bool, as_json: bool) -> None:
    """Draw snapshots until Ctrl-C; without a terminal, or with `once`, print one.

    There is a new one after changes, but `interval` seconds after the last one at the earliest.
    """
    try:
        snapshot = take_snapshot(client)
    except (ApiRefused, GatewayUnreachable) as error:
        fail(error, FAILED)
    if as_json:
        click.echo(json_text({**snapshot.health, "tasks": snapshot.tasks, "has_more": snapshot.has_more}))
    elif once or not sys.stdout.isatty():
        click.echo("\n".join(_text(snapshot)))
    else:
        _draw(client, snapshot, interval)


def take_snapshot(client: AdminClient) -> Snapshot:
    """Ask for the state. Raises ApiRefused and GatewayUnreachable."""
    health = ask_readiness(client).document
    query = [("status", "working,input_required"), ("sort", "created"), ("limit", str(MAX_TASKS))]
    page = client.ask("GET", "/tasks", query)
    items = page.get("items")
    tasks = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return Snapshot(health, tasks, page.get("now"), page.get("next") is not None)


def _upstream_rows(health: Mapping[str, Any]) -> list[tuple[str, ...]]:
    upstreams = health.get("upstreams")
    rows = []
    for name, state in upstreams.items() if isinstance(upstreams, dict) else ():
        values = state if isinstance(state, dict) else {}
        rows.append(
            (name, state_of(values), *(text_of(values.get(key)) for key in ("circuit", "in_use", "limit", "queued")))
        )
    return rows


def _head(snapshot: Snapshot) -> str:
    count = f"{len(snapshot.tasks)}{' or more' if snapshot.has_more else ''}"
    return f"{one_line(text_of(snapshot.health.get('status')))}, unfinished tasks: {count}"


def _text(snapshot: Snapshot) -> list[str]:
    lines = [_head(snapshot)]
    rows = [_UPSTREAM_COLUMNS, *_upstream_rows(snapshot.health), COLUMNS]
    rows += [row_of(task, snapshot.now) for task in snapshot.tasks]
    return lines + ["\t".join(one_line(cell, 120) for cell in row) for row in rows]


def _draw(client: AdminClient, snapshot: Snapshot, interval: float) -> None:
    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    console = Console()

    def screen(shown: Snapshot, problem: str | None, age: float = 0.0) -> RenderableType:
        upstreams = _upstream_rows(shown.health)
        space = max(1, console.height - _FRAME - len(upstreams))
        now = later(shown.now, age)
        tasks = [row_of(task, now) for task in shown.tasks[:space]]
        return Group(
            Text(_head(shown)),
            Text("" if problem is None else one_line(problem), style="red", no_wrap=True, overflow="ellipsis"),
            table_of(_UPSTREAM_COLUMNS, upstreams, styles=UPSTREAM_STYLES, cut={"UPSTREAM"}),
            table_of(COLUMNS, tasks, styles=STATUS_STYLES, cut=CUT),
            Text("Ctrl-C ends", style="dim"),
        )

    watcher, problem, taken = ChangeWatcher(EventStream(client, "task", "upstream"), interval), None, time.monotonic()
    watcher.start()
    try:
        with Live(screen(snapshot, None), console=console, screen=True, auto_refresh=False) as live:
            while watcher.refusal is None:
                # Ages grow without an event.
                has_changed = watcher.has_changed(_TICK)
                if has_changed or problem is not None or time.monotonic() - taken >= _ASK_EVERY:
                    try:
                        snapshot, problem, taken = take_snapshot(client), None, time.monotonic()
                    except (ApiRefused, GatewayUnreachable) as error:
                        # The last state stays, with what is wrong now.
                        problem = str(error)
                live.update(screen(snapshot, problem, time.monotonic() - taken), refresh=True)
                if has_changed:
                    time.sleep(interval)
    except KeyboardInterrupt:
        return
    fail(explain_refusal(watcher.refusal), FAILED)
