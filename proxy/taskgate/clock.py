"""Where time and chance come from. Nobody else asks the system for either.

Waiting is the event loop's business (`asyncio.timeout`, `call_later`), so a loop with virtual time together with other
implementations of these two protocols simulates the whole gateway from a seed.
"""

import secrets
from datetime import UTC, datetime
from time import perf_counter
from typing import Protocol


class Clock(Protocol):
    """The time of day, and a stopwatch."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""
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

    def elapsed(self) -> float:
        return perf_counter()


class SystemEntropy:
    """The random source of the operating system."""

    def token(self, count: int) -> bytes:
        return secrets.token_bytes(count)
