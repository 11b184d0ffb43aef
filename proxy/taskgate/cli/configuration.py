"""The work of the commands that print: `check`, `schema`, `explain` and `metrics`."""

import asyncio
import os
from pathlib import Path

import click
import orjson

from taskgate import config as settings
from taskgate.auth.key_file import KeyFileRefused
from taskgate.cli.exits import FAILED, WRONG_USE, fail
from taskgate.config import ConfigurationError
from taskgate.explain.checks import expect_key_files, metrics_text, missing_programs, series_warnings
from taskgate.explain.evaluate import explanation
from taskgate.explain.inputs import ServerNotAsked, TokenRefused, ask_server, identify, read_hints, read_token
from taskgate.explain.render import render
from taskgate.listener.tls import TlsRefused
from taskgate.telemetry.opentelemetry.settings import Exporter, TracingUnavailable, require_exporter
from taskgate.upstream.wire.trust import TlsFileRefused


def print_effective(file: Path) -> None:
    """Print the effective configuration, and warnings about what it names."""
    try:
        config = settings.load(file, os.environ)
        expect_key_files(config)
        if config.tracing.enabled:
            require_exporter(Exporter(config.tracing.exporter))
    except (ConfigurationError, KeyFileRefused, TlsRefused, TlsFileRefused, TracingUnavailable) as wrong:
        fail(wrong, WRONG_USE)
    click.echo(settings.effective(config), nl=False)
    missing = (f"{key}: {what}" for key, what in missing_programs(config, os.environ))
    for warning in (*series_warnings(config), *missing):
        click.echo(f"taskgate: {warning}", err=True)


def print_schema() -> None:
    """Print the JSON Schema of the configuration file."""
    click.echo(orjson.dumps(settings.json_schema(), option=orjson.OPT_INDENT_2))


def print_explanation(
    file: Path, upstream: str, tool: str, token_file: Path | None, hints: tuple[str, ...], online: bool, as_json: bool
) -> None:
    """Print what applies to a call of a tool."""
    try:
        config = settings.load(file, os.environ)
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


def print_metrics(file: Path | None) -> None:
    """Print the families of metrics and their numbers of series."""
    try:
        config = None if file is None else settings.load(file, os.environ)
    except ConfigurationError as wrong:
        fail(wrong, WRONG_USE)
    click.echo(metrics_text(config), nl=False)
