"""Security alerts for operators: `SecurityAlerts` emits events, `SecurityLog` writes log lines.

Code that detects an attack or a probe calls them: authentication, look-ups of tasks, rate limits.
Both are throttled, because attackers decide how often they are triggered. Of a request a line has
its address and its mount, and no other text that the sender chose. Audiences of a token are shown
if an issuer has signed them.
"""

from collections import OrderedDict, defaultdict
from logging import INFO, WARNING, getLogger
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.errors import KeysUnavailable, Unauthenticated
from taskgate.streams.exchange import Exchange
from taskgate.system.log_throttle import Throttle
from taskgate.telemetry.events import EventSink, SuspicionRaised

ALERT_PAUSE: Final = 60.0
"""Seconds in which an alert of one kind about one caller is emitted once."""
REMEMBERED: Final = 4096
"""Alerts that are remembered; of more, the oldest is forgotten and may be emitted again."""
LOG_PAUSE: Final = 1.0
"""Seconds between two lines of one kind."""

log = getLogger("taskgate.security")


class SecurityAlerts:
    """The emitter of SuspicionRaised events. Each detector has one of its own, for its kinds of alerts."""

    def __init__(self, event_sink: EventSink, clock: Clock, *, size: int = REMEMBERED) -> None:
        self._event_sink = event_sink
        self._clock = clock
        self._size = size
        # The time of each alert, the oldest first.
        self._raised: OrderedDict[tuple[str, str], float] = OrderedDict()

    def raise_once(self, kind: str, who: str, mount: str) -> None:
        """Emit an alert of a SuspicionRaised kind, unless the same one was emitted within
        ALERT_PAUSE.

        `who` is the key of a context, or an address if no more is known; it stays in this object.
        """
        now, alert = self._clock.elapsed(), (kind, who)
        raised = self._raised.get(alert)
        if raised is not None and now - raised < ALERT_PAUSE:
            return
        if raised is None and len(self._raised) >= self._size:
            self._raised.popitem(last=False)
        self._raised[alert] = now
        self._raised.move_to_end(alert)
        self._event_sink.emit(SuspicionRaised(kind, mount))


class SecurityLog:
    """The writer of log lines, at most one of a kind in LOG_PAUSE seconds.

    `left_out` in a line is the number of lines of its kind that were suppressed before it.
    """

    def __init__(self, clock: Clock) -> None:
        # By kind; the kinds are a closed set.
        self._throttles = defaultdict[str, Throttle](lambda: Throttle(LOG_PAUSE, clock.elapsed))

    def log_unauthenticated(self, exchange: Exchange, mount: str, refusal: Unauthenticated | KeysUnavailable) -> None:
        """Log a refused request, with what its token should have had and has, if that is known."""
        reason = refusal.reason
        left_out = self._throttles[reason].take()
        if left_out is not None:
            extra: dict[str, Any] = {
                "reason": reason,
                "upstream": mount,
                "address": exchange.address,
                "left_out": left_out,
            }
            if isinstance(refusal, Unauthenticated) and refusal.expected:
                extra |= {"issuer": refusal.issuer, "expected": refusal.expected, "found": refusal.found}
            log.log(INFO, "a request was refused: its caller could not be authenticated", extra=extra)

    def log_enumeration(self, exchange: Exchange, mount: str) -> None:
        """Log that a caller got a penalty."""
        left_out = self._throttles["enumeration_suspected"].take()
        if left_out is not None:
            extra = {"upstream": mount, "address": exchange.address, "left_out": left_out}
            log.log(WARNING, "a caller is penalized: too many look-ups of unknown tasks", extra=extra)
