"""The commands that look at something and end: a configuration, an audit log, the metrics there are.

What must not live here: serving (`cli`), and what is told (`explain`).
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final, NoReturn

import click
import orjson

from taskgate import config as settings
from taskgate.auth.key_file import KeyFileRefused
from taskgate.config import ConfigurationError, GatewayConfig
from taskgate.explain import audit as audit_commands
from taskgate.explain.checks import expect_key_files, missing_programs
from taskgate.explain.evaluate import explanation
from taskgate.explain.inputs import ServerNotAsked, TokenRefused, ask_server, identify, read_hints, read_token
from taskgate.explain.render import render
from taskgate.explain.series import metrics_text, series_warnings
from taskgate.listener.tls import TlsRefused
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingUnavailable
from taskgate.telemetry.opentelemetry.setup import require_exporter
from taskgate.upstream.wire.trust import TlsFileRefused

COULD_NOT_START: Final = 1
WRONG: Final = 2

AnyFile: Final = click.Path(path_type=Path)


def load(file: Path) -> GatewayConfig:
    """The configuration in a file, by the environment of this process. Raises ConfigurationError."""
    return settings.load(file, os.environ)


def give_up(error: Exception, status: int) -> NoReturn:
    """Tell why, and end."""
    click.echo(f"taskgate: {error}" if status == COULD_NOT_START else str(error), err=True)
    sys.exit(status)


@click.command()
@click.option("--config", "file", type=AnyFile, required=True, help="The configuration file.")
def check(file: Path) -> None:
    """Check a configuration and print the effective one: every key, with secrets as ********."""
    try:
        config = load(file)
        expect_key_files(config)
        if config.tracing.enabled:
            require_exporter(Exporter(config.tracing.exporter))
    except (ConfigurationError, KeyFileRefused, TlsRefused, TlsFileRefused, TracingUnavailable) as wrong:
        give_up(wrong, WRONG)
    click.echo(settings.effective(config), nl=False)
    missing = (f"{key}: {what}" for key, what in missing_programs(config, os.environ))
    for warning in (*series_warnings(config), *missing):
        click.echo(f"taskgate: {warning}", err=True)


@click.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file."""
    click.echo(orjson.dumps(settings.json_schema(), option=orjson.OPT_INDENT_2))


@click.command()
@click.option("--config", "file", type=AnyFile, required=True, help="The configuration file.")
@click.option("--upstream", metavar="NAME", required=True, help="Name of an upstream in the file.")
@click.option("--tool", metavar="NAME", required=True, help="Name of the tool.")
@click.option("--token", "token_file", type=AnyFile, help="File that holds the caller's bearer token.")
@click.option(
    "--hint", "hints", metavar="NAME=true|false", multiple=True, help="A tool annotation as the server lists it."
)
@click.option("--online", is_flag=True, help="Ask the server which extensions it declares.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(
    file: Path, upstream: str, tool: str, token_file: Path | None, hints: tuple[str, ...], online: bool, as_json: bool
) -> None:
    """Print the rules and limits that apply to a call of a tool, and which extensions are forwarded.

    The server is contacted only with --online, and only for its declared capabilities.
    """
    try:
        config = load(file)
        if upstream not in config.upstreams:
            raise click.UsageError(f"--upstream must be one of {', '.join(config.upstreams)}")
        try:
            listed, token = read_hints(hints), read_token(token_file)
        except ValueError as wrong:
            raise click.UsageError(str(wrong)) from None
        identity = asyncio.run(identify(config, upstream, token))
        server = asyncio.run(ask_server(config, upstream, identity, token)) if online else None
    except ConfigurationError as wrong:
        give_up(wrong, WRONG)
    except (TokenRefused, ServerNotAsked) as refused:
        give_up(refused, COULD_NOT_START)
    if token is not None and identity is None:
        click.echo("taskgate: --token is ignored: auth.mode is none, so all hosts are one caller", err=True)
    found = explanation(config, upstream, tool, identity=identity, hints=listed, server=server)
    click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2) if as_json else render(found), nl=as_json)


@click.command()
@click.option("--config", "file", type=AnyFile, help="The configuration file.")
def metrics(file: Path | None) -> None:
    """Print all metrics, and the maximum number of series of each under that configuration."""
    try:
        config = None if file is None else load(file)
    except ConfigurationError as wrong:
        give_up(wrong, WRONG)
    click.echo(metrics_text(config), nl=False)


@click.group()
def audit() -> None:
    """Verify an audit log, or look something up in it."""


@audit.command()
@click.argument("files", metavar="FILE...", type=AnyFile, nargs=-1, required=True)
@click.option(
    "--checkpoint", "checkpoints", type=AnyFile, multiple=True, help="Output of another sink that holds checkpoints."
)
@click.option(
    "--key", "keys", type=AnyFile, multiple=True, help="File with the key of the log, or a PEM file of its signer."
)
@click.option(
    "--expect-seq",
    "expected",
    metavar="N",
    type=click.IntRange(min=1),
    help="Fail unless the last line has sequence number N or higher.",
)
def verify(
    files: tuple[Path, ...], checkpoints: tuple[Path, ...], keys: tuple[Path, ...], expected: int | None
) -> None:
    """Verify that the lines of a log are complete, in order and unchanged.

    Give all files of one sink, rotated ones too, in any order. Exit status: 0 if no problem was found, 1 if a problem
    was found, 2 if the log could not be verified.
    """
    _end_with(audit_commands.verify(files, checkpoints=checkpoints, keys=keys, expected=expected))


@audit.command()
@click.argument("task", metavar="TASK_ID")
@click.option("--key", type=AnyFile, required=True, help="File with the key of the log.")
def ref(task: str, key: Path) -> None:
    """Print the reference by which a log names a task id."""
    _end_with(audit_commands.ref(task, key))


@audit.command(name="schema")
def schema_of_lines() -> None:
    """Print the JSON Schema of the lines of a log."""
    _end_with(audit_commands.schema())


def _end_with(report: audit_commands.CommandOutput) -> NoReturn:
    click.echo(report.text, nl=False, err=report.status == audit_commands.UNUSABLE)
    sys.exit(report.status)
