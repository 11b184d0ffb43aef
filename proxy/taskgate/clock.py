"""Where time and chance come from. Nobody else asks the system for either.

Waiting is the event loop's business (`asyncio.timeout`, `call_later`), so a loop with virtual time together with other
implementations of these two protocols simulates the whole gateway from a seed.
"""

import secrets
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Protocol


class Clock(Protocol):
    """The time of day, and a stopwatch."""

    def now(self) -> datetime:
        """The time that whatever is kept goes by, aware, in UTC: see SteadyClock and SharedClock."""
        ...

    def wall(self) -> datetime:
        """The wall clock of this machine, by which tokens are judged, aware, in UTC."""
        ...

    def elapsed(self) -> float:
        """Seconds since an arbitrary fixed moment; never goes back."""
        ...


class Entropy(Protocol):
    """Bytes nobody can guess."""

    def token(self, count: int) -> bytes:
        """`count` random bytes from a cryptographic source."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wall(self) -> datetime:
        return self.now()

    elapsed = staticmethod(perf_counter)


class SteadyClock:
    """The time of a process: the wall clock's when it was made, and since then what the stopwatch says.

    So tasks live as long as they were promised, however the wall clock of `own` is set meanwhile.
    """

    def __init__(self, own: Clock) -> None:
        self.wall = own.wall
        self.elapsed = own.elapsed
        self._zero = own.now() - timedelta(seconds=own.elapsed())

    def now(self) -> datetime:
        return self._zero + timedelta(seconds=self.elapsed())


class SharedClock:
    """The time of a store that several processes share, so that all of them mean the same by now (leases, expiry).

    It is the time of `own` until the store has told its own for the first time (`align`); the wall clock and the
    stopwatch are `own`'s always. For one thread.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._zero: datetime | None = None

    def now(self) -> datetime:
        return self._own.now() if self._zero is None else self._zero + timedelta(seconds=self._own.elapsed())

    def wall(self) -> datetime:
        return self._own.wall()

    def elapsed(self) -> float:
        return self._own.elapsed()

    def align(self, moment: datetime, *, asked: float, answered: float) -> None:
        """The store said `moment` at some time between two readings of the stopwatch.

        What is known already is kept as far as that allows, so that a slow answer moves nothing.
        """
        late, way = timedelta(seconds=answered), timedelta(seconds=answered - asked)
        if self._zero is None:
            self._zero = moment + way / 2 - late
        else:
            self._zero = min(max(self._zero, moment - late), moment + way - late)


class SystemEntropy:
    """The random source of the operating system."""

    def token(self, count: int) -> bytes:
        return secrets.token_bytes(count)
