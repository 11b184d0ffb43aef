"""From events to metrics: which event moves which family of the catalogue.

One short function an event, found by the event's type, in the modules named for what they take. What a family is called
stands in `catalogue`, what its labels may be in `labels`; how a series is kept, in `series`.
"""

import asyncio
import logging
import platform
import time
from collections.abc import Callable
from typing import Any, Final

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector

from taskgate import __version__
from taskgate.clock import Clock, SystemClock
from taskgate.telemetry import events
from taskgate.telemetry.metrics import limit_families, message_families, server_families, store_families
from taskgate.telemetry.metrics.access_recorders import access_takers, key_takers
from taskgate.telemetry.metrics.configuration import Configuration
from taskgate.telemetry.metrics.contexts import Contexts
from taskgate.telemetry.metrics.families import Family
from taskgate.telemetry.metrics.limit_recorders import Concurrency, limit_takers
from taskgate.telemetry.metrics.message_recorders import Exemplars, http_takers, message_takers
from taskgate.telemetry.metrics.registry import Look, Registry
from taskgate.telemetry.metrics.series import Takers
from taskgate.telemetry.metrics.settings import Configured
from taskgate.telemetry.metrics.store_recorders import store_takers, trail_takers
from taskgate.telemetry.metrics.task_recorders import ending_takers, look_takers, task_takers
from taskgate.telemetry.metrics.upstream_recorders import upstream_takers

_log = logging.getLogger(__name__)

_UNCOUNTED: Final = (
    events.BatchItemAnswered,
    events.InputRequestOpened,
    events.OperatorRequestAnswered,
    events.GatewayPhaseChanged,
    events.RateFallbackUsed,
)
"""Events for the audit log alone."""

_STATES: Final = frozenset(
    {
        events.StreamOpened,
        events.StreamEnded,
        events.CallsRunning,
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
        events.PollAdvised,
    }
)
"""Events that say how something is now: they are taken even while nobody is shown anything, as they come but once."""

_WATCHED: Final = (
    message_families.ACTIVE_REQUESTS,
    server_families.IN_FLIGHT,
    limit_families.PENALIZED,
    store_families.AUDIT_QUEUE_DEPTH,
    store_families.AUDIT_SEQUENCE,
)
"""What somebody else counts: `watch` says who."""

_NAP_SECONDS: Final = 0.0005
"""Long enough that whoever waits for the interpreter gets it: a thread that only offers it often has it back first."""


class PrometheusRecorder:
    """Counts events, and shows the counts.

    A mount, an issuer, a rate policy or a sink that `configured` does not name is `_OTHER`. `revision` names the source
    that was built.
    """

    def __init__(self, configured: Configured, *, revision: str = "unknown", clock: Clock | None = None) -> None:
        self._registry = registry = Registry()
        registry.adopt(configured)
        clock = clock or SystemClock()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry.standard)
        registry.gauge(message_families.BUILD)[__version__, revision, platform.python_version()].set(1)
        self._ready = registry.gauge(message_families.READY)[()]
        self._draining = registry.gauge(message_families.DRAINING)[()]
        self._lag = registry.histogram(message_families.LAG)
        self._configuration = Configuration(registry, clock)
        self._concurrency = Concurrency(registry)
        self._exemplars = Exemplars()
        contexts = Contexts(clock)
        for family in _WATCHED:
            registry.gauge(family)
        registry.watch(limit_families.ACTIVE, lambda: {(): contexts.active()})
        registry.watch(limit_families.SATURATED, lambda: {(): contexts.saturated()})
        self._all = _joined(
            http_takers(registry, contexts),
            message_takers(registry, self._exemplars, contexts),
            task_takers(registry),
            ending_takers(registry),
            look_takers(registry),
            upstream_takers(registry),
            limit_takers(registry),
            self._concurrency.recorders(),
            key_takers(registry, clock),
            access_takers(registry),
            store_takers(registry, configured.backend, self._concurrency.count_unfinished),
            trail_takers(registry),
            self._configuration.recorders(),
            contexts.recorders(),
            dict.fromkeys(_UNCOUNTED, _pass_over),
        )
        self._recorders: Takers = {}
        self._adopt(configured)

    @property
    def path(self) -> str | None:
        """Where the page is to be had; None where it is not."""
        settings = self._settings
        return settings.path if settings.enabled else None

    def emit(self, event: events.Event) -> None:
        """Count an event. Never raises, never waits."""
        try:
            self._recorders[type(event)](event)
        except Exception:
            _log.exception("an event was not counted in metrics", extra={"fact": type(event).__name__})

    def show_ready(self, ready: bool) -> None:
        """Show what the gateway last said of itself."""
        self._ready.set(ready)

    def show_draining(self) -> None:
        """Show that the gateway is shutting down: it is not ready from here on."""
        self._draining.set(1)
        self._ready.set(0)

    def adopt(self, configured: Configured) -> None:
        """Take these names, limits and settings from now on: of names that are gone only the counters stay.

        A family whose buckets changed, or the labels that it may have, begins again from 0.
        """
        self._registry.adopt(configured)
        self._adopt(configured)

    def show_configuration(self, fingerprint: int) -> None:
        """Show the configuration that the gateway begins with; every later one is an event."""
        self._configuration.begin(fingerprint)

    def observe_lag(self, seconds: float) -> None:
        """Count how late the event loop came to something."""
        self._lag[()].observe(seconds)

    def watch(self, family: Family, look: Look) -> None:
        """Show in a gauge what `look` says at each scrape: a number by what stands for the labels.

        What it does not name is not shown. It is asked on the event loop, so it must be quick.
        """
        self._registry.watch(family, look)

    def render(self, accept: str | None) -> tuple[bytes, str]:
        """Everything as a scrape wants it, and its content type; `accept` is the scraper's header."""
        self._registry.look()
        return self._registry.write(accept, _go_on)

    async def scrape(self, accept: str | None) -> tuple[bytes, str]:
        """The same beside the event loop, which waits for a millisecond at a time and not for all of it."""
        self._registry.look()
        return await asyncio.to_thread(self._registry.write, accept, _nap)

    def _adopt(self, configured: Configured) -> None:
        self._settings = configured.settings
        self._concurrency.adopt(configured)
        self._exemplars.adopt(configured.settings)
        counts = configured.settings.enabled
        self._recorders = {
            event: take if counts or event in _STATES else _pass_over for event, take in self._all.items()
        }


def _joined(*parts: Takers) -> Takers:
    """One taker for each event: where several parts want it, each gets it in turn."""
    found: Takers = {}
    for part in parts:
        for event, take in part.items():
            found[event] = _both(found[event], take) if event in found else take
    return found


def _both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    def take(event: Any) -> None:
        first(event)
        second(event)

    return take


def _pass_over(_event: Any) -> None:
    pass


def _go_on() -> None:
    pass


def _nap() -> None:
    time.sleep(_NAP_SECONDS)
