"""The work of `callers`, over the API of operators: what each caller uses of its limits."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from taskgate.cli.printing import json_text
from taskgate.cli.remote.client import AdminClient, ApiRefused, GatewayUnreachable
from taskgate.cli.remote.tables import caller_of, print_table, text_of
from taskgate.cli.remote.tasks import fail_for_filters

_COLUMNS: Final = ("CALLER", "LIMIT", "UPSTREAM", "USED", "MOST", "OF", "REFERENCE")
_CUT: Final = frozenset({"CALLER", "LIMIT", "UPSTREAM"})
_STYLES: Final[Mapping[str, str]] = {}


def list_callers(client: AdminClient, caller: str | None, limit: int, as_json: bool) -> None:
    """Print at most `limit` callers, one line for each limit that a caller uses.

    JSON has all limits.
    """
    try:
        items, _, is_complete, has_more = client.list_items("/callers", {"caller": caller}, limit)
    except (ApiRefused, GatewayUnreachable) as error:
        fail_for_filters(error)
    if as_json:
        click.echo(json_text({"items": items, "is_complete": is_complete, "has_more": has_more}))
        return
    print_table(_COLUMNS, [row for each in items for row in _rows(each)], styles=_STYLES, cut=_CUT)
    if has_more:
        click.echo(f"taskgate: there are more than {limit} callers: name one, or raise --limit", err=True)
    if not is_complete:
        click.echo("taskgate: more tasks are unfinished than the gateway counts", err=True)


def _rows(caller: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    limits = caller.get("limits")
    for each in limits if isinstance(limits, list) else []:
        if isinstance(each, dict) and each.get("used"):
            cells = (text_of(each.get(key)) for key in ("limit", "upstream", "used", "most"))
            counted = "all replicas" if each.get("is_shared") else "this replica"
            yield caller_of(caller), *cells, counted, text_of(caller.get("caller"))
