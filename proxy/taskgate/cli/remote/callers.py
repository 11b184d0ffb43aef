"""The work of `callers`, over the API of operators: what each caller uses of its limits."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from taskgate.cli.exits import FAILED, fail
from taskgate.cli.printing import json_text
from taskgate.cli.remote.client import AdminClient, ApiRefused, GatewayUnreachable
from taskgate.cli.remote.tables import print_table, text_of

_PAGE: Final = 100
_COLUMNS: Final = ("CALLER", "LIMIT", "UPSTREAM", "USED", "MOST", "OF")
_CUT: Final = frozenset({"LIMIT", "UPSTREAM"})
_STYLES: Final[Mapping[str, str]] = {}


def list_callers(client: AdminClient, caller: str | None, most: int, as_json: bool) -> None:
    """Print at most `most` callers, one line for each limit that a caller uses.

    JSON has all limits.
    """
    found: list[dict[str, Any]] = []
    query = {} if caller is None else {"caller": caller}
    try:
        while len(found) < most:
            query["limit"] = str(min(_PAGE, most - len(found)))
            page = client.ask("GET", "/callers", query.items())
            callers, following = page.get("items"), page.get("next")
            found += [each for each in callers if isinstance(each, dict)] if isinstance(callers, list) else []
            if not isinstance(following, str):
                break
            query["cursor"] = following
    except (ApiRefused, GatewayUnreachable) as error:
        fail(error, FAILED)
    if as_json:
        click.echo(json_text(found))
        return
    print_table(_COLUMNS, [row for each in found for row in _rows(each)], styles=_STYLES, cut=_CUT)


def _rows(caller: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    limits = caller.get("limits")
    for each in limits if isinstance(limits, list) else []:
        if isinstance(each, dict) and each.get("used"):
            cells = (text_of(each.get(key)) for key in ("limit", "upstream", "used", "most"))
            yield text_of(caller.get("caller")), *cells, "all replicas" if each.get("is_shared") else "this replica"
