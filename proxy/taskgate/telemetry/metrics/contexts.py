"""How many callers there are, and how many of them are at a cap of their own; never who.

What is remembered is bounded: the callers of the last minutes, by their keys, and of them no more than a number. What
must not live here: what a cap is, and what becomes of whoever is at one. For one thread.
"""

from typing import Final, TypeVar

from taskgate.clock import Clock
from taskgate.domain.limits import CapScope
from taskgate.telemetry import events, request_context
from taskgate.telemetry.metrics.series import Takers

ACTIVE_SECONDS: Final = 300.0
"""How long a caller counts after it asked for something, or was refused by a cap, for the last time.

Of those who ask all the time that is up to `OFTEN` too short.
"""

OFTEN: Final = 1.0
"""Seconds for which a caller that asks again and again is not noted anew."""

MOST: Final = 100_000
"""How many callers are remembered; beyond that those who asked longest ago are not counted."""

Key = TypeVar("Key")

_TASKS, _BYTES, _SESSIONS, _STREAMS = "tasks", "bytes", "sessions", "streams"


class Contexts:
    """Listens to events, and counts whose visits they are of."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._active: dict[str, float] = {}
        self._saturated: dict[tuple[str, str], float] = {}

    def active(self) -> int:
        """How many callers asked for something in the last five minutes."""
        self._forget_older(self._active)
        return len(self._active)

    def saturated(self) -> int:
        """How many were refused by a cap of their own since then, and have not been below it after that."""
        self._forget_older(self._saturated)
        return len({caller for caller, _ in self._saturated})

    def asked(self) -> None:
        """The caller whose visit it is asked for something."""
        here = request_context.current()
        if here is not None and here.caller is not None:
            key = here.caller.key
            if self._clock.elapsed() - self._active.get(key, -OFTEN) >= OFTEN:
                self._note(self._active, key)

    def opened(self) -> None:
        """It opened a session; nothing else tells that another of its sessions has ended."""
        if (caller := _caller()) is not None:
            self._saturated.pop((caller, _SESSIONS), None)

    def recorders(self) -> Takers:
        """For the events that tell of callers, of tasks that are theirs, and of what they hold.

        Those that every request has are taken for it by others.
        """
        return {
            events.CapRefused: self._refused,
            events.TaskFinished: self._finished,
            events.TaskPurged: self._purged,
            events.StreamEnded: self._stream_ended,
        }

    def _refused(self, event: events.CapRefused) -> None:
        if event.scope == CapScope.CONTEXT and (caller := _caller()) is not None:
            self._note(self._saturated, (caller, event.cap))

    def _finished(self, event: events.TaskFinished) -> None:
        self._saturated.pop((event.task.owner.context, _TASKS), None)

    def _purged(self, event: events.TaskPurged) -> None:
        self._saturated.pop((event.task.owner.context, _BYTES), None)

    def _stream_ended(self, event: events.StreamEnded) -> None:
        if event.side == "downstream" and (caller := _caller()) is not None:
            self._saturated.pop((caller, _STREAMS), None)

    def _note(self, table: dict[Key, float], key: Key) -> None:
        # The youngest stand last, so that the oldest are found at once.
        table.pop(key, None)
        table[key] = self._clock.elapsed()
        if len(table) > MOST:
            del table[next(iter(table))]

    def _forget_older(self, table: dict[Key, float]) -> None:
        oldest = self._clock.elapsed() - ACTIVE_SECONDS
        while table and table[first := next(iter(table))] < oldest:
            del table[first]


def _caller() -> str | None:
    here = request_context.current()
    return None if here is None or here.caller is None else here.caller.key
