"""What operators are told once of somebody who behaves as an attacker would, however often it goes on.

What must not live here: what is suspicious, which whoever notices it knows, and what is told of it (`telemetry`).
"""

from collections import OrderedDict
from typing import Final

from taskgate.clock import Clock
from taskgate.telemetry.events import EventSink, SuspicionRaised

PAUSE: Final = 60.0
"""Seconds within which the same of the same one is told once."""
REMEMBERED: Final = 4096
"""Those who were told of; the one told of longest ago is forgotten first, and may be told of again."""


class Suspicions:
    """Tells of them. Whoever can suspect has one of its own, of the kinds that it alone notices."""

    def __init__(self, event_sink: EventSink, clock: Clock, *, size: int = REMEMBERED) -> None:
        self._event_sink = event_sink
        self._clock = clock
        self._size = size
        # When each was told of, the one longest ago in front.
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()

    def raise_once(self, kind: str, who: str, mount: str) -> None:
        """Tell that somebody is suspected of `kind` (see SuspicionRaised), unless that was told within PAUSE.

        `who` is the key of a context, or an address where no more is known; it goes no further than here.
        """
        now, about = self._clock.elapsed(), (kind, who)
        told = self._told.get(about)
        if told is not None and now - told < PAUSE:
            return
        if told is None and len(self._told) >= self._size:
            self._told.popitem(last=False)
        self._told[about] = now
        self._told.move_to_end(about)
        self._event_sink.emit(SuspicionRaised(kind, mount))
