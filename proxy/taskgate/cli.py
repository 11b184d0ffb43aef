"""The command line: `serve`, signals, log lines and exit codes; the other commands are in `commands`.

What must not live here: what the commands do. Exit codes: 0 done, 1 the gateway could not start, or
a token is refused, 2 the command line or the configuration is wrong.
"""

import asyncio
import gc
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from taskgate import __version__
from taskgate import config as settings
from taskgate.auth.key_file import KeyFileRefused
from taskgate.commands import COULD_NOT_START, WRONG, AnyFile, audit, check, explain, give_up, load, metrics, schema
from taskgate.config import ConfigurationError, GatewayConfig, Problem
from taskgate.errors import StoreUnavailable
from taskgate.explain.checks import missing_programs
from taskgate.listener.tls import TlsRefused
from taskgate.system import descriptors
from taskgate.system.watching import FileWatch
from taskgate.telemetry import logs
from taskgate.telemetry.auditlog.settings import AuditUnavailable
from taskgate.telemetry.opentelemetry.settings import TracingUnavailable
from taskgate.upstream.wire.trust import TlsFileRefused
from taskgate.wiring.app import ConfigSource, Service
from taskgate.wiring.signals import EndSignals
from taskgate.wiring.sockets import ListenFailed

LOOK_EVERY: Final = 2.0
"""Seconds between two looks at whether the configuration file was changed."""

_LEARNT: Final = 31 * 1024 * 1024
"""Bytes: glibc learns from nothing that takes more than 32 MiB."""

_UNSEEN: Final = (AuditUnavailable, TracingUnavailable)

log = getLogger("taskgate.cli")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="taskgate")
def main() -> None:
    """A gateway that turns blocking MCP tool calls into durable tasks, in front of unmodified servers."""


for _command in (check, schema, explain, metrics, audit):
    main.add_command(_command)


@main.command()
@click.option("--config", "file", type=AnyFile, help="The configuration file.")
@click.option("--upstream", metavar="URL", help="Without --config: URL of the MCP server to serve at /mcp.")
@click.option(
    "--upstream-command",
    "command",
    metavar="COMMAND",
    help="Without --config: command of a stdio MCP server to serve at /mcp.",
)
@click.option("--listen", metavar="HOST:PORT", help="Without --config: address for hosts; default 127.0.0.1:8080.")
@click.option(
    "--admin", metavar="HOST:PORT", help="Without --config: address for health and metrics; default 127.0.0.1:9464."
)
@click.option("--no-watch", is_flag=True, help="Reload the file only on SIGHUP, not when it changes.")
def serve(
    file: Path | None,
    upstream: str | None,
    command: str | None,
    listen: str | None,
    admin: str | None,
    no_watch: bool,
) -> None:
    """Serve until SIGTERM or SIGINT. SIGTERM drains first; a second signal ends the drain.

    SIGHUP, or a change of the file, reloads the configuration. The log names changed keys that need a restart. SIGHUP
    also reopens the files of the audit log.
    """
    if [file, upstream, command].count(None) != 2:
        raise click.UsageError("Give exactly one of --config FILE, --upstream URL and --upstream-command COMMAND.")
    if file is not None and (listen or admin):
        raise click.UsageError(
            "--listen and --admin cannot be used with --config: set server.listen and admin.listen in the file."
        )
    watch = None if file is None else FileWatch(file)
    try:
        if file is not None:
            chosen = load(file)
        elif command is not None:
            chosen = _for_command(command, listen, admin)
        else:
            chosen = settings.for_upstream(upstream or "", listen, admin)
        directory = settings.open_data_directory(os.environ) if _needs_directory(chosen) else None
    except ConfigurationError as wrong:
        give_up(wrong, WRONG)
    _log_as(chosen)
    _warn_of_missing(chosen)
    _open_limit(chosen)
    source = None if file is None else ConfigSource(read=partial(_load_again, file), relog=_log_as)
    try:
        asyncio.run(_serve(chosen, directory, source, None if no_watch else watch))
    except (ListenFailed, TlsRefused, TlsFileRefused, KeyFileRefused, StoreUnavailable, *_UNSEEN) as refusal:
        give_up(refusal, COULD_NOT_START)


def _for_command(command: str, listen: str | None, admin: str | None) -> GatewayConfig:
    """As the flags say. Raises ConfigurationError, also where the program is not there: nothing else is served."""
    chosen = settings.for_command(command, listen, admin)
    missing = [message for _, message in missing_programs(chosen, os.environ)]
    if missing:
        raise ConfigurationError(Problem(path="--upstream-command", message=message) for message in missing)
    return chosen


def _log_as(chosen: GatewayConfig) -> None:
    logs.configure(chosen.logging.level, chosen.logging.format, sys.stderr)


def _open_limit(chosen: GatewayConfig) -> None:
    """Take all the descriptors that the system gives, and tell where they are too few for what was asked for."""
    descriptors.raise_limit()
    server, fit = chosen.server, descriptors.host_connections()
    was_chosen = "max_connections" in server.model_fields_set
    wanted = server.max_connections if was_chosen else server.max_connections_per_address
    if fit < wanted:
        log.warning(
            "the open file limit is too low for the configured host connections; raise it",
            extra={"limit": descriptors.limit(), "connections": fit, "needed": descriptors.needed_for(wanted)},
        )


def _load_again(file: Path) -> GatewayConfig:
    """See `load`; what it starts may have gone since."""
    chosen = load(file)
    _warn_of_missing(chosen)
    return chosen


def _warn_of_missing(chosen: GatewayConfig) -> None:
    """As `check` does: that a program is missing should not be news to whoever needs it first."""
    for key, problem in missing_programs(chosen, os.environ):
        log.warning("the program of a stdio server cannot be started", extra={"key": key, "problem": problem})


def _needs_directory(chosen: GatewayConfig) -> bool:
    """Whether something that must outlive the process has no place of its own."""
    makes_key = chosen.auth.mode == "required" and chosen.auth.context.key_file is None
    if chosen.store.backend == "sqlite" and (chosen.store.sqlite.path is None or makes_key):
        return True
    audit = chosen.audit
    has_file = any(sink.type == "file" and sink.path is None for sink in audit.sinks)
    return audit.enabled and (has_file or audit.hmac_key_file is None)


async def _serve(
    chosen: GatewayConfig, directory: Path | None, source: ConfigSource | None, watch: FileWatch | None
) -> None:
    loop, again, rules = asyncio.get_running_loop(), asyncio.Event(), chosen.server.drain
    asked = EndSignals(rules.delay + rules.timeout)
    asked.listen()
    loop.add_signal_handler(signal.SIGHUP, again.set)
    service = Service(chosen, data_directory=directory, source=source, end=asked.end)
    try:
        if not await _started(service, asked.stop):
            return
        _calm_collector()
        _calm_allocator()
        log.info("serving", extra=_addresses(service))
        following = loop.create_task(_follow(service, again, watch))
        await asked.stop.wait()
        following.cancel()
        loop.add_signal_handler(signal.SIGHUP, _stay, service)
        await asyncio.wait((following,))
        # Whoever presses Ctrl-C is not waiting for a load balancer to look elsewhere.
        delay = timedelta() if asked.first == signal.SIGINT else rules.delay
        await service.drain(delay=delay, hurry=asked.hurry)
    finally:
        await service.close(asked.hurry)
    log.info("stopped")


async def _follow(service: Service, again: asyncio.Event, watch: FileWatch | None) -> NoReturn:
    """Have the configuration read again whenever somebody asks for that, or its file was changed."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(None if watch is None else LOOK_EVERY):
                await again.wait()
        is_another = watch is not None and watch.changed()
        if again.is_set():
            service.reopen()
        if again.is_set() or is_another:
            again.clear()
            if await service.reread() is None:
                log.info("cannot reload: the gateway was started without a configuration file")


def _stay(service: Service) -> None:
    """Answer a SIGHUP to a gateway that ends: the files of its audit log may have been moved all the same."""
    service.reopen()
    log.warning("configuration not reloaded: the gateway is shutting down")


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
