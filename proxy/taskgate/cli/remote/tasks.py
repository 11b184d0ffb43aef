"""The work of `tasks ls`, `show`, `cancel`, `cancel-many` and `watch`, over the API of operators.

Tasks are named by their public reference, which is the one in the audit log. The API returns
arguments and results only to `show_payload`.
"""

import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from taskgate.cli.exits import FAILED, INTERRUPTED, TOOL_FAILED, WRONG_USE, fail
from taskgate.cli.printing import json_as_it_is, json_line, json_text, one_line
from taskgate.cli.remote.client import AdminClient, ApiRefused, GatewayUnreachable, Listed
from taskgate.cli.remote.event_stream import OPENED, RESET, EventStream, Notice, explain_refusal
from taskgate.cli.remote.tables import (
    STATUS_STYLES,
    caller_of,
    duration_between,
    later,
    print_fields,
    print_table,
    table_of,
    text_of,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
COLUMNS: Final = (
    "REFERENCE", "STATUS", "UPSTREAM", "TOOL", "AGE", "TOOK", "SILENT", "CALLER", "REASON", "PROGRESS",
)  # fmt: skip
"""The columns of a table of tasks; `CUT` has those that a narrow terminal cuts.

TOOK is the time until the end, SILENT that since the last change of a task that has not ended.
"""
CUT: Final = frozenset({"UPSTREAM", "TOOL", "CALLER", "REASON", "PROGRESS"})
NOT_ASKED: Final = "not asked, because the gateway was not reached before"
"""The error of the rest, after the gateway was lost."""
_MAX_FAILURES: Final = 5
_ASK_EVERY: Final = 30.0
"""Seconds after which a watched task is asked for without an event."""
_STATES: Final = {"none": "none", "pending": "the task has not ended", "not_stored": "the store has lost it"}
"""Why a part of a payload is not shown."""


_MORE: Final = "there are more than {} tasks: narrow the filters, or raise --limit"
_INCOMPLETE: Final = "the gateway has more tasks than it sorts together: the order is that of each part"


def list_tasks(client: AdminClient, filters: Mapping[str, str | None], limit: int, form: str) -> None:
    """Print tasks that match all filters, at most `limit`. `form` is `table`, `json`, or `references` alone."""
    try:
        items, now, is_complete, has_more = client.list_items("/tasks", filters, limit)
    except (ApiRefused, GatewayUnreachable) as error:
        fail_for_filters(error)
    if form == "json":
        click.echo(json_text({"items": items, "is_complete": is_complete, "has_more": has_more}))
        return
    if form == "references":
        for item in items:
            click.echo(one_line(text_of(item.get("reference"))))
    else:
        print_table(COLUMNS, (row_of(item, now) for item in items), styles=STATUS_STYLES, cut=CUT)
    if has_more:
        click.echo(f"taskgate: {_MORE.format(limit)}", err=True)
    if not is_complete:
        click.echo(f"taskgate: {_INCOMPLETE}", err=True)


def watch_tasks(client: AdminClient, filters: Mapping[str, str | None], limit: int) -> None:
    """Show tasks that match all filters on a screen, at most `limit`, until `q` or Ctrl-C."""
    from taskgate.cli.remote.screen import INTERVAL, show_screen

    view = _ListView(client, filters, limit)
    try:
        view.ask()
    except (ApiRefused, GatewayUnreachable) as error:
        fail_for_filters(error)
    show_screen(client, view, ("task",), INTERVAL)


class _ListView:
    """A list of tasks on a screen: a `View`."""

    def __init__(self, client: AdminClient, filters: Mapping[str, str | None], limit: int) -> None:
        self._client = client
        self._filters = filters
        self._limit = limit
        self._found = Listed([], None, is_complete=True, has_more=False)

    def ask(self) -> None:
        self._found = self._client.list_items("/tasks", self._filters, self._limit)

    def note(self, notice: Notice) -> None:
        pass

    def press(self, key: str) -> bool:
        return False

    def draw(self, height: int, problem: str | None, age: float) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        found, now = self._found, later(self._found.now, age)
        # Two borders, the head, and the three lines of text.
        shown = [row_of(item, now) for item in found.items[: max(1, height - 7)]]
        count = f"{len(found.items)}{' or more' if found.has_more else ''} tasks, {len(shown)} shown"
        said = "" if problem is None else one_line(problem)
        return Group(
            Text(count if found.is_complete else f"{count}; {_INCOMPLETE}", no_wrap=True, overflow="ellipsis"),
            Text(said, style="red", no_wrap=True, overflow="ellipsis"),
            table_of(COLUMNS, shown, styles=STATUS_STYLES, cut=CUT),
            Text("q ends", style="dim"),
        )


def fail_for_filters(error: ApiRefused | GatewayUnreachable) -> NoReturn:
    """Fail after a request with filters, which the API refuses with 400 if one of them is invalid."""
    fail(error, WRONG_USE if isinstance(error, ApiRefused) and error.status == 400 else FAILED)


def show_task(client: AdminClient, reference: str, as_json: bool) -> None:
    """Print one task and the times of its statuses."""
    try:
        task = client.ask("GET", f"/tasks/{reference}")
    except (ApiRefused, GatewayUnreachable) as error:
        fail(error, FAILED)
    if as_json:
        click.echo(json_text(task))
        return
    print_fields(_fields(task))


def show_payload(client: AdminClient, reference: str, as_json: bool) -> None:
    """Print arguments, result or error, questions and answers of one task.

    With `as_json` it is the answer of the API, whose values have the bytes that the gateway stores.
    """
    try:
        payload, text = client.ask_whole(f"/tasks/{reference}/payload")
    except (ApiRefused, GatewayUnreachable) as error:
        fail(error, FAILED)
    if as_json:
        click.echo(json_as_it_is(text))
        return
    print_fields((key, text_of(payload.get(key))) for key in ("reference", "status", "upstream", "tool"))
    for name in ("arguments", "result", "error"):
        _print_part(name, _mapping(payload, name))
    for name in ("questions", "answers"):
        parts = payload.get(name)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                label = " ".join(text_of(part[key]) for key in ("key", "method") if key in part)
                _print_part(f"{name.removesuffix('s')} {label}", part | {"state": "shown"})


def _print_part(name: str, part: Mapping[str, Any]) -> None:
    """Print a heading, and the value if there is one."""
    if part.get("state") != "shown":
        click.echo(one_line(f"{name}: {_STATES.get(text_of(part.get('state')), 'unknown')}"))
        return
    click.echo(one_line(f"{name}: {text_of(part.get('bytes'))} bytes"))
    click.echo(json_text(part.get("value")))


def cancel_tasks(client: AdminClient, references: tuple[str, ...], reason: str | None, as_json: bool) -> None:
    """Cancel tasks, one after another. Ends with 1 if one of them was not cancelled.

    If the gateway is lost, the rest is not asked, and the outcomes so far are printed.
    """
    outcomes: list[dict[str, Any]] = []
    lost: GatewayUnreachable | None = None
    body = None if reason is None else {"reason": reason}
    for reference in references:
        if lost is not None:
            outcomes.append({"reference": reference, "status": None, "error": NOT_ASKED})
            continue
        try:
            task = client.ask("POST", f"/tasks/{reference}/cancel", body=body)
            outcomes.append({"reference": reference, "status": task.get("status"), "error": None})
        except ApiRefused as refused:
            outcomes.append({"reference": reference, "status": None, "error": str(refused)})
        except GatewayUnreachable as error:
            # The request may have reached the gateway.
            lost = error
            outcomes.append({"reference": reference, "status": None, "error": f"its outcome is unknown: {error}"})
    if as_json:
        click.echo(json_text(outcomes))
    else:
        for outcome in outcomes:
            if outcome["error"] is None:
                click.echo(f"{outcome['reference']}  {one_line(text_of(outcome['status']))}")
            else:
                click.echo(f"taskgate: {outcome['reference']}: {outcome['error']}", err=True)
    if any(outcome["error"] is not None for outcome in outcomes):
        sys.exit(FAILED)


def count_many(client: AdminClient, filters: Mapping[str, Any], as_json: bool) -> None:
    """Print the references of all unfinished tasks that match all filters, which `cancel_many` would cancel."""
    given = {name: value for name, value in filters.items() if value is not None}
    try:
        counted = client.ask("POST", "/tasks/cancel", body={**given, "dry_run": True})
    except (ApiRefused, GatewayUnreachable) as error:
        fail_for_filters(error)
    if as_json:
        click.echo(json_text(counted))
        return
    references = counted.get("references")
    for reference in references if isinstance(references, list) else ():
        click.echo(one_line(text_of(reference)))
    click.echo(f"taskgate: {one_line(text_of(counted.get('matched')))} match, none was cancelled", err=True)


def cancel_many(client: AdminClient, filters: Mapping[str, Any], reason: str | None, yes: bool, as_json: bool) -> None:
    """Cancel all unfinished tasks that match all filters, after a confirmation of their number.

    `yes` stands for the confirmation. Ends with 1 if other tasks match by then.
    """
    given = {name: value for name, value in filters.items() if value is not None}
    try:
        counted = client.ask("POST", "/tasks/cancel", body={**given, "dry_run": True})
        matched, selection = counted.get("matched"), counted.get("selection")
        if not isinstance(matched, int) or not isinstance(selection, str):
            raise GatewayUnreachable("the answer of the API has no number or no selection of tasks")
        if matched and not yes:
            _confirm(matched)
    except (ApiRefused, GatewayUnreachable) as error:
        fail_for_filters(error)
    try:
        body = {**given, "confirm": matched, "selection": selection, **({} if reason is None else {"reason": reason})}
        outcome = client.ask("POST", "/tasks/cancel", body=body)
    except ApiRefused as error:
        fail_for_filters(error)
    except GatewayUnreachable as error:
        unknown = "The outcome is unknown: taskgate tasks ls shows the tasks that still run."
        fail(GatewayUnreachable(f"{error} {unknown}"), FAILED)
    if as_json:
        click.echo(json_text(outcome))
    else:
        counts = (f"{text_of(outcome.get(key))} {key}" for key in ("matched", "cancelled", "ended", "failed"))
        click.echo(one_line(", ".join(counts)))
    if outcome.get("failed"):
        sys.exit(FAILED)


def _confirm(matched: int) -> None:
    """Ask on a terminal; elsewhere raise click.UsageError."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"{matched} tasks match. Standard input is no terminal: give --yes to cancel them.")
    click.confirm(f"Cancel {matched} tasks?", abort=True, err=True)


def watch_task(client: AdminClient, reference: str, interval: float, as_json: bool) -> NoReturn:
    """Print a line for each change of a task until it ends, with `as_json` its document in a line.

    It asks at each event of the task. While the gateway has no room for its event stream, it asks each
    `interval` seconds.

    Ends with 0 if the task completed, 3 if its tool returned an error, 130 after Ctrl-C, else 1.
    """
    try:
        _watch(client, reference, interval, as_json)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _watch(client: AdminClient, reference: str, interval: float, as_json: bool) -> NoReturn:
    watched = _WatchedTask(client, reference, interval, as_json)
    stream = EventStream(client, "task")
    while True:
        try:
            with closing(stream.read()) as notices:
                for notice in notices:
                    is_change = notice.name in (OPENED, RESET) or notice.data.get("reference") == reference
                    # The expiry of a task has no event.
                    if is_change or time.monotonic() - watched.asked_at >= _ASK_EVERY:
                        watched.show()
            pause = stream.pause
        except (ApiRefused, GatewayUnreachable) as error:
            if isinstance(error, ApiRefused) and error.status < 500:
                fail(explain_refusal(error), FAILED)
            watched.show()
            pause = interval
        time.sleep(pause)


class _WatchedTask:
    """A task that is asked for again and again; each change is printed once.

    `asked_at` is the monotonic time of the last answer.
    """

    def __init__(self, client: AdminClient, reference: str, interval: float, as_json: bool) -> None:
        self._client = client
        self._path = f"/tasks/{reference}"
        self._interval = interval
        self._as_json = as_json
        self._shown: tuple[Any, ...] | None = None
        self.asked_at = -math.inf

    def show(self) -> None:
        """Print what is new. Ends the program if the task has ended, or cannot be asked for."""
        task = self._ask()
        self.asked_at = time.monotonic()
        change = tuple(task.get(key) for key in ("status", "progress", "queue_position", "replica"))
        if change != self._shown:
            self._shown = change
            click.echo(json_line(task) if self._as_json else _change(task))
        if task.get("status") in ENDED:
            done = TOOL_FAILED if task.get("tool_error") is True else 0
            sys.exit(done if task["status"] == "completed" else FAILED)

    def _ask(self) -> dict[str, Any]:
        """The document of the task; a failure of the gateway is tried again after a while."""
        for attempt in range(1, _MAX_FAILURES + 1):
            try:
                return self._client.ask("GET", self._path)
            except (ApiRefused, GatewayUnreachable) as error:
                if attempt == _MAX_FAILURES or (isinstance(error, ApiRefused) and error.status < 500):
                    fail(error, FAILED)
                time.sleep(self._interval)
        raise AssertionError("the last attempt returns or fails")


def row_of(item: Mapping[str, Any], now: Any) -> tuple[str, ...]:
    """The cells of a task; `now` is the time of the answer, by which its age counts."""
    created, ended = item.get("created_at"), item.get("ended_at")
    is_running = ended is None and item.get("status") not in ENDED
    return (
        text_of(item.get("reference")),
        status_of(item),
        text_of(item.get("upstream")),
        text_of(item.get("tool")),
        duration_between(created, now),
        duration_between(created, ended),
        duration_between(item.get("updated_at"), now) if is_running else "-",
        caller_of(item),
        text_of(item.get("reason")),
        _progress(item),
    )


def status_of(item: Mapping[str, Any]) -> str:
    """The status as hosts see it: an error of the tool is a failure."""
    return "failed" if item.get("tool_error") is True else text_of(item.get("status"))


def _progress(item: Mapping[str, Any]) -> str:
    if item.get("is_queued"):
        position = item.get("queue_position")
        return "queued" if position is None else f"queued, {position} before it"
    return text_of(item.get("progress"))


def _fields(task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "reference", text_of(task.get("reference"))
    yield "status", status_of(task)
    for key in ("upstream", "tool", "caller"):
        yield key, text_of(task.get(key))
    for key in ("subject", "client", "issuer", "tenant"):
        if task.get(key) is not None:
            yield key, text_of(task[key])
    yield "progress", _progress(task)
    yield "created", text_of(task.get("created_at"))
    yield "updated", text_of(task.get("updated_at"))
    if task.get("ended_at") is not None:
        yield "took", duration_between(task.get("created_at"), task["ended_at"])
    if task.get("reason") is not None:
        yield "reason", text_of(task["reason"])
    yield "expires", text_of(task.get("expires_at"))
    lease, failure, host = (_mapping(task, key) for key in ("lease", "failure", "host"))
    if lease:
        yield "lease", f"{text_of(lease.get('replica'))} until {text_of(lease.get('until'))}"
    if failure:
        message = failure.get("message")
        yield "failure", f"{text_of(failure.get('reason'))}{'' if message is None else f': {message}'}"
    if host:
        yield "host", f"{text_of(host.get('name'))} {text_of(host.get('version'))}, {text_of(host.get('revision'))}"
    questions = task.get("questions")
    if isinstance(questions, list) and questions:
        yield "questions", ", ".join(map(text_of, questions))
    yield "fetched", text_of(task.get("is_retrieved"))
    yield "trace", text_of(task.get("trace_id"))
    timeline = task.get("timeline")
    for change in timeline if isinstance(timeline, list) else ():
        if isinstance(change, dict):
            yield "", f"{text_of(change.get('time'))}  {text_of(change.get('status'))}"


def _change(task: Mapping[str, Any]) -> str:
    return "  ".join(one_line(text) for text in (text_of(task.get("updated_at")), status_of(task), detail_of(task)))


def detail_of(task: Mapping[str, Any]) -> str:
    """Why a task failed, or else its progress."""
    return _progress(task) if task.get("reason") is None else text_of(task["reason"])


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}
