"""The commands that read a configuration and print: `check`, `schema`, `explain` and `metrics`.

`serve` uses the exit codes, `load` and `fail` too.
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
from taskgate.explain.checks import expect_key_files, metrics_text, missing_programs, series_warnings
from taskgate.explain.evaluate import explanation
from taskgate.explain.inputs import ServerNotAsked, TokenRefused, ask_server, identify, read_hints, read_token
from taskgate.explain.render import render
from taskgate.listener.tls import TlsRefused
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingUnavailable, require_exporter
from taskgate.upstream.wire.trust import TlsFileRefused

FAILED: Final = 1
"""Exit code: the gateway could not start, or a token was refused."""
WRONG_USE: Final = 2
"""Exit code: the command line or the configuration is wrong."""

AnyFile: Final = click.Path(path_type=Path)


def load(file: Path) -> GatewayConfig:
    """Load a configuration file with the environment of this process; raises ConfigurationError."""
    return settings.load(file, os.environ)


def fail(error: Exception, status: int) -> NoReturn:
    """Print an error, and exit."""
    click.echo(f"taskgate: {error}" if status == FAILED else str(error), err=True)
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
        fail(wrong, WRONG_USE)
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
    """Print the rules and limits that apply to a call of a tool, and which extensions are
    forwarded.

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
        fail(wrong, WRONG_USE)
    except (TokenRefused, ServerNotAsked) as refused:
        fail(refused, FAILED)
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
        fail(wrong, WRONG_USE)
    click.echo(metrics_text(config), nl=False)
