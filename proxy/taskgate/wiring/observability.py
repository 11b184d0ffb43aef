"""The telemetry of one gateway: `TelemetryPipeline`, with metrics, audit log, tracing and log lines.

`Service` opens it before whatever emits events and closes it after that, so that no event is lost.
They read the events of its `event_sink`. `begin`, `wind_down` and `end` report the phases
of the gateway. A reload calls `prepare`, then `switch` or `discard`. `audit_settings` reads the keys
of the audit log; the command that checks a configuration uses `expect_keys`.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Mapping
from logging import getLogger
from pathlib import Path
from typing import Final, NamedTuple

from taskgate import __version__
from taskgate.admission.rates import address_block
from taskgate.auth.key_file import KeyFileRefused, read_keys, read_or_make_keys
from taskgate.clock import Clock, Entropy
from taskgate.config import GatewayConfig
from taskgate.config.model import extension_methods, metrics_config
from taskgate.config.sections.audit import AuditSection, AuditSinkSection
from taskgate.domain.record import TaskId
from taskgate.protocol.extensions import KNOWN_METHODS
from taskgate.stores.references import ReferenceOf, plain_reference
from taskgate.system.secret_files import ADVICE, FOREIGN, is_exposed, is_foreign
from taskgate.telemetry.auditlog.chain import SigningKeyError, signer_of
from taskgate.telemetry.auditlog.formats.digests import digests_of, task_ref
from taskgate.telemetry.auditlog.log import AuditLog, PreparedSinks
from taskgate.telemetry.auditlog.settings import AuditSettings, ChainSettings, LineOptions, SinkSettings
from taskgate.telemetry.auditlog.sink_queue import SinkTrouble
from taskgate.telemetry.auditlog.sinks import STDOUT
from taskgate.telemetry.events import AuditCapacity, GatewayPhaseChanged
from taskgate.telemetry.log_recorder import LogRecorder
from taskgate.telemetry.metrics.prometheus import PrometheusRecorder
from taskgate.telemetry.metrics.storage import AUDIT_QUEUE_DEPTH, AUDIT_SEQUENCE
from taskgate.telemetry.opentelemetry.settings import TracingSettings, require_exporter
from taskgate.telemetry.request_log import RequestLog
from taskgate.telemetry.ring import EventRing
from taskgate.telemetry.span_annotations import ANNOTATIONS
from taskgate.telemetry.tracing import NO_TRACING, Tracing
from taskgate.telemetry.upstream_states import UpstreamStates
from taskgate.wiring.audit_files import LOG_FILE, expect_free_paths
from taskgate.wiring.authentication import KEY_FILE as CONTEXT_KEY_FILE

KEY_FILE: Final = "audit.key"
OWN_KEYS: Final = (KEY_FILE, CONTEXT_KEY_FILE)
"""Key files of the gateway in the data directory."""
_KEY_BYTES: Final = 32
_LONGEST_PEM: Final = 16 * 2**10
_OF: Final = "the audit log"

log = getLogger("taskgate.audit")


class PreparedTelemetry(NamedTuple):
    """The telemetry of another configuration, not in effect yet.

    `is_new` is whether the settings of the audit log differ from the present ones.
    """

    config: GatewayConfig
    settings: AuditSettings
    sinks: PreparedSinks
    is_new: bool


class TelemetryPipeline:
    """The metrics, the audit log and the tracing, from `open` to `close`.

    All components emit to `event_sink`. Until `open` only the metrics read it.
    """

    def __init__(self, config: GatewayConfig, *, data_directory: Path | None, clock: Clock, entropy: Entropy) -> None:
        self._data_directory = data_directory
        self._clock = clock
        self._entropy = entropy
        self._settings: AuditSettings | None = None
        self._fingerprint = 0
        self._has_begun = False
        self._log: AuditLog | None = None
        self._log_recorder: LogRecorder | None = None
        self._methods = _methods_of(config)
        self.event_sink = EventRing(clock)
        self.upstream_states = UpstreamStates(self.event_sink, clock)
        self.metrics = PrometheusRecorder(metrics_config(config), self.event_sink, clock=clock)
        self.tracing: Tracing = NO_TRACING
        self._request_log = RequestLog(self.event_sink)

    @property
    def audit_capacity(self) -> AuditCapacity | None:
        """The room for requests in the audit log; None before `open`."""
        return None if self._log is None else self._log.capacity

    @property
    def audit_troubles(self) -> Mapping[str, SinkTrouble]:
        """The sinks of the audit log whose lines cannot be written, by name."""
        return {} if self._log is None else self._log.troubles()

    @property
    def audit_places(self) -> tuple[str, ...]:
        """The files of the audit log, `stdout` for standard output; () before `load_keys`."""
        sinks = () if self._settings is None else self._settings.sinks
        return tuple("stdout" if sink.path is None else str(sink.path) for sink in sinks)

    async def load_keys(self, config: GatewayConfig) -> ReferenceOf:
        """Read the settings of the audit log with its keys, before `open`.

        Returns the function that makes the public references of tasks in its lines. Without a log, whose
        key would last as long as the process, these are digests without a key. Raises KeyFileRefused or
        AuditUnavailable.
        """
        self._settings = settings = await asyncio.to_thread(self._audit_settings, config)
        return _reference_of(settings)

    async def open(self, config: GatewayConfig) -> None:
        """Open the audit log and tracing. Raises KeyFileRefused, AuditUnavailable or
        TracingUnavailable.
        """
        if self._settings is None:
            await self.load_keys(config)
        settings = self._settings
        assert settings is not None, "load_keys() sets them"
        self.event_sink.start()
        self._log_recorder = LogRecorder(
            self.event_sink,
            clock=self._clock,
            reference_of=self._reference,
            block_of=address_block,
        )
        log_ = AuditLog(settings, event_sink=self.event_sink, clock=self._clock, block_of=address_block)
        await log_.open()
        self._log = log_
        self.tracing = open_tracing(
            config.tracing.to_settings(),
            version=__version__,
            clock=self._clock,
            entropy=self._entropy,
            task_ref=self._task_ref if settings.sinks else None,
            methods=lambda: self._methods,
        )
        if self.tracing is not NO_TRACING:
            self.event_sink.annotate(ANNOTATIONS)
        self._log_requests(config, settings)
        self.metrics.watch(AUDIT_QUEUE_DEPTH, log_.depths)
        self.metrics.watch(AUDIT_SEQUENCE, log_.sequences)

    def begin(self, fingerprint: int) -> None:
        """Report that the gateway serves, with the fingerprint of its configuration."""
        self._fingerprint = fingerprint
        self.metrics.show_configuration(fingerprint)
        self._has_begun = True
        self._emit_phase("started")

    def wind_down(self) -> None:
        """Report that the gateway is stopping."""
        self._emit_phase("stopping")

    def end(self) -> None:
        """Report that the gateway has stopped, if it had begun."""
        if self._has_begun:
            self._emit_phase("stopped")

    async def prepare(self, config: GatewayConfig) -> PreparedTelemetry:
        """Prepare the telemetry of another configuration, for `switch` or `discard`.

        Raises KeyFileRefused or AuditUnavailable; nothing has changed then.
        """
        assert self._log is not None, "open() comes before prepare()"
        settings = await asyncio.to_thread(self._audit_settings, config)
        return PreparedTelemetry(config, settings, await self._log.prepare(settings), settings != self._settings)

    async def discard(self, prepared: PreparedTelemetry) -> None:
        """Close what was prepared and will not take effect."""
        if self._log is not None:
            await self._log.discard(prepared.sinks)

    def switch(self, prepared: PreparedTelemetry) -> None:
        """Apply what was prepared."""
        assert self._log is not None
        self.event_sink.fold()
        self._settings = prepared.settings
        self._log.switch(prepared.sinks)
        self._methods = _methods_of(prepared.config)
        self.upstream_states.adopt(prepared.config.upstreams)
        if self._log_recorder is not None:
            self._log_recorder.adopt(prepared.config.upstreams)
        self.metrics.adopt(metrics_config(prepared.config))
        self._log_requests(prepared.config, prepared.settings)

    def reopen(self) -> None:
        """Close the audit files and open those that have their names now, after a log rotation."""
        if self._log is not None:
            self._log.reopen()

    async def close(self) -> None:
        """Write all events, and send what can be sent at once."""
        self.event_sink.fold()
        await self.tracing.close()
        if self._log is not None:
            await self._log.close()
        self.event_sink.stop()
        if self._log_recorder is not None:
            self._log_recorder.close()

    def _log_requests(self, config: GatewayConfig, settings: AuditSettings) -> None:
        section = config.logging
        self._request_log.adopt(
            access=section.access and section.level in ("debug", "info"),
            debug=section.level == "debug",
            reference_of=_reference_of(settings),
        )

    def _emit_phase(self, phase: str) -> None:
        self.event_sink.emit(GatewayPhaseChanged(phase, __version__, self._fingerprint))

    def _audit_settings(self, config: GatewayConfig) -> AuditSettings:
        return audit_settings(config, self._data_directory, self._entropy, before=self._settings)

    def _reference(self, task: TaskId) -> str:
        assert self._settings is not None
        return _reference_of(self._settings)(task)

    def _task_ref(self, task: str) -> str:
        assert self._settings is not None
        return task_ref(self._settings.key, task)


def _reference_of(settings: AuditSettings) -> ReferenceOf:
    """Return the function that makes the public references of tasks."""
    return digests_of(settings.key).task if settings.sinks else plain_reference


def _methods_of(config: GatewayConfig) -> frozenset[str]:
    """Return the methods of extensions that may name a span: the known and the forwarded ones."""
    return KNOWN_METHODS | extension_methods(config)


# --- the settings of the audit log ------------------------------------------------------------------------------------


def audit_settings(
    config: GatewayConfig, data_directory: Path | None, entropy: Entropy, *, before: AuditSettings | None = None
) -> AuditSettings:
    """Return the settings of the log, with its keys. Raises KeyFileRefused, or AuditUnavailable
    where a sink has the path of another file of the gateway.

    At a reload `before` are the present settings. If the log is on, no key file is created then: old
    lines could not be verified with a new key. A log that is off has no sinks. Without a data
    directory, a file sink without a path is left out, and a key without a file lasts as long as the
    process.
    """
    section = config.audit
    if not section.enabled:
        return AuditSettings(sinks=(), key=entropy.token(_KEY_BYTES) if before is None else before.key, node=_node())
    expect_free_paths(config, data_directory, OWN_KEYS)
    return AuditSettings(
        sinks=_sinks(section, data_directory),
        key=_key(section, data_directory, entropy, before),
        node=_node(),
        line_options=LineOptions(
            format=section.format,
            identity=section.identity,
            arguments=section.arguments,
            results=section.results,
            redact=section.redact,
        ),
        events=section.events,
        keep=section.keep,
        chain=_chain(section),
        queue=section.queue,
        on_full=section.on_full,
        block_timeout=section.block_timeout,
    )


def expect_keys(config: GatewayConfig) -> None:
    """Check the configured key files as `audit_settings` would. Raises KeyFileRefused."""
    section = config.audit
    if section.enabled:
        if section.hmac_key_file is not None:
            _named_key(section.hmac_key_file)
        _chain(section)


def read_pem(path: Path) -> bytes:
    """Read a file with a key in PEM form. Raises KeyFileRefused with the reason only."""
    try:
        with path.open("rb") as file:
            exposed = is_exposed(path, os.fstat(file.fileno()).st_mode, "audit.chain.sign_key_file")
            foreign = is_foreign(path)
            text = file.read(_LONGEST_PEM + 1)
    except (OSError, ValueError) as error:
        raise KeyFileRefused(f"cannot be read: {os.strerror(getattr(error, 'errno', 0) or 0)}") from None
    if exposed:
        raise KeyFileRefused(ADVICE)
    if foreign:
        raise KeyFileRefused(FOREIGN)
    if len(text) > _LONGEST_PEM:
        raise KeyFileRefused("is too large for a key")
    return text


def _node() -> str:
    return socket.gethostname()


def _sinks(section: AuditSection, data_directory: Path | None) -> tuple[SinkSettings, ...]:
    found = []
    # A line of some 400 characters, and again each minute, is none for people. Who asks for it gets it.
    is_unasked = "sinks" not in section.model_fields_set and _prints_to_terminal()
    for sink in section.sinks:
        if is_unasked and sink.type == "stdout":
            continue
        if sink.type == "file" and sink.path is None and data_directory is None:
            log.warning(
                "an audit sink is skipped: it has no path and there is no data directory", extra={"sink": sink.name}
            )
        else:
            found.append(_sink(sink, data_directory))
    return tuple(found)


def _prints_to_terminal() -> bool:
    """Whether the standard output is a terminal."""
    return os.isatty(STDOUT)


def _sink(sink: AuditSinkSection, data_directory: Path | None) -> SinkSettings:
    path = None if sink.type == "stdout" else sink.path or (data_directory or Path()) / LOG_FILE
    rotate = sink.rotate
    return SinkSettings(
        name=sink.name,
        path=path,
        events=sink.events,
        rotate_size=None if rotate is None else rotate.size,
        keep=1 if rotate is None else rotate.keep,
        fsync=sink.fsync or "never",
        was_named=sink.type == "stdout" or sink.path is not None,
    )


def _key(section: AuditSection, data_directory: Path | None, entropy: Entropy, before: AuditSettings | None) -> bytes:
    if section.hmac_key_file is not None:
        return _named_key(section.hmac_key_file)
    if data_directory is not None:
        file = data_directory / KEY_FILE
        is_first = before is None or not before.sinks
        try:
            return (read_or_make_keys(file, entropy, of=_OF) if is_first else read_keys(file, of=_OF)).current
        except KeyFileRefused as refusal:
            raise KeyFileRefused(f"{KEY_FILE} in the data directory: {refusal}") from None
    return entropy.token(_KEY_BYTES) if before is None else before.key


def _named_key(path: Path) -> bytes:
    try:
        return read_keys(path, of=_OF).current
    except KeyFileRefused as refusal:
        raise KeyFileRefused(f"audit.hmac_key_file: {refusal}") from None


def _chain(section: AuditSection) -> ChainSettings:
    chain = section.chain
    pem = None
    if chain.sign_key_file is not None:
        try:
            pem = read_pem(chain.sign_key_file)
            signer_of(b"", pem)
        except (KeyFileRefused, SigningKeyError) as refusal:
            raise KeyFileRefused(f"audit.chain.sign_key_file: {refusal}") from None
    return ChainSettings(
        enabled=chain.enabled,
        checkpoint_events=chain.checkpoint_events,
        checkpoint_interval=chain.checkpoint_interval,
        signing_key=pem,
    )


def open_tracing(
    settings: TracingSettings | None,
    *,
    version: str,
    clock: Clock,
    entropy: Entropy,
    task_ref: Callable[[str], str] | None = None,
    methods: Callable[[], Collection[str]] = frozenset,
) -> Tracing:
    """Tracing with these settings, which the caller closes; `NO_TRACING` without settings.

    `task_ref` turns a task id into the reference that spans show; without it, spans name no task.
    `methods` returns the methods of the configured extensions at present. A span names these and
    the methods of MCP, and no other method that a host sends. Raises TracingUnavailable.
    """
    if settings is None:
        return NO_TRACING
    require_exporter(settings.exporter)
    from taskgate.telemetry.opentelemetry.sdk import build_tracing  # noqa: PLC0415 - it loads the SDK

    return build_tracing(settings, version=version, clock=clock, entropy=entropy, task_ref=task_ref, methods=methods)
