"""Metrics with a ring of their own, for tests that emit to them directly."""

from typing import Any

from taskgate.telemetry.metrics.prometheus import PrometheusRecorder
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.telemetry.ring import EventRing


class EmittingMetrics(PrometheusRecorder):
    """A recorder whose `emit` takes an event as the gateway's ring would; a page shows it."""

    def __init__(self, config: MetricsConfig, **how: Any) -> None:
        event_sink = EventRing(how.get("clock"))
        super().__init__(config, event_sink, **how)
        self.emit = event_sink.emit
