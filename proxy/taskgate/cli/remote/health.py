"""The work of `health`: ask a gateway whether it is ready, and end with 0 or 1."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from taskgate.cli.exits import FAILED, fail
from taskgate.cli.printing import json_text, one_line
from taskgate.cli.remote.client import AdminClient, AdminUrlInvalid, GatewayUnreachable, Reply
from taskgate.cli.remote.tables import duration, state_of


def print_health(admin: str, timeout: float, as_json: bool) -> None:
    """Print whether the gateway is ready, its checks and its upstreams."""
    try:
        reply = ask_readiness(AdminClient(admin, timeout=timeout))
    except AdminUrlInvalid as wrong:
        raise click.UsageError(str(wrong)) from None
    except GatewayUnreachable as error:
        if as_json:
            click.echo(json_text({"status": "unreachable", "error": str(error)}))
            sys.exit(FAILED)
        fail(error, FAILED)
    click.echo(json_text(reply.document) if as_json else "\n".join(_lines(reply.document)))
    if reply.status != 200:
        sys.exit(FAILED)


def ask_readiness(client: AdminClient) -> Reply:
    """The answer of `/readyz?verbose`. Raises GatewayUnreachable, also if it is none of taskgate's."""
    reply = client.get("/readyz?verbose")
    if reply.status == 421:
        raise GatewayUnreachable(
            f"the operators' listener at {client.url} does not accept this host name: give --admin an IP "
            "address or localhost, or add the name to admin.allowed_hosts"
        )
    if reply.status not in (200, 503) or not isinstance(reply.document, dict) or "status" not in reply.document:
        raise GatewayUnreachable(
            f"{client.url} is no operators' listener: /readyz got HTTP status {reply.status}. Name the address of "
            "admin.listen with --admin URL."
        )
    return reply


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield one_line(str(document["status"]))
    for check, passed in _mapping(document, "checks").items():
        yield f"  {one_line(check):<14} {'ok' if passed is True else 'FAILED'}"
    if "replicas" in document:
        yield f"  {'replicas':<14} {one_line(str(document['replicas']))}"
    for name, since in _mapping(document, "vanished").items():
        yield f"  {'vanished':<14} {one_line(name)}, at {one_line(str(since))}"
    for name, sink in _mapping(document, "audit").items():
        if isinstance(sink, dict):
            cause, since = one_line(str(sink.get("cause"))), one_line(str(sink.get("since")))
            yield f"  {'audit log':<14} cannot be written to {one_line(name)}: {cause}, since {since}"
    upstreams = _mapping(document, "upstreams")
    if upstreams:
        yield "upstreams"
    width = max((len(one_line(name)) for name in upstreams), default=0)
    for name, state in upstreams.items():
        yield f"  {one_line(name):<{width}}  {', '.join(upstream_words(state))}"
    for name, state in _mapping(document, "issuers").items():
        if isinstance(state, dict) and state.get("cause") is not None:
            yield f"keys of issuer {one_line(name)}: {one_line(str(state['cause']))}"


def upstream_words(state: Any) -> Iterator[str]:
    """What the document of `/readyz?verbose` says of an upstream, in words."""
    if not isinstance(state, dict):
        return
    yield "not checked yet" if state.get("state") is None else one_line(state_of(state))
    if state.get("cause") is not None:
        yield one_line(str(state["cause"]))
    yield f"circuit {one_line(str(state.get('circuit')))}"
    yield f"{one_line(str(state.get('in_use')))} of {one_line(str(state.get('limit')))} in use"
    yield f"{one_line(str(state.get('queued')))} queued"
    if isinstance(oldest := state.get("oldest_task"), int):
        yield f"oldest task {duration(oldest)}"


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}
