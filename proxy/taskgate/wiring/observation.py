"""The telemetry of one gateway: `TelemetryPipeline`, with metrics, audit log and tracing.

`Service` opens it before whatever emits events and closes it after that, so that no event is lost.
The three read the events of its `event_sink`. `begin`, `wind_down` and `end` report the phases
of the gateway. A reload calls `prepare`, then `switch` or `discard`. `telemetry` implements the
parts; `config` and `auditing` make their settings.
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
from taskgate.telemetry.events import AuditCapacity, EventFanout, GatewayPhaseChanged
from taskgate.telemetry.metrics.prometheus import PrometheusRecorder
from taskgate.telemetry.metrics.storage import AUDIT_QUEUE_DEPTH, AUDIT_SEQUENCE
from taskgate.telemetry.opentelemetry.setup import open_tracing
from taskgate.telemetry.span_annotations import SpanAnnotator
from taskgate.telemetry.tracing import NO_TRACING, Tracing
from taskgate.wiring.auditing import audit_settings


class Next(NamedTuple):
    """The telemetry of another configuration, not in effect yet.

    `is_new` is whether the settings of the audit log differ from the present ones.
    """

    config: GatewayConfig
    settings: AuditSettings
    prepared: PreparedSinks
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
        self._methods = _methods_of(config)
        self.event_sink = EventFanout()
        self.metrics = PrometheusRecorder(metrics_config(config), self.event_sink, clock=clock)
        self.tracing: Tracing = NO_TRACING

    @property
    def trail(self) -> AuditCapacity | None:
        """The room for requests in the audit log; None before `open`."""
        return None if self._log is None else self._log.capacity

    async def open(self, config: GatewayConfig) -> None:
        """Open the audit log and tracing. Raises KeyFileRefused, AuditUnavailable or
        TracingUnavailable.
        """
        self._settings = settings = await asyncio.to_thread(self._audit_settings, config)
        log_ = AuditLog(settings, event_sink=self.event_sink, clock=self._clock)
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
            SpanAnnotator(self.event_sink)
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

    async def prepare(self, config: GatewayConfig) -> Next:
        """Prepare the telemetry of another configuration, for `switch` or `discard`.

        Raises KeyFileRefused or AuditUnavailable; nothing has changed then.
        """
        assert self._log is not None, "open() comes before prepare()"
        settings = await asyncio.to_thread(self._audit_settings, config)
        return Next(config, settings, await self._log.prepare(settings), settings != self._settings)

    async def discard(self, other: Next) -> None:
        """Close what was prepared and will not take effect."""
        if self._log is not None:
            await self._log.discard(other.prepared)

    def switch(self, other: Next) -> None:
        """Apply what was prepared."""
        assert self._log is not None
        self._settings = other.settings
        self._log.switch(other.prepared)
        self._methods = _methods_of(other.config)
        self.metrics.adopt(metrics_config(other.config))

    def reopen(self) -> None:
        """Close the audit files and open those that have their names now, after a log rotation."""
        if self._log is not None:
            self._log.reopen()

    async def close(self) -> None:
        """Write all events, and send what can be sent at once."""
        await self.tracing.close()
        if self._log is not None:
            await self._log.close()

    def _emit_phase(self, phase: str) -> None:
        self.event_sink.emit(GatewayPhaseChanged(phase, __version__, self._fingerprint))

    def _audit_settings(self, config: GatewayConfig) -> AuditSettings:
        return audit_settings(config, self._data_directory, self._entropy, before=self._settings)

    def _task_ref(self, task: str) -> str:
        assert self._settings is not None
        return task_ref(self._settings.key, task)


def _methods_of(config: GatewayConfig) -> frozenset[str]:
    """Return the methods of extensions that may name a span: the known and the forwarded ones."""
    return KNOWN_METHODS | extension_methods(config)
