"""The work of the commands that print: `check`, `schema`, `explain` and `metrics`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import click
import orjson

from taskgate import config as settings
from taskgate.cli.exits import FAILED, WRONG_USE, fail
from taskgate.cli.printing import clean, json_text, one_line
from taskgate.cli.remote.tables import print_table, text_of
from taskgate.clock import SystemClock
from taskgate.config import ConfigurationError
from taskgate.explain.checks import metrics_text
from taskgate.explain.evaluate import explanation, tools_under_rules
from taskgate.explain.inputs import (
    ServerNotAsked,
    TokenRefused,
    ask_server,
    identify,
    parse_claims,
    read_hints,
    read_token,
)
from taskgate.explain.online import ask_all
from taskgate.explain.render import render
from taskgate.explain.report import as_json as as_json_report
from taskgate.explain.report import check_configuration, problems_as_json, summary
from taskgate.explain.token_checks import inspect_token

_TOOL_COLUMNS: Final = ("TOOL", "OWN TASKS", "HINTS", "MODE", "ANNOUNCE", "RULE", "ALLOWED")
_TOOL_CUT: Final = frozenset({"TOOL", "HINTS"})
_MAX_ANSWER: Final = 1000
"""Characters of a line about a server, whose text may be in it."""


def print_check(file: Path, prints: bool, online: bool, is_running: bool, as_json: bool) -> None:
    """Print the result of a check, or with `prints` the effective configuration.

    Warnings and errors are printed to standard error, but with `as_json`. With `online` other
    machines are asked, if there is no error.
    """
    try:
        config = settings.load(file, os.environ)
    except ConfigurationError as wrong:
        if as_json:
            _print_json(problems_as_json(wrong.problems))
            sys.exit(WRONG_USE)
        fail(wrong, WRONG_USE)
    found = check_configuration(config, os.environ, is_running=is_running, now=SystemClock().wall())
    answers = asyncio.run(ask_all(config)) if online and not found.errors else []
    if as_json:
        _print_json(as_json_report(config, found, answers))
    elif not found.errors:
        click.echo(settings.effective(config) if prints else summary(config, found, answers), nl=False)
    for warning in () if as_json else found.warnings:
        click.echo(f"taskgate: warning: {warning}", err=True)
    for error in () if as_json else found.errors:
        click.echo(str(error), err=True)
    for answer in () if as_json else answers:
        click.echo(one_line(str(answer), _MAX_ANSWER), err=answer.passed is False)
    if found.errors:
        sys.exit(WRONG_USE)
    if any(answer.passed is False for answer in answers):
        sys.exit(FAILED)


def _print_json(value: object) -> None:
    click.echo(json_text(value))


def print_schema() -> None:
    """Print the JSON Schema of the configuration file."""
    click.echo(orjson.dumps(settings.json_schema(), option=orjson.OPT_INDENT_2))


def print_explanation(
    file: Path,
    upstream: str,
    tool: str,
    token_file: Path | None,
    claims: str | None,
    hints: tuple[str, ...],
    online: bool,
    as_json: bool,
) -> None:
    """Print what applies to a call of a tool."""
    try:
        config = settings.load(file, os.environ)
        if upstream not in config.upstreams:
            raise click.UsageError(f"--upstream must be one of {', '.join(config.upstreams)}")
        try:
            listed, token, given = read_hints(hints), read_token(token_file), parse_claims(claims)
            if given is not None and token is not None:
                raise ValueError("--claims must not be given with --token")
        except ValueError as wrong:
            raise click.UsageError(str(wrong)) from None
        identity = asyncio.run(identify(config, upstream, token, given))
        server = asyncio.run(ask_server(config, upstream, identity, token))[0] if online else None
    except ConfigurationError as wrong:
        fail(wrong, WRONG_USE)
    except (TokenRefused, ServerNotAsked) as refused:
        fail(type(refused)(one_line(str(refused), _MAX_ANSWER)), FAILED)
    if (token or given) and identity is None:
        ignored = "--token" if given is None else "--claims"
        click.echo(f"taskgate: {ignored} is ignored: auth.mode is none, so all hosts are one caller", err=True)
    found = explanation(config, upstream, tool, identity=identity, hints=listed, server=server)
    click.echo(json_text(found) if as_json else clean(render(found)), nl=as_json)


def print_tools(
    file: Path, upstream: str, token_file: Path | None, claims: str | None, timeout: float, as_json: bool
) -> None:
    """Ask a server for its tools, and print what the rules say of each."""
    try:
        config = settings.load(file, os.environ)
        if upstream not in config.upstreams:
            raise click.UsageError(f"UPSTREAM must be one of {', '.join(config.upstreams)}")
        try:
            token, given = read_token(token_file), parse_claims(claims)
        except ValueError as wrong:
            raise click.UsageError(str(wrong)) from None
        identity = asyncio.run(identify(config, upstream, token, given))
        _, listed = asyncio.run(
            asyncio.wait_for(ask_server(config, upstream, identity, token, lists_tools=True), timeout)
        )
    except ConfigurationError as wrong:
        fail(wrong, WRONG_USE)
    except TimeoutError:
        fail(ServerNotAsked(f"upstreams.{upstream} did not list its tools within {timeout:g} s"), FAILED)
    except (TokenRefused, ServerNotAsked) as refused:
        fail(type(refused)(one_line(str(refused), _MAX_ANSWER)), FAILED)
    tools = tools_under_rules(config, upstream, listed, identity)
    if as_json:
        _print_json({"upstream": upstream, "tools": tools})
        return
    rows = (
        (
            each["tool"],
            text_of(each["task_support"]),
            ", ".join(f"{name}={str(value).lower()}" for name, value in each["hints"].items()) or "-",
            each["mode"],
            text_of(each["announce"]),
            text_of(each["rule"]),
            text_of(each["allowed"]),
        )
        for each in tools
    )
    print_table(_TOOL_COLUMNS, rows, styles={}, cut=_TOOL_CUT)


def print_token(file: Path, token_file: Path, upstream: str | None, as_json: bool) -> None:
    """Print what each check says of a token."""
    try:
        config = settings.load(file, os.environ)
    except ConfigurationError as wrong:
        fail(wrong, WRONG_USE)
    names = list(config.upstreams)
    if upstream is None and len(names) > 1 and any(not each.audience for each in config.auth.issuers.values()):
        raise click.UsageError(f"--upstream is needed, because aud depends on it: one of {', '.join(names)}")
    if upstream is not None and upstream not in names:
        raise click.UsageError(f"--upstream must be one of {', '.join(names)}")
    try:
        text = read_token(token_file) or ""
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None
    if config.auth.mode == "none":
        fail(TokenRefused("no token is read: auth.mode is none, so all hosts are one caller"), WRONG_USE)
    found = asyncio.run(inspect_token(config, upstream or names[0], text))
    if as_json:
        _print_json(found.as_json())
    else:
        click.echo(clean(found.render()), nl=False)
    if not found.is_accepted:
        sys.exit(FAILED)


def print_metrics(file: Path | None) -> None:
    """Print the families of metrics and their numbers of series."""
    try:
        config = None if file is None else settings.load(file, os.environ)
    except ConfigurationError as wrong:
        fail(wrong, WRONG_USE)
    click.echo(metrics_text(config), nl=False)
