"""Metrics with a fanout of their own, for tests that emit to them directly."""

from typing import Any

from taskgate.telemetry.events import EventFanout
from taskgate.telemetry.metrics.prometheus import PrometheusRecorder
from taskgate.telemetry.metrics.settings import MetricsConfig


class EmittingMetrics(PrometheusRecorder):
    """A recorder whose `emit` counts an event as the gateway's fanout would."""

    def __init__(self, config: MetricsConfig, **how: Any) -> None:
        event_sink = EventFanout()
        super().__init__(config, event_sink, **how)
        self.emit = event_sink.emit
