"""The work of `events`: a line for each event of the stream of the API."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click

from taskgate.cli.exits import FAILED, fail
from taskgate.cli.printing import json_line, one_line
from taskgate.cli.remote.client import AdminClient, ApiRefused, GatewayUnreachable
from taskgate.cli.remote.event_stream import ALIVE, OPENED, EventStream, Notice, explain_refusal
from taskgate.cli.remote.tables import caller_of, state_of, text_of
from taskgate.cli.remote.tasks import detail_of, status_of

_MAX_CELL: Final = 120


def print_events(client: AdminClient, kinds: tuple[str, ...], as_json: bool) -> None:
    """Print events of these kinds until Ctrl-C, with `as_json` as documents.

    After the first connection, a gateway that is not reached is asked again and again.
    """
    stream, was_open = EventStream(client, *kinds), False
    try:
        while True:
            try:
                for notice in stream.read():
                    was_open = True
                    if notice.name not in (OPENED, ALIVE):
                        click.echo(json_line(notice._asdict()) if as_json else _line(notice))
            except (ApiRefused, GatewayUnreachable) as error:
                if isinstance(error, ApiRefused) and error.status < 500:
                    fail(explain_refusal(error), FAILED)
                if not was_open:
                    fail(error, FAILED)
                click.echo(f"taskgate: {str(error).rstrip('.')}. It is tried again.", err=True)
            time.sleep(stream.pause)
    except KeyboardInterrupt:
        return


def _line(notice: Notice) -> str:
    cells = _CELLS.get(notice.name, _others)(notice.data)
    texts = (text_of(notice.data.get("at")), notice.name, *cells)
    return "  ".join(one_line(text, _MAX_CELL) for text in texts)


def _task(data: Mapping[str, Any]) -> Iterator[str]:
    yield text_of(data.get("reference"))
    yield status_of(data)
    yield text_of(data.get("upstream"))
    yield text_of(data.get("tool"))
    yield caller_of(data)
    yield detail_of(data)


def _upstream(data: Mapping[str, Any]) -> Iterator[str]:
    yield text_of(data.get("name"))
    yield state_of(data)
    yield f"circuit {text_of(data.get('circuit'))}"
    yield f"{text_of(data.get('calls'))} of {text_of(data.get('limit'))} in use"
    yield f"{text_of(data.get('waiting'))} waiting"
    if data.get("cause") is not None:
        yield text_of(data["cause"])


def _refusal(data: Mapping[str, Any]) -> Iterator[str]:
    yield text_of(data.get("kind"))
    yield text_of(data.get("reason"))
    yield text_of(data.get("upstream"))
    yield text_of(data.get("tool"))
    yield caller_of(data) if data.get("caller") is not None else text_of(data.get("address"))
    yield f"{text_of(data.get('count'))} times"


def _others(data: Mapping[str, Any]) -> Iterator[str]:
    if "reason" in data:
        yield f"events are missing: {text_of(data['reason'])}"


_CELLS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "task": _task,
    "upstream": _upstream,
    "refusal": _refusal,
}
