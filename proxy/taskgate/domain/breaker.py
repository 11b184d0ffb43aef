"""When to leave a server alone that fails: a circuit that is closed, open or half open.

Closed, everything goes through, and so many failures within a window open it. Open, nothing does, until its time is up.
Then it is half open: a few requests try, one that succeeds closes it, one that fails opens it again. What must not live
here: what a failure is, and who is told. Times are seconds of a clock that never goes back.
"""

from collections import deque
from enum import StrEnum


class CircuitState(StrEnum):
    """Whether requests go through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Circuit:
    """The circuit of one server: `failures` within `window` open it for `open_for`; then `half_open` requests may try.

    Every request asks to be let through, and is to be told of by the number it got: `succeeded`, `failed`, or
    `given_up` where nobody will ever know. A request that was let through before the circuit last moved tells nothing.
    One that tries and is not told of within `open_for` makes room for another, so none can block the way for ever.
    """

    __slots__ = (
        "_failed", "_failures", "_first", "_half_open", "_next", "_open_for", "_trying", "_until", "_window", "state",
    )  # fmt: skip

    def __init__(self, *, failures: int, window: float, open_for: float, half_open: int) -> None:
        self._failures = failures
        self._window = window
        self._open_for = open_for
        self._half_open = half_open
        self._failed: deque[float] = deque(maxlen=failures)
        self._until = 0.0
        self._trying: dict[int, float] = {}
        self._next = self._first = 0
        self.state = CircuitState.CLOSED

    def ask(self, now: float) -> int | None:
        """Let a request through: the number to tell of it by. None where it has to stay."""
        if self.state is not CircuitState.CLOSED and not self._may_try(now):
            return None
        number = self._next
        self._next += 1
        if self.state is CircuitState.HALF_OPEN:
            self._trying[number] = now
        return number

    def wait(self, now: float) -> float:
        """The seconds until a request may be let through, as far as is known; 0 where one may be now."""
        match self.state:
            case CircuitState.OPEN:
                return max(self._until - now, 0.0)
            case CircuitState.HALF_OPEN if len(self._trying) >= self._half_open:
                return max(min(self._trying.values()) + self._open_for - now, 0.0)
        return 0.0

    def succeeded(self, number: int) -> None:
        """The server answered that request."""
        self._trying.pop(number, None)
        if number >= self._first and self.state is CircuitState.HALF_OPEN:
            self.close()

    def failed(self, number: int, now: float) -> None:
        """The server failed that request."""
        self._trying.pop(number, None)
        if number < self._first:
            return
        if self.state is CircuitState.HALF_OPEN:
            self.open(now)
            return
        self._failed.append(now)
        if len(self._failed) == self._failures and now - self._failed[0] <= self._window:
            self.open(now)

    def given_up(self, number: int) -> None:
        """Nobody will know what became of that request."""
        self._trying.pop(number, None)

    def open(self, now: float) -> None:
        """Let nothing through from now on, for as long as it is open at all."""
        self._until = now + self._open_for
        self._move(CircuitState.OPEN)

    def close(self) -> None:
        """Let everything through."""
        self._move(CircuitState.CLOSED)

    def _may_try(self, now: float) -> bool:
        if self.state is CircuitState.OPEN:
            if now < self._until:
                return False
            self._move(CircuitState.HALF_OPEN)
        for number, since in tuple(self._trying.items()):
            if now - since >= self._open_for:
                del self._trying[number]
        return len(self._trying) < self._half_open

    def _move(self, state: CircuitState) -> None:
        self.state = state
        self._first = self._next
        self._failed.clear()
