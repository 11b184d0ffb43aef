"""The work of `upstreams ls`, `show`, `hold` and `release`, over the API of operators.

All of it is about the replica that answers, which the output names.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from taskgate.cli.exits import FAILED, fail
from taskgate.cli.printing import json_text, one_line
from taskgate.cli.remote.client import AdminClient, ApiRefused, GatewayUnreachable
from taskgate.cli.remote.tables import UPSTREAM_STYLES, print_fields, print_table, state_of, text_of
from taskgate.cli.remote.tasks import NOT_ASKED

_COLUMNS: Final = ("NAME", "STATE", "SINCE", "FAILED", "CIRCUIT", "CALLS", "LIMIT", "WAITING", "TASKS", "PATH", "CAUSE")
_CUT: Final = frozenset({"NAME", "PATH", "CAUSE"})


def list_upstreams(client: AdminClient, as_json: bool) -> None:
    """Print the upstreams of the replica that answers."""
    try:
        document = client.ask("GET", "/upstreams")
    except (ApiRefused, GatewayUnreachable) as error:
        fail(error, FAILED)
    if as_json:
        click.echo(json_text(document))
        return
    items = document.get("items")
    rows = [_row(item) for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    print_table(_COLUMNS, rows, styles=UPSTREAM_STYLES, cut=_CUT)


def show_upstream(client: AdminClient, name: str, as_json: bool) -> None:
    """Print one upstream."""
    try:
        document = client.ask("GET", f"/upstreams/{name}")
    except (ApiRefused, GatewayUnreachable) as error:
        fail(error, FAILED)
    if as_json:
        click.echo(json_text(document))
        return
    print_fields(_fields(document))


def change_upstreams(client: AdminClient, names: tuple[str, ...], action: str, as_json: bool) -> None:
    """Hold or release upstreams; `action` is `hold` or `release`. Ends with 1 if one was refused.

    If the gateway is lost, the rest is not asked, and the outcomes so far are printed.
    """
    outcomes: list[dict[str, Any]] = []
    lost: GatewayUnreachable | None = None
    for name in names:
        if lost is not None:
            outcomes.append({"name": name, "error": NOT_ASKED})
            continue
        try:
            found = client.ask("POST", f"/upstreams/{name}/{action}")
            outcomes.append({"name": name, "is_held": found.get("is_held"), "replica": found.get("replica")})
        except ApiRefused as refused:
            outcomes.append({"name": name, "error": str(refused)})
        except GatewayUnreachable as error:
            # The request may have reached the gateway.
            lost = error
            outcomes.append({"name": name, "error": f"its outcome is unknown: {error}"})
    if as_json:
        click.echo(json_text(outcomes))
    else:
        for outcome in outcomes:
            _print_outcome(outcome)
    if any("error" in outcome for outcome in outcomes):
        sys.exit(FAILED)


def _print_outcome(outcome: Mapping[str, Any]) -> None:
    if "error" in outcome:
        click.echo(f"taskgate: {outcome['name']}: {outcome['error']}", err=True)
        return
    state = "held" if outcome["is_held"] is True else "released"
    click.echo(f"{outcome['name']}  {state} at replica {one_line(text_of(outcome['replica']))}")


def _row(item: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (text_of(item.get(key)) for key in ("circuit", "calls", "limit", "waiting", "tasks", "path"))
    failed = f"{text_of(item.get('recent_failures'))}/{text_of(item.get('recent_requests'))}"
    since, cause = text_of(item.get("since")), text_of(item.get("cause"))
    return text_of(item.get("name")), state_of(item), since, failed, *counts, cause


def _fields(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in item.items():
        yield one_line(key), text_of(value)
