"""Metrics of the gateway process and its configuration: families, the recorder of reloads, and `LoopLag`."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from taskgate.telemetry import events
from taskgate.telemetry.metrics import labels
from taskgate.telemetry.metrics.families import counter, gauge, histogram
from taskgate.telemetry.metrics.registry import OVERFLOWS, Recorders, Registry
from taskgate.telemetry.ring import EventRing

_LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

BUILD = gauge("taskgate_build_info", "The running build; always 1.", labels.VERSION, labels.REVISION, labels.PYTHON)
READY = gauge("taskgate_ready", "1 if the gateway was ready at the last probe or scrape.")
DRAINING = gauge("taskgate_draining", "1 from the moment that the gateway starts to shut down.")
LAG = histogram("taskgate_event_loop_lag_seconds", "Delay of a ticker of 250 ms.", _LAG_SECONDS)

CONFIG_LOADED = gauge("taskgate_config_last_reload_successful", "1 if the last read of the configuration succeeded.")
CONFIG_LOADED_AT = gauge(
    "taskgate_config_last_reload_success_timestamp_seconds",
    "When a configuration was last taken over; 0 before the first.",
)
CONFIG_HASH = gauge(
    "taskgate_config_hash",
    "A number of 48 bits, equal for equal configurations, without paths and addresses to listen on.",
)
CONFIG_RELOADS = counter(
    "taskgate_config_reloads_total", "Times that the configuration was read again.", labels.RELOAD_RESULT
)

FAMILIES: Final = (
    BUILD, READY, DRAINING, LAG, OVERFLOWS, CONFIG_LOADED, CONFIG_LOADED_AT, CONFIG_HASH, CONFIG_RELOADS,
)  # fmt: skip


class ConfigurationRecorder:
    """The recorder of the configuration in force and of attempts to reload it."""

    def __init__(self, registry: Registry, ring: EventRing) -> None:
        self._ring = ring
        self._loaded = registry.gauge(CONFIG_LOADED)[()]
        self._loaded_at = registry.gauge(CONFIG_LOADED_AT)[()]
        self._hash = registry.gauge(CONFIG_HASH)[()]
        self._reloads = registry.counter(CONFIG_RELOADS)

    def recorders(self) -> Recorders:
        return {events.ConfigReloaded: self._config_reloaded}

    def loaded(self, fingerprint: int, at: datetime) -> None:
        """Show that the configuration with this fingerprint is in force."""
        self._loaded.value = 1
        self._loaded_at.value = at.timestamp()
        self._hash.value = fingerprint

    def _config_reloaded(self, event: events.ConfigReloaded) -> None:
        self._reloads[event.result,].value += 1
        if event.result == "invalid":
            self._loaded.value = 0
        else:
            # After `needs_restart`, all but the keys that need it is in force.
            self.loaded(event.fingerprint, self._ring.now)


# --- the lag of the event loop ---------------------------------------------------------------------------------------


PERIOD: Final = 0.25
"""Seconds between two ticks: often enough to notice a stall, too seldom to be a load."""


class LoopLag:
    """A ticker on the running loop that calls `observe` with the seconds that each tick is late.

    It is a timer and not a task: there is nothing to await, and `stop` leaves nothing behind.
    """

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start ticking on the running loop; without effect when already started."""
        if self._timer is None:
            self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop ticking; without effect when not started. `start` may be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + PERIOD
        self._timer = loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        # A loop runs all timers of one clock tick together, so a tick may come slightly early.
        self._observe(max(0.0, loop.time() - due))
        self._schedule(loop)
