"""Log lines about hosts that were not let in, or that look for what is not theirs, and the address they came from.

What must not live here: counting for metrics (`telemetry/events`), and what a host is told. What holds: nothing of a
request but its address is in a line; a flood of one kind is one line a second, which says how many it stands for.
"""

from logging import INFO, WARNING, getLogger
from typing import Final

from taskgate.clock import Clock
from taskgate.streams.exchange import Exchange

PAUSE: Final = 1.0
"""Seconds between two lines of one kind."""

log = getLogger("taskgate.security")


class Incidents:
    """Tells operators. `left_out` of a line is how many of its kind came since the line before it and got none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Kinds are of a closed set, so this does not grow.
        self._told: dict[str, tuple[float, int]] = {}

    def unidentified(self, exchange: Exchange, mount: str, reason: str) -> None:
        """A request was refused for who asks; `reason` is an AuthReason or that of KeysUnavailable."""
        if self._is_due(reason):
            extra = {
                "reason": reason,
                "upstream": mount,
                "address": exchange.address,
                "left_out": self._restart(reason),
            }
            log.log(INFO, "a request was refused: its caller could not be authenticated", extra=extra)

    def enumerating(self, exchange: Exchange, mount: str) -> None:
        """A caller was put into the penalty box."""
        kind = "enumeration_suspected"
        if self._is_due(kind):
            extra = {"upstream": mount, "address": exchange.address, "left_out": self._restart(kind)}
            log.log(WARNING, "a caller is penalized: too many look-ups of unknown tasks", extra=extra)

    def _is_due(self, kind: str) -> bool:
        """Whether a line of that kind may be written; counted where not."""
        if kind in self._told:
            at, left_out = self._told[kind]
            if self._clock.elapsed() - at < PAUSE:
                self._told[kind] = (at, left_out + 1)
                return False
        return True

    def _restart(self, kind: str) -> int:
        _, left_out = self._told.get(kind, (0.0, 0))
        self._told[kind] = (self._clock.elapsed(), 0)
        return left_out
