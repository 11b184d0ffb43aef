"""Retries of failed connects: `Retrying` has the pauses, which double and vary.

`HttpTransport` decides which failure is retried. For each further attempt of a request it takes a pause
from `pauses`, waits by `wait`, and reports by `tell`. A pause never outlasts the caller's timeout,
and ends at `close`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Final

from taskgate.upstream.pauses import share
from taskgate.upstream.settings import Retries

CONNECT: Final = "connect"
"""The reason of a retry, as observers get it: no connection was made."""


class Retrying:
    """Retries for one server. `retries` None allows one attempt. `retried` is called by `tell` with
    the reason."""

    def __init__(self, retries: Retries | None, name: str, retried: Callable[[str], None]) -> None:
        self._pauses = [] if retries is None else list(_pauses(retries))
        self._name = name
        self._retried = retried
        self._requests = count()
        self._ended = asyncio.Event()

    def pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before each further attempt of one request."""
        if not self._pauses:
            return
        request = f"{self._name} {next(self._requests)}"
        for turn, pause in enumerate(self._pauses):
            yield pause * share(request, turn)

    async def wait(self, pause: float, until: float | None) -> bool:
        """Wait for the pause, or until `close`, and return whether to make a further attempt.

        False at once if the loop time `until` would come first. After `close` there is no wait, and
        the transport itself refuses the attempt.
        """
        if until is not None and asyncio.get_running_loop().time() + pause >= until:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._ended.wait()
        return True

    def tell(self) -> None:
        """Report that another attempt is made now, unless `close` was called."""
        if not self._ended.is_set():
            self._retried(CONNECT)

    def close(self) -> None:
        """End all waits, present and later ones, and the reports."""
        self._ended.set()


def _pauses(retries: Retries) -> Iterator[float]:
    """Yield the longest pause before each further attempt; `share` shortens it."""
    pause, most = retries.backoff.total_seconds(), retries.max_backoff.total_seconds()
    for _ in range(retries.attempts - 1):
        yield min(pause, most)
        pause = min(pause * 2, most)
