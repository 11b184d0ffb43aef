"""The circuit breaker of one server: `CircuitBreaker`, closed, open or half open.

Closed, every request passes, and enough failures within a window open it. Open, none passes until
its time is up. Then it is half open: a few requests may try, one that succeeds closes it, one that
fails opens it again. The caller decides what a failure is. Times are seconds of a monotonic clock.

Before each request the caller takes `number` from a closed breaker, and asks any other for a `trial`.
It reports how the request ended exactly once. The state changes only within these calls, and in
`open` and `close`.
"""

from collections import deque
from enum import StrEnum


class CircuitState(StrEnum):
    """The states of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """A breaker that `failures` within `window` open for `open_for`; then `half_open` trials pass.

    A request passes with a number, and ends with `succeeded`, `failed`, or `abandoned` if its outcome
    stays unknown. Outcomes of requests from before the last change of state do not count. A trial
    without an outcome for `open_for` frees its place, so lost trials block nothing.
    """

    __slots__ = (
        "_failed", "_failures", "_first", "_half_open", "_open_for", "_trials", "_until", "_window", "number", "state",
    )  # fmt: skip

    def __init__(self, *, failures: int, window: float, open_for: float, half_open: int) -> None:
        self._failures = failures
        self._window = window
        self._open_for = open_for
        self._half_open = half_open
        self._failed: deque[float] = deque(maxlen=failures)
        self._until = 0.0
        self._trials: dict[int, float] = {}
        # The first number since the last change of state.
        self._first = 0
        self.number = 0
        """The number of every request that passes while the breaker is closed."""
        self.state = CircuitState.CLOSED

    def trial(self, now: float) -> int | None:
        """Let a request pass although the breaker is not closed, and return a number of its own.

        None if it must not be sent. The first call after the time of an open breaker makes it half
        open.
        """
        if self.state is CircuitState.OPEN:
            if now < self._until:
                return None
            self._switch(CircuitState.HALF_OPEN)
        for number, since in tuple(self._trials.items()):
            if now - since >= self._open_for:
                del self._trials[number]
        if len(self._trials) >= self._half_open:
            return None
        self.number += 1
        self._trials[self.number] = now
        return self.number

    def retry_after(self, now: float) -> float:
        """Seconds until a request may pass, as far as is known; 0 if one may pass now."""
        match self.state:
            case CircuitState.OPEN:
                return max(self._until - now, 0.0)
            case CircuitState.HALF_OPEN if len(self._trials) >= self._half_open:
                return max(min(self._trials.values()) + self._open_for - now, 0.0)
        return 0.0

    def succeeded(self, number: int) -> None:
        """Count the request as a success."""
        self._trials.pop(number, None)
        if number >= self._first and self.state is CircuitState.HALF_OPEN:
            self.close()

    def failed(self, number: int, now: float) -> None:
        """Count the request as a failure of the server."""
        self._trials.pop(number, None)
        if number < self._first:
            return
        if self.state is CircuitState.HALF_OPEN:
            self.open(now)
            return
        self._failed.append(now)
        if len(self._failed) == self._failures and now - self._failed[0] <= self._window:
            self.open(now)

    def abandoned(self, number: int) -> None:
        """Free the place of a request whose outcome stays unknown."""
        self._trials.pop(number, None)

    def open(self, now: float) -> None:
        """Let no request pass for `open_for` from now on, whatever the state was."""
        self._until = now + self._open_for
        self._switch(CircuitState.OPEN)

    def close(self) -> None:
        """Let every request pass, whatever the state was, and forget earlier failures."""
        self._switch(CircuitState.CLOSED)

    def _switch(self, state: CircuitState) -> None:
        self.state = state
        self.number += 1
        self._first = self.number
        self._failed.clear()
        # No outcome of them counts any more.
        self._trials.clear()
