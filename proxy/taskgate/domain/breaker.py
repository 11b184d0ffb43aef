"""The circuit breaker of one server: `CircuitBreaker`, closed, open or half open.

Closed, every request passes. Enough failures within a window open it, if no connection came about at
most of them, or if more callers fail than succeed. So the failures of one caller refuse no other one.
The requests that run in a process of the server when it ends are one failure (`counts_end`).
If only one caller fails, the breaker opens for that caller alone: others pass. The success of one
then closes it, and the failure of one opens it for all. Open, no other request passes until its time is up.
A server without a connection may just restart, and an attempt costs it nothing: that time is short at first.
Then it is half open: a few requests may try, one that succeeds closes it, one that fails opens it
again. A caller whose calls failed tries last. The user of this module decides what a failure is. Times
are seconds of a monotonic clock.

Before each request the user takes `number` from a closed breaker, and asks any other for a `trial`. It
reports how the request ended exactly once; a success of a closed breaker only while it
`counts_successes`. The state changes only within these calls, and in `open` and `close`.
"""

from collections import OrderedDict, deque
from enum import StrEnum
from typing import Final

BRIEF: Final = 1.0
"""Seconds for which it opens first where no connection came about; they double up to `open_for`."""
MOST_CALLERS: Final = 64
"""Callers whose latest outcome is remembered: of more, those of the latest outcomes."""


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
        "_awaited", "_brief", "_ended", "_failed", "_failures", "_first", "_half_open", "_open_for", "_outcomes",
        "_trials", "_until", "_window", "counts_successes", "number", "only", "state",
    )  # fmt: skip

    def __init__(self, *, failures: int, window: float, open_for: float, half_open: int) -> None:
        self._failures = failures
        self._window = window
        self._open_for = open_for
        self._half_open = half_open
        # Time and caller of the latest failures; the caller is None where no connection came about.
        self._failed: deque[tuple[float, str | None]] = deque(maxlen=failures)
        # Time of the latest outcome of each caller, and whether it was a success; the newest last.
        self._outcomes: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        self._until = 0.0
        # How long it was open last for lack of a connection; 0 after it was closed.
        self._brief = 0.0
        # By number: when each trial began, and whether its caller had failed before.
        self._trials: dict[int, tuple[float, bool]] = {}
        # The caller that did not fail and was refused last, since the last trial of such a caller.
        self._awaited: str | None = None
        # The first number since the last change of state, and since the last end that counted.
        self._first = 0
        self._ended = 0
        self.number = 0
        """The number of every request that passes while the breaker is closed."""
        self.state = CircuitState.CLOSED
        self.only: str | None = None
        """The caller that a breaker refuses that is not closed; None for all callers."""
        self.counts_successes = False
        """Whether `succeeded` must be called for successes, too."""

    def trial(self, now: float, caller: str) -> int | None:
        """Let a request pass although the breaker is not closed, and return a number of its own.

        None if it must not be sent. The first call after the time of an open breaker makes it half
        open.
        """
        if not self.is_open_for(caller):
            self.number += 1
            return self.number
        if self.state is CircuitState.OPEN and now >= self._until:
            self._switch(CircuitState.HALF_OPEN)
        for number, (since, _) in tuple(self._trials.items()):
            if now - since >= self._open_for:
                del self._trials[number]
        has_failed = self._has_failed(caller)
        if self.retry_after(now, caller):
            if not has_failed:
                self._awaited = caller
            return None
        if not has_failed:
            self._awaited = None
        self.number += 1
        self._trials[self.number] = now, has_failed
        return self.number

    def is_open_for(self, caller: str) -> bool:
        """Whether the breaker refuses requests of the caller, or all but a few."""
        return self.state is not CircuitState.CLOSED and self.only in {None, caller}

    def retry_after(self, now: float, caller: str) -> float:
        """Seconds until a request of the caller may pass, as far as is known; 0 if one may pass now."""
        if not self.is_open_for(caller):
            return 0.0
        if self.state is CircuitState.OPEN:
            return max(self._until - now, 0.0)
        has_failed = self._has_failed(caller)
        # A trial of a caller that failed takes no place of others.
        begun = [since for since, of_failed in self._trials.values() if has_failed or not of_failed]
        if len(begun) >= self._half_open:
            # A trial nearly always ends long before its place is freed.
            return min(BRIEF, max(min(begun) + self._open_for - now, 0.0))
        if has_failed and self.only is None and self._awaited is not None and not self._has_failed(self._awaited):
            # The trial is for the caller that did not fail, if it comes soon.
            return max(self._until + self._open_for - now, 0.0)
        return 0.0

    def succeeded(self, number: int, now: float, caller: str) -> None:
        """Count the request as a success."""
        self._trials.pop(number, None)
        if number < self._first:
            return
        if self.state is not CircuitState.CLOSED:
            self.close()
            # It is known for a while that this caller is served.
            self._record(caller, now, True)
        elif self._failed and now - self._failed[-1][0] <= self._window:
            self._record(caller, now, True)
        else:
            self._forget()

    def failed(self, number: int, now: float, caller: str | None) -> None:
        """Count the request as a failure of the server. `caller` is None if no connection came about,
        which has nothing to do with the caller."""
        self._trials.pop(number, None)
        if number < self._first:
            return
        if caller is not None:
            self._record(caller, now, False)
        if self.state is not CircuitState.CLOSED:
            self.open(now, only=self.only if self.only == caller else None, is_brief=caller is None)
            return
        self.counts_successes = True
        self._failed.append((now, caller))
        if len(self._failed) == self._failures and now - self._failed[0][0] <= self._window:
            self._judge(now)

    def counts_end(self, number: int) -> bool:
        """Return whether a request whose connection the server closed is a failure. All that run in a
        process when it ends are one: the first of them."""
        if number < self._ended:
            return False
        self.number += 1
        self._ended = self.number
        return True

    def abandoned(self, number: int) -> None:
        """Free the place of a request whose outcome stays unknown."""
        self._trials.pop(number, None)

    def open(self, now: float, *, only: str | None = None, is_brief: bool = False) -> None:
        """Let no request pass for `open_for` from now on, or none of one caller, whatever the state
        was. `is_brief`: for BRIEF, twice as long as the last time."""
        if is_brief:
            self._brief = min(2 * self._brief or BRIEF, self._open_for)
        self._until = now + (self._brief if is_brief else self._open_for)
        self.only = only
        self.counts_successes = True
        self._switch(CircuitState.OPEN)

    def close(self) -> None:
        """Let every request pass, whatever the state was, and forget earlier failures."""
        self.only = None
        self._awaited = None
        self._brief = 0.0
        self._switch(CircuitState.CLOSED)
        self._forget()

    def _judge(self, now: float) -> None:
        """Open it if the latest failures say that the server fails, and not for one caller of many."""
        if 2 * sum(caller is None for _, caller in self._failed) > len(self._failed):
            self.open(now, is_brief=True)
            return
        recent = [(caller, ok) for caller, (at, ok) in self._outcomes.items() if now - at <= self._window]
        failing = [caller for caller, ok in recent if not ok]
        if 2 * len(failing) > len(recent):
            self.open(now, only=failing[0] if len(failing) == 1 else None)

    def _has_failed(self, caller: str) -> bool:
        """Whether the last outcome that is known of the caller is a failure."""
        return not self._outcomes.get(caller, (0.0, True))[1]

    def _record(self, caller: str, now: float, ok: bool) -> None:
        self._outcomes[caller] = now, ok
        self._outcomes.move_to_end(caller)
        if len(self._outcomes) > MOST_CALLERS:
            self._outcomes.popitem(last=False)

    def _forget(self) -> None:
        """Forget all outcomes: none of them matters any more."""
        self.counts_successes = False
        self._failed.clear()
        self._outcomes.clear()

    def _switch(self, state: CircuitState) -> None:
        self.state = state
        self.number += 1
        self._first = self.number
        self._failed.clear()
        # No outcome of them counts any more.
        self._trials.clear()
