"""The health of the store: `StoreHealth`. It remembers a fault until a check finds that it is over.

`MeasuredStore` calls `failed` after each failed operation. While `wants_check`, its periodic check
(from the sweeper) writes a test value, and calls `recovered` if that succeeds. The log says once
what is wrong and what to do, and once that it is over.
"""

from logging import getLogger
from typing import Final

from taskgate.clock import Clock
from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.telemetry.events import EventSink, StoreFaulted

CALM: Final = 6.0
"""Seconds without a failure before the store is checked. Longer than the pause between two attempts
to write a final state."""
QUIET: Final = 60.0
"""Seconds in which a returning fault is not logged again."""

_TOLD: Final = {
    StoreFault.DISK_FULL: "the disk is full; free some space",
    StoreFault.SIZE_LIMIT: "its file has reached store.sqlite.max_size; raise that, or shorten the lifetime of tasks",
    StoreFault.READ_ONLY: "its file is not writable; mount the file system writable, or restore the file's permissions",
    StoreFault.IO_ERROR: "the disk reports I/O errors; see the system log",
    StoreFault.DAMAGED: "its file is damaged; stop the gateway and put a backup in its place",
    StoreFault.LOCKED: "another program has locked its file; stop that program",
    StoreFault.FILE_GONE: "its file was removed or replaced; put it back, or stop the gateway and restore a backup",
}

log = getLogger("taskgate.stores")


class StoreHealth:
    """The known fault of one store. For one thread."""

    def __init__(self, *, event_sink: EventSink, clock: Clock) -> None:
        self._event_sink = event_sink
        self._clock = clock
        self._failed_at = 0.0
        self._logged: dict[StoreFault, float] = {}
        self.fault: StoreFault | None = None
        """The present fault; None if none is known."""

    @property
    def wants_check(self) -> bool:
        """Whether there was a fault, and nothing failed lately."""
        return self.fault is not None and self._clock.elapsed() - self._failed_at >= CALM

    def failed(self, error: StoreUnavailable) -> None:
        """Handle a failed operation. An error without a `fault` says nothing about the whole store."""
        fault, now = error.fault, self._clock.elapsed()
        if fault is None:
            return
        self._failed_at = now
        if fault is self.fault:
            return
        self._set(fault)
        if now - self._logged.get(fault, -QUIET) >= QUIET:
            code = getattr(error.__cause__, "sqlite_errorname", "")
            told = {"fault": fault.value, "error": code}
            log.error("The task store does not work and no task can be created: %s", _TOLD[fault], extra=told)
            self._logged[fault] = now

    def recovered(self) -> None:
        """Handle that a check succeeded."""
        if self.fault is not None:
            fault = self.fault.value
            self._set(None)
            log.warning("The task store works again", extra={"fault": fault})

    def _set(self, fault: StoreFault | None) -> None:
        self.fault = fault
        self._event_sink.emit(StoreFaulted(fault))
