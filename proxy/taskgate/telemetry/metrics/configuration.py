"""What is shown of the configuration: which one is in force, and whether the last attempt at another did anything."""

from typing import Final

from taskgate.clock import Clock
from taskgate.telemetry import events
from taskgate.telemetry.metrics import message_families
from taskgate.telemetry.metrics.registry import Registry
from taskgate.telemetry.metrics.series import Takers

_REFUSED: Final = "invalid"


class Configuration:
    """The families about it. `clock` tells the time of day."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._clock = clock
        self._loaded = registry.gauge(message_families.CONFIG_LOADED)[()]
        self._loaded_at = registry.gauge(message_families.CONFIG_LOADED_AT)[()]
        self._hash = registry.gauge(message_families.CONFIG_HASH)[()]
        self._reloads = registry.counter(message_families.CONFIG_RELOADS)

    def recorders(self) -> Takers:
        """For the events about it."""
        return {events.ConfigReloaded: self._reloaded}

    def begin(self, fingerprint: int) -> None:
        """The gateway begins with that one."""
        self._loaded.set(1)
        self._loaded_at.set(self._clock.now().timestamp())
        self._hash.set(fingerprint)

    def _reloaded(self, event: events.ConfigReloaded) -> None:
        self._reloads[event.result,].inc()
        if event.result == _REFUSED:
            self._loaded.set(0)
        else:
            # What needs a restart waits for it; all the rest is in force.
            self.begin(event.fingerprint)
