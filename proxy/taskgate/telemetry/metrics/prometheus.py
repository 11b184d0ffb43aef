"""The reader of events for metrics: `PrometheusRecorder`, which counts them and serves the page.

Each type of events has its recorder, a function that counts one. Recorders and families are in the
module of their subject. The page is the whole text that a scraper gets.
"""

import asyncio
import logging
import platform
import time
from typing import Final

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector

from taskgate import __version__
from taskgate.clock import Clock, SystemClock
from taskgate.telemetry import events
from taskgate.telemetry.events import Event
from taskgate.telemetry.metrics import admission, gateway, requests, storage, tasks, upstreams
from taskgate.telemetry.metrics.catalogue import FAMILIES
from taskgate.telemetry.metrics.families import Family
from taskgate.telemetry.metrics.registry import ReadGauge, Registry
from taskgate.telemetry.metrics.settings import MetricsConfig
from taskgate.telemetry.ring import EventRing

_log = logging.getLogger(__name__)

_STATES: Final = frozenset(
    {
        events.StreamOpened,
        events.StreamEnded,
        events.ConcurrencyChanged,
        events.UpstreamAdded,
        events.CircuitChanged,
        events.HealthChecked,
        events.ProgramAvailabilityChanged,
        events.ProgramsCounted,
        events.KeysFetched,
        events.StoreCounted,
        events.StoreFaulted,
        events.ConfigReloaded,
    }
)
"""Events with a present state. They count while metrics are off as well, since they come only once."""

_COUNTED: Final = frozenset(
    {
        events.RateLimitAllowed,
        events.TokenRecognized,
        events.ToolCalled,
        events.TaskPolled,
        events.AuditEventRecorded,
    }
)
"""Events that nearly every request has, and that are equal for most: they are counted by number."""

_WATCHED: Final = (
    requests.ACTIVE_REQUESTS,
    tasks.RUNNING,
    tasks.OLDEST,
    tasks.POLL_INTERVAL,
    upstreams.IN_FLIGHT,
    upstreams.STATE,
    admission.PENALIZED,
    admission.RATE_WAITING,
    storage.AUDIT_QUEUE_DEPTH,
    storage.AUDIT_SEQUENCE,
)
"""Gauges that other parts of the gateway know; they register by `watch`."""

_NAP_SECONDS: Final = 0.0005
"""Long enough that a thread which waits for the interpreter gets it; a mere yield often does not."""


class PrometheusRecorder:
    """The reader that counts events, and writes the page for scrapers.

    It lives as long as the gateway, and counts each event of `event_sink`, at the latest before it
    writes a page. `adopt` follows each reload of the configuration, and `scrape` answers a scraper.
    While metrics are off, only events with a present state count (`_STATES`), so that gauges are
    right when metrics are turned on.

    A mount, issuer, rate policy or sink that is not in `config` becomes `_OTHER`. `revision` is that
    of the source that was built.
    """

    def __init__(
        self, config: MetricsConfig, event_sink: EventRing, *, revision: str = "unknown", clock: Clock | None = None
    ) -> None:
        self._event_sink = event_sink
        self._registry = registry = Registry(FAMILIES)
        registry.adopt(config)
        self._clock = clock = clock or SystemClock()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry.standard)
        registry.gauge(gateway.BUILD)[__version__, revision, platform.python_version()].value = 1
        self._ready = registry.gauge(gateway.READY)[()]
        self._draining = registry.gauge(gateway.DRAINING)[()]
        self._lag = registry.histogram(gateway.LAG)
        self._configuration = gateway.ConfigurationRecorder(registry, event_sink)
        self._concurrency = admission.ConcurrencyRecorder(registry)
        callers = admission.ActiveCallers(clock, event_sink)
        for family in _WATCHED:
            registry.gauge(family)
        registry.watch(admission.ACTIVE, lambda: {(): callers.active()})
        registry.watch(admission.SATURATED, lambda: {(): callers.saturated()})
        self._recorders = (
            requests.request_recorders(registry, callers, event_sink),
            tasks.task_recorders(registry),
            tasks.task_end_recorders(registry),
            tasks.poll_recorders(registry),
            upstreams.upstream_recorders(registry, event_sink),
            admission.limit_recorders(registry),
            self._concurrency.recorders(),
            admission.key_recorders(registry, event_sink),
            admission.access_recorders(registry),
            storage.store_recorders(registry, config.backend, self._concurrency.set_unfinished),
            storage.audit_recorders(registry),
            self._configuration.recorders(),
            callers.recorders(),
        )
        self._adopt(config)

    @property
    def path(self) -> str | None:
        """The path of the page; None while metrics are off."""
        settings = self._settings
        return settings.path if settings.enabled else None

    def note_failure(self, event: Event) -> None:
        _log.exception("an event was not counted in metrics", extra={"fact": type(event).__name__})

    def show_ready(self, ready: bool) -> None:
        """Show whether the gateway was ready at the last probe or scrape."""
        self._ready.value = ready

    def show_draining(self) -> None:
        """Show that the gateway shuts down, and so is not ready."""
        self._draining.value = 1
        self._ready.value = 0

    def adopt(self, config: MetricsConfig) -> None:
        """Use these names, limits and settings from now on; of names that are gone, counters stay.

        A family restarts at 0 if the settings give its labels other tenants, fewer tools, or tools
        for the first time. It does so for other buckets, too.
        """
        self._event_sink.fold()
        self._registry.adopt(config)
        self._adopt(config)

    def show_configuration(self, fingerprint: int) -> None:
        """Show the configuration at the start; for later ones there are events."""
        self._configuration.loaded(fingerprint, self._clock.now())

    def observe_lag(self, seconds: float) -> None:
        """Count a lag of the event loop."""
        self._lag[()].observe(seconds)

    def watch(self, family: Family, read: ReadGauge) -> None:
        """Show in a gauge family what `read` returns at each scrape: numbers by the label values.

        A series that it does not return is not shown. It runs on the event loop, so it must be fast.
        """
        self._registry.watch(family, read)

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """The page and its content type; `accept` is the header of the scraper."""
        self._event_sink.fold()
        self._registry.read_gauges()
        return self._registry.write(accept, _no_pause)

    async def scrape(self, accept: str | None) -> tuple[bytes, str]:
        """As `render`, on another thread, which leaves the interpreter to the event loop often."""
        self._event_sink.fold()
        self._registry.read_gauges()
        return await asyncio.to_thread(self._registry.write, accept, _nap)

    def _adopt(self, config: MetricsConfig) -> None:
        """Subscribe with the recorders that count while metrics are on, or off."""
        self._settings = config.settings
        self._concurrency.adopt(config)
        counts = config.settings.enabled
        # A call by its tenant has to know its request.
        counted = _COUNTED if config.settings.tenants is None else _COUNTED - {events.ToolCalled}
        wanted = [
            {event: recorder for event, recorder in part.items() if counts or event in _STATES}
            for part in self._recorders
        ]
        self._event_sink.subscribe(self, *wanted)
        counters = {event: count for part in wanted for event, count in part.items() if event in counted}
        self._event_sink.count(self, counters)


def _no_pause() -> None:
    pass


def _nap() -> None:
    time.sleep(_NAP_SECONDS)
