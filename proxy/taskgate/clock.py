"""Time and randomness: the protocols `Clock` and `Entropy`, and their implementations.

All other modules take the time and random bytes from these, and wait with the event loop
(`asyncio.timeout`, `call_later`). So tests simulate the whole gateway from a seed, with a loop of
virtual time and other implementations.
"""

import os
from datetime import UTC, datetime, timedelta
from functools import partial
from time import perf_counter, time
from typing import Final, Protocol

_SHORT: Final = 32
_AT_ONCE: Final = 64
"""Random tokens of up to `_SHORT` bytes are read `_AT_ONCE` at once."""


class Clock(Protocol):
    """The time of day, and a monotonic clock."""

    def now(self) -> datetime:
        """The time of stored records, aware, in UTC.

        It may differ from the wall clock (SteadyClock, SharedClock).
        """
        ...

    def wall(self) -> datetime:
        """The wall clock of this machine, for the validity of tokens, aware, in UTC."""
        ...

    def wall_seconds(self) -> float:
        """The same as seconds since 1970, which is faster."""
        ...

    def elapsed(self) -> float:
        """Monotonic seconds since an arbitrary fixed moment."""
        ...


class Entropy(Protocol):
    """A source of random bytes that cannot be guessed."""

    def token(self, count: int) -> bytes:
        """`count` random bytes from a cryptographic source."""
        ...


class SystemClock:
    """The clock of the machine."""

    now = wall = staticmethod(partial(datetime.now, UTC))
    wall_seconds = staticmethod(time)
    elapsed = staticmethod(perf_counter)


class SteadyClock:
    """The time of a process: the wall clock at its creation, plus the monotonic time since then.

    So the time to live of a task stays correct if the wall clock of `own` is set meanwhile.
    """

    def __init__(self, own: Clock) -> None:
        self.wall = own.wall
        self.wall_seconds = own.wall_seconds
        self.elapsed = own.elapsed
        self._zero = own.now().timestamp() - own.elapsed()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._zero + self.elapsed(), UTC)


class SharedClock:
    """The time of a shared store, so that all processes agree on it (leases, expiry).

    It is the time of `own` until the first `align`. The wall clock and the monotonic clock are
    always those of `own`. For one thread.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._zero: datetime | None = None

    def now(self) -> datetime:
        return self._own.now() if self._zero is None else self._zero + timedelta(seconds=self._own.elapsed())

    def wall(self) -> datetime:
        return self._own.wall()

    def wall_seconds(self) -> float:
        return self._own.wall_seconds()

    def elapsed(self) -> float:
        return self._own.elapsed()

    def align(self, moment: datetime, *, asked: float, answered: float) -> None:
        """Adjust to a store whose time was `moment` between two readings of the monotonic clock.

        The adjustment is the smallest that agrees with the answer, so a slow answer changes
        nothing.
        """
        end, span = timedelta(seconds=answered), timedelta(seconds=answered - asked)
        if self._zero is None:
            self._zero = moment + span / 2 - end
        else:
            self._zero = min(max(self._zero, moment - end), moment + span - end)


class SystemEntropy:
    """The random source of the operating system.

    Short tokens are read many at once, because a read for each takes four times as long. No token
    is given out twice, also with several threads.
    """

    __slots__ = ("_ready",)

    def __init__(self) -> None:
        self._ready: dict[int, list[bytes]] = {}

    def token(self, count: int) -> bytes:
        if not 0 < count <= _SHORT:
            return os.urandom(count)
        ready = self._ready.setdefault(count, [])
        while True:
            try:
                # One atomic step.
                return ready.pop()
            except IndexError:
                block = os.urandom(count * _AT_ONCE)
                ready += [block[at : at + count] for at in range(0, len(block), count)]
