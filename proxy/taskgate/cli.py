"""The command line: `serve`, `check`, `schema`; signals, log lines and exit codes.

What must not live here: what the commands do. Exit codes: 0 done, 1 the gateway could not start, 2 the command line or
the configuration is wrong.
"""

import asyncio
import gc
import os
import signal
import sys
from datetime import timedelta
from logging import getLogger
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import orjson

from taskgate import __version__
from taskgate import config as settings
from taskgate.app import ListenFailed, Service
from taskgate.auth.keyfile import KeyFileRefused
from taskgate.config import ConfigurationError, GatewayConfig
from taskgate.downstream.tls import TlsRefused
from taskgate.errors import StoreUnavailable
from taskgate.telemetry import logs
from taskgate.upstream.wire.trust import TlsFileRefused

COULD_NOT_START: Final = 1
WRONG: Final = 2

_LEARNT: Final = 31 * 1024 * 1024
"""Bytes: glibc learns from nothing that takes more than 32 MiB."""

log = getLogger("taskgate.cli")

_File = click.Path(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="taskgate")
def main() -> None:
    """A gateway that turns blocking MCP tool calls into durable tasks, in front of unmodified servers."""


@main.command()
@click.option("--config", "file", type=_File, help="The configuration file.")
@click.option("--upstream", metavar="URL", help="Without a file: the MCP server to put at /mcp.")
@click.option("--listen", metavar="HOST:PORT", help="With --upstream: where hosts connect; 127.0.0.1:8080.")
@click.option("--admin", metavar="HOST:PORT", help="With --upstream: where operators look; 127.0.0.1:9464.")
def serve(file: Path | None, upstream: str | None, listen: str | None, admin: str | None) -> None:
    """Serve until SIGTERM or SIGINT; SIGTERM drains first. A second signal ends the drain."""
    if (file is None) == (upstream is None):
        raise click.UsageError("Give either --config FILE or --upstream URL.")
    if file is not None and (listen or admin):
        raise click.UsageError("--listen and --admin belong to --upstream; a file has keys for both.")
    try:
        chosen = _load(file) if file is not None else settings.for_upstream(upstream or "", listen, admin)
        directory = settings.open_data_directory(os.environ) if _needs_directory(chosen) else None
    except ConfigurationError as wrong:
        _give_up(wrong, WRONG)
    logs.configure(chosen.logging.level, chosen.logging.format, sys.stderr)
    try:
        asyncio.run(_serve(chosen, directory))
    except (ListenFailed, TlsRefused, TlsFileRefused, KeyFileRefused, StoreUnavailable) as refusal:
        _give_up(refusal, COULD_NOT_START)


@main.command()
@click.option("--config", "file", type=_File, required=True, help="The configuration file.")
def check(file: Path) -> None:
    """Check a configuration and print it as it takes effect, every key shown, secrets as ********."""
    try:
        click.echo(settings.effective(_load(file)), nl=False)
    except ConfigurationError as wrong:
        _give_up(wrong, WRONG)


@main.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file."""
    click.echo(orjson.dumps(settings.schema(), option=orjson.OPT_INDENT_2))


def _load(file: Path) -> GatewayConfig:
    return settings.load(file, os.environ)


def _needs_directory(chosen: GatewayConfig) -> bool:
    """Whether something that must outlive the process has no place of its own."""
    makes_key = chosen.auth.mode == "required" and chosen.auth.context.key_file is None
    return chosen.store.backend == "sqlite" and (chosen.store.sqlite.path is None or makes_key)


def _give_up(error: Exception, status: int) -> NoReturn:
    click.echo(f"taskgate: {error}" if status == COULD_NOT_START else str(error), err=True)
    sys.exit(status)


async def _serve(chosen: GatewayConfig, directory: Path | None) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()
    asked: list[int] = []

    def hear(number: int) -> None:
        asked.append(number)
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear, number)
    service = Service(chosen, data_directory=directory)
    try:
        if not await _started(service, stop):
            return
        _calm_collector()
        _calm_allocator()
        log.info("serving", extra=_addresses(service))
        await stop.wait()
        # Whoever presses Ctrl-C is not waiting for a load balancer to look elsewhere.
        delay = chosen.server.drain.delay if asked[0] == signal.SIGTERM else timedelta()
        await service.drain(delay=delay, hurry=hurry)
    finally:
        await service.close()
    log.info("stopped")


async def _started(service: Service, stop: asyncio.Event) -> bool:
    """Start, unless asked to stop meanwhile: what an earlier process left may take its time."""
    starting, stopping = asyncio.ensure_future(service.start()), asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (starting, stopping):
        task.cancel()
    await asyncio.wait((starting, stopping))
    if starting.cancelled():
        return False
    starting.result()
    return True


def _calm_collector() -> None:
    """What is loaded stays: not looking at it again costs nothing and saves a tenth of the time of a request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _calm_allocator() -> None:
    """Keep memory for large messages, instead of giving it back to the system and asking for it with each of them.

    glibc learns from the largest block that it gets back: smaller ones come from its heap from then on, of which it
    keeps twice as much. Left to learn by chance, it made a message of 1 MiB up to three times as dear. Nothing is
    written to the block, so it takes no memory itself; other allocators do not care.
    """
    bytearray(_LEARNT)


def _addresses(service: Service) -> dict[str, Any]:
    return {
        name: f"{f'[{host}]' if ':' in host else host}:{port}"
        for name, (host, port) in (("listen", service.address), ("admin", service.admin_address))
    }
