"""Another try at a connection that did not come about, after a pause that doubles and is never the same for two.

What must not live here: which failure may be tried again. What holds: nobody waits beyond their own patience, nor after
`close`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Final

from taskgate.upstream.pauses import share
from taskgate.upstream.settings import Retries

CONNECT: Final = "connect"
"""Why another try is made, as an observer is told: no connection came about."""


class Retrying:
    """The tries at one server. `retries` None allows one try a request; `retried` hears of what `tell` tells."""

    def __init__(self, retries: Retries | None, name: str, retried: Callable[[str], None]) -> None:
        self._pauses = [] if retries is None else list(_pauses(retries))
        self._name = name
        self._retried = retried
        self._requests = count()
        self._ended = asyncio.Event()

    def pauses(self) -> Iterator[float]:
        """The seconds to wait before each try of one request but the first."""
        if not self._pauses:
            return
        request = f"{self._name} {next(self._requests)}"
        for turn, pause in enumerate(self._pauses):
            yield pause * share(request, turn)

    async def wait(self, pause: float, until: float | None) -> bool:
        """Wait that long; False, and at once, where the loop's time `until` would come before."""
        if until is not None and asyncio.get_running_loop().time() + pause >= until:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._ended.wait()
        return True

    def tell(self) -> None:
        """Another try is made now, unless `close` came before."""
        if not self._ended.is_set():
            self._retried(CONNECT)

    def close(self) -> None:
        """Let nobody wait any more."""
        self._ended.set()


def _pauses(retries: Retries) -> Iterator[float]:
    """At most so long before each further try."""
    pause, most = retries.backoff.total_seconds(), retries.max_backoff.total_seconds()
    for _ in range(retries.attempts - 1):
        yield min(pause, most)
        pause = min(pause * 2, most)
