"""What operators see of one gateway: metrics, the audit log, traces; and who tells them.

What must not live here: what is told (`telemetry`), and what keys of the configuration mean for it (`config.measuring`,
`auditing`, `config.tracing_models`). What holds: it is opened before anything that has something to tell and closed
after it, so that nothing goes untold.
"""

import asyncio
from pathlib import Path
from typing import NamedTuple

from taskgate import __version__
from taskgate.clock import Clock, Entropy
from taskgate.config import GatewayConfig
from taskgate.config.settings import extension_methods, metrics_config
from taskgate.protocol.extensions import KNOWN_METHODS
from taskgate.telemetry.auditlog.formats.digests import task_ref
from taskgate.telemetry.auditlog.log import AuditLog, PreparedSinks
from taskgate.telemetry.auditlog.settings import AuditSettings
from taskgate.telemetry.events import Event, EventFanout, EventSink, GatewayPhaseChanged
from taskgate.telemetry.metrics.prometheus import PrometheusRecorder
from taskgate.telemetry.metrics.storage import AUDIT_QUEUE_DEPTH, AUDIT_SEQUENCE
from taskgate.telemetry.opentelemetry.setup import open_tracing
from taskgate.telemetry.span_annotations import SpanAnnotator
from taskgate.telemetry.tracing import NO_TRACING, Tracing
from taskgate.wiring.auditing import audit_settings


class Next(NamedTuple):
    """What is to be seen under another configuration, not in force yet; `is_new` where the log is to be another."""

    config: GatewayConfig
    settings: AuditSettings
    prepared: PreparedSinks
    is_new: bool


class TelemetryPipeline:
    """The eyes of operators, from `open` to `close`. `audit` is whom everybody tells; until `open` metrics alone."""

    def __init__(self, config: GatewayConfig, *, data_directory: Path | None, clock: Clock, entropy: Entropy) -> None:
        self._data_directory = data_directory
        self._clock = clock
        self._entropy = entropy
        self._settings: AuditSettings | None = None
        self._fingerprint = 0
        self._has_begun = False
        self._log: AuditLog | None = None
        self._methods = _methods_of(config)
        self.metrics = PrometheusRecorder(metrics_config(config), clock=clock)
        self.tracing: Tracing = NO_TRACING
        self.event_sink: EventSink = self.metrics

    @property
    def trail(self) -> AuditLog | None:
        """The audit log, which is asked for room before a request is let in; None before `open`."""
        return self._log

    async def open(self, config: GatewayConfig) -> None:
        """Begin to keep the audit log, and to trace. Raises KeyFileRefused, AuditUnavailable or TracingUnavailable."""
        self._settings = settings = await asyncio.to_thread(self._audit_settings, config)
        log_ = AuditLog(settings, metrics=self.metrics, clock=self._clock)
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
        notes = () if self.tracing is NO_TRACING else (SpanAnnotator(),)
        self.event_sink = EventFanout(self.metrics, log_, *notes)
        self.metrics.watch(AUDIT_QUEUE_DEPTH, log_.depths)
        self.metrics.watch(AUDIT_SEQUENCE, log_.sequences)

    def begin(self, fingerprint: int) -> None:
        """The gateway serves, with the configuration of that fingerprint."""
        self._fingerprint = fingerprint
        self.metrics.show_configuration(fingerprint)
        self._has_begun = True
        self._tell("started")

    def wind_down(self) -> None:
        """The gateway is stopping."""
        self._tell("stopping")

    def end(self) -> None:
        """It has stopped, if it ever began."""
        if self._has_begun:
            self._tell("stopped")

    def emit(self, event: Event) -> None:
        """See EventSink."""
        self.event_sink.emit(event)

    async def prepare(self, config: GatewayConfig) -> Next:
        """What is seen under that configuration. Raises KeyFileRefused or AuditUnavailable; then nothing is changed."""
        assert self._log is not None, "open() comes before prepare()"
        settings = await asyncio.to_thread(self._audit_settings, config)
        return Next(config, settings, await self._log.prepare(settings), settings != self._settings)

    async def discard(self, other: Next) -> None:
        """Let go of what will not be in force after all."""
        if self._log is not None:
            await self._log.discard(other.prepared)

    def switch(self, other: Next) -> None:
        """Have that from now on."""
        assert self._log is not None
        self._settings = other.settings
        self._log.switch(other.prepared)
        self._methods = _methods_of(other.config)
        self.metrics.adopt(metrics_config(other.config))

    def reopen(self) -> None:
        """Let go of the files that are written to, and open what has their names now: somebody moved them."""
        if self._log is not None:
            self._log.reopen()

    async def close(self) -> None:
        """Everything that was told is written, and sent as far as that takes no time."""
        await self.tracing.close()
        if self._log is not None:
            await self._log.close()

    def _tell(self, phase: str) -> None:
        self.event_sink.emit(GatewayPhaseChanged(phase, __version__, self._fingerprint))

    def _audit_settings(self, config: GatewayConfig) -> AuditSettings:
        return audit_settings(config, self._data_directory, self._entropy, before=self._settings)

    def _task_ref(self, task: str) -> str:
        assert self._settings is not None
        return task_ref(self._settings.key, task)


def _methods_of(config: GatewayConfig) -> frozenset[str]:
    """The methods of extensions that spans may be called by: those that are known, and those that are carried."""
    return KNOWN_METHODS | extension_methods(config)
