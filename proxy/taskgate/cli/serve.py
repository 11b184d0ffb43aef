"""The work of `serve`: start the gateway, handle signals and reloads, and stop it."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from logging import INFO, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from taskgate import config as settings
from taskgate.auth.key_file import KeyFileRefused
from taskgate.cli.exits import FAILED, WRONG_USE, fail
from taskgate.cli.help import NO_FILE
from taskgate.clock import SystemEntropy
from taskgate.config import ConfigurationError, GatewayConfig, Problem
from taskgate.config.file_watch import FileWatch
from taskgate.errors import StoreUnavailable
from taskgate.explain.checks import missing_programs
from taskgate.listener.tls import TlsRefused
from taskgate.system import allocator, descriptors
from taskgate.system.event_loop import LoopUnavailable, loop_factory, name_of
from taskgate.system.secret_files import forbid_core_dumps
from taskgate.system.service_notifier import ServiceNotifier
from taskgate.telemetry import logs
from taskgate.telemetry.auditlog.settings import AuditUnavailable
from taskgate.telemetry.opentelemetry.settings import TracingUnavailable
from taskgate.upstream.wire.trust import TlsFileRefused
from taskgate.wiring.app import ListenFailed, Service
from taskgate.wiring.operator_token import kept_token, own_token
from taskgate.wiring.shutdown import EndSignals
from taskgate.wiring.startup import StartupReport

if TYPE_CHECKING:
    from taskgate.operators.explain import CallToExplain


WATCH_INTERVAL: Final = 2.0
"""Seconds between two checks whether the configuration file, or one that it refers to, has changed."""

_START_ERRORS: Final = (
    ListenFailed,
    TlsRefused,
    TlsFileRefused,
    KeyFileRefused,
    StoreUnavailable,
    AuditUnavailable,
    TracingUnavailable,
)

_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = getLogger("taskgate.cli")


def serve_until_stopped(
    file: Path | None,
    upstream: str | None,
    command: str | None,
    listen: str | None,
    admin: str | None,
    loop: str,
    no_watch: bool,
) -> None:
    """Serve until a signal ends it; the options are those of the command."""
    given = 3 - [file, upstream, command].count(None)
    if given != 1:
        why = f": {NO_FILE}" if given == 0 else ""
        raise click.UsageError(
            f"Give exactly one of --config FILE, --upstream URL and --upstream-command COMMAND{why}."
        )
    if file is not None and (listen or admin):
        raise click.UsageError(
            "--listen and --admin cannot be used with --config: set server.listen and admin.listen in the file."
        )
    forbid_core_dumps()
    watch = None if file is None or no_watch else FileWatch(file)
    try:
        new_loop = loop_factory(loop)
        if file is not None:
            config = settings.load(file, os.environ)
            if watch is not None:
                watch.follow(config.references.files)
        elif command is not None:
            config = _config_for_command(command, listen, admin)
        else:
            config = settings.for_upstream(upstream or "", listen, admin, os.environ)
        directory = settings.open_data_directory(os.environ) if settings.needs_data_directory(config) else None
    except (ConfigurationError, LoopUnavailable) as error:
        fail(error, WRONG_USE)
    _configure_logs(config)
    _warn_of_missing_programs(config)
    _raise_open_limit(config)
    read_config = None if file is None else partial(_reload, file)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve(config, directory, read_config, watch))
    except _START_ERRORS as error:
        # What it prints stands behind the lines before.
        logs.flush()
        fail(_with_file(error, config, directory), FAILED, hide=config.references.hide)


def _with_file(error: Exception, config: GatewayConfig, directory: Path | None) -> Exception:
    """The error, with the path of the store's file where it is about that."""
    if not isinstance(error, StoreUnavailable) or config.store.backend != "sqlite":
        return error
    return StoreUnavailable(f"{config.store.sqlite.to_options(directory).path}: {error}")


# --- before the start -------------------------------------------------------------------------------------------------


def _config_for_command(command: str, listen: str | None, admin: str | None) -> GatewayConfig:
    """The configuration of the flags; raises ConfigurationError, also if the program is missing.

    A missing program is an error here, because nothing else is served.
    """
    config = settings.for_command(command, listen, admin, os.environ)
    missing = [message for _, message in missing_programs(config, os.environ)]
    if missing:
        raise ConfigurationError(Problem(path="--upstream-command", message=message) for message in missing)
    return config


def _configure_logs(config: GatewayConfig) -> None:
    references = config.references
    hide = references.hide if references.values else None
    logging = config.logging
    logs.configure(logging.level, logging.format, sys.stderr, hide=hide, names_callers=config.names_callers)


def _raise_open_limit(config: GatewayConfig) -> None:
    """Raise the limit of open files, and warn if it is too low for the configuration."""
    descriptors.raise_limit()
    server, fit = config.server, descriptors.host_connections()
    was_chosen = "max_connections" in server.model_fields_set
    wanted = server.max_connections if was_chosen else server.max_connections_per_address
    if fit < wanted:
        log.warning(
            "the open file limit is too low for the configured host connections; raise it",
            extra={"limit": descriptors.limit(), "connections": fit, "needed": descriptors.limit_for(wanted)},
        )


def _reload(file: Path) -> GatewayConfig:
    """Load the file again; programs that it starts may be missing by now."""
    config = settings.load(file, os.environ)
    _warn_of_missing_programs(config)
    return config


def _warn_of_missing_programs(config: GatewayConfig) -> None:
    """Warn as `check` does, before the first call needs a program."""
    for key, problem in missing_programs(config, os.environ):
        log.warning("the program of a stdio server cannot be started", extra={"key": key, "problem": problem})


# --- while it runs ----------------------------------------------------------------------------------------------------


async def _serve(
    config: GatewayConfig,
    directory: Path | None,
    read_config: Callable[[], GatewayConfig] | None,
    watch: FileWatch | None,
) -> None:
    loop, hangup, drain = asyncio.get_running_loop(), asyncio.Event(), config.server.drain
    signals = EndSignals(drain.delay + drain.timeout)
    signals.listen()
    notifier = ServiceNotifier.from_environment(os.environ)
    loop.add_signal_handler(signal.SIGHUP, hangup.set)
    # Without a file and a terminal no one would learn it.
    is_told = directory is not None or _shows_banner(config.logging.format)
    token = own_token(config, SystemEntropy()) if is_told else None
    service = Service(
        config,
        data_directory=directory,
        read_config=read_config,
        watch=watch,
        configure_logs=_configure_logs,
        end=signals.end,
        explain=_explain,
        own_token=token,
    )
    kept = ExitStack()
    try:
        if not await _start(service, signals.stop):
            return
        file = kept.enter_context(kept_token(token, directory, service.admin_address[1]))
        _freeze_heap()
        allocator.configure()
        _announce(service.startup_report(), token, file, format=config.logging.format, loop=name_of(loop))
        notifier.ready()
        interval = None if watch is None else WATCH_INTERVAL
        reloads = loop.create_task(_reload_on_change(service, hangup, notifier, interval))
        await signals.stop.wait()
        notifier.stopping()
        reloads.cancel()
        loop.add_signal_handler(signal.SIGHUP, _refuse_reload, service)
        await asyncio.wait((reloads,))
        # After Ctrl-C no load balancer needs time to notice.
        delay = timedelta() if signals.first == signal.SIGINT else drain.delay
        await service.drain(delay=delay, hurry=signals.hurry)
    finally:
        kept.close()
        await service.close(signals.hurry)
        notifier.close()
    # The loop drops its handlers when it is closed. A signal would then end the process, with its number as status. To
    # block it here is not enough: another thread that is still there would get it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    for each in _HANDLED:
        loop.remove_signal_handler(each)
        signal.signal(each, signal.SIG_IGN)
    log.info("stopped")


async def _explain(config: GatewayConfig, port: int, call: "CallToExplain") -> dict[str, Any]:
    """Explain a call for the API of operators. Raises ApiError."""
    # It loads the libraries of signatures, which a gateway without authentication saves.
    from taskgate.explain.running import explain_call  # noqa: PLC0415

    return await explain_call(config, port, call)


async def _reload_on_change(
    service: Service, hangup: asyncio.Event, notifier: ServiceNotifier, interval: float | None
) -> NoReturn:
    """Reload the configuration on SIGHUP, or if its files have changed, which is checked each
    `interval` seconds."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(interval):
                await hangup.wait()
        has_changed = service.has_changed()
        if hangup.is_set():
            service.reopen()
        if hangup.is_set() or has_changed:
            hangup.clear()
            notifier.reloading()
            if await service.reread() is None:
                log.info("cannot reload: the gateway was started without a configuration file")
            notifier.ready()


def _refuse_reload(service: Service) -> None:
    """Handle SIGHUP during shutdown: only reopen the audit log, whose files may be rotated."""
    service.reopen()
    log.warning("configuration not reloaded: the gateway is shutting down")


async def _start(service: Service, stop: asyncio.Event) -> bool:
    """Start the service.

    False if it was stopped first, because recovery of earlier tasks may take long.
    """
    starting, stopping = asyncio.ensure_future(service.start()), asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in (starting, stopping):
        task.cancel()
    await asyncio.wait((starting, stopping))
    try:
        if starting.cancelled():
            return False
        starting.result()
        return True
    finally:
        del task, starting


def _freeze_heap() -> None:
    """Take loaded objects out of garbage collection, which saves a tenth of the time of a request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _shows_banner(format: str) -> bool:
    """Whether the start is told as a banner, for people."""
    return format == "auto" and log.isEnabledFor(INFO) and logs.is_terminal(sys.stderr)


def _announce(report: StartupReport, token: bytes | None, file: Path | None, *, format: str, loop: str) -> None:
    """Log what a gateway serves, and where its files are; with the format auto on a terminal, as a banner.

    The banner has the gateway's own token, if there is one, and a log the file of it alone.
    """
    if _shows_banner(format):
        logs.flush()
        # A terminal that is gone takes no banner.
        with suppress(OSError, ValueError):
            lines = report.lines(None if token is None else token.decode(), None if file is None else str(file))
            click.echo("\n".join(map(logs.printable, lines)) + "\n", err=True)
    else:
        for mount in report.mounts:
            log.info("an upstream is mounted", extra=mount._asdict())
        if report.proxies:
            log.info("servers and issuers are reached through a proxy", extra={"proxies": report.proxies})
        log.info(
            "the store and the audit log are open",
            extra={
                "store": report.store,
                "store_place": report.store_place,
                "data_directory": report.data_directory,
                "audit": report.audit,
            },
        )
        if file is not None:
            log.info("operators have a token until the end", extra={"file": str(file)})
    addresses = {"listen": report.listen, "admin": report.admin}
    log.info("serving", extra={**addresses, "loop": loop, "version": report.version})
