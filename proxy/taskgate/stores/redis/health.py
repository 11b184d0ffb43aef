"""The health of the Redis server: `RedisHealth`, a circuit breaker with a probe in the background.

While the server is down, callers fail at once and do not wait for it. `RedisConnector.check` is the
probe. A *refusal* is an error reply to one command, while the server is up: it is only logged.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from datetime import timedelta
from typing import Final

from taskgate.errors import StoreUnavailable

log = logging.getLogger("taskgate.stores")

_PAUSE: Final = timedelta(milliseconds=500)
"""The time between two probes."""
_LOG_PAUSE: Final = 60.0
"""Seconds between two log lines about the same kind of refusal."""
_CALM: Final = 5.0
"""Seconds without a refusal of a kind, after which a success of the same command ends that kind."""


class UnfitServerError(Exception):
    """The server answers, but is not fit to store data; the text is for the operator."""


class _Refusals:
    """The refusals of one kind: the commands, the last message, and the times of the last one and
    of its log.
    """

    __slots__ = ("commands", "last", "logged", "message")

    def __init__(self) -> None:
        self.commands: set[str] = set()
        self.message = ""
        self.last = 0.0
        self.logged = float("-inf")


class RedisHealth:
    """Up, or down after a failure until a probe succeeds. It belongs to one event loop.

    With `debug_only` it logs for debugging only. That is for a second client of the same process, so
    that the operator reads each line once. After `close` nothing changes any more.
    """

    def __init__(self, probe: Callable[[], Awaitable[None]], *, debug_only: bool = False) -> None:
        self._probe = probe
        self._level = logging.DEBUG if debug_only else logging.ERROR
        self._probing: asyncio.Task[None] | None = None
        self._refusals: dict[str, _Refusals] = {}
        self._closed = False

    @property
    def is_up(self) -> bool:
        """Whether the server is up."""
        return self._probing is None

    def check(self) -> None:
        """Raise StoreUnavailable while the server is down."""
        if self._probing is not None:
            raise StoreUnavailable("The task store is not available")

    async def wait_until_up(self) -> None:
        """Wait until the server is up again, or this is closed."""
        if self._probing is not None:
            await asyncio.wait((self._probing,))

    def mark_down(self, reason: BaseException) -> None:
        """Mark the server as down and start to probe it."""
        if self._probing is None and not self._closed:
            log.log(self._level, "The task store cannot be used: %s", _reason_text(reason))
            # An empty context: the request that met the failure ends before the probing does.
            probing = self._probe_until_up(_reason_text(reason))
            self._probing = asyncio.create_task(probing, name="taskgate-store-health", context=Context())

    def report_refusal(self, reason: BaseException, what: str) -> None:
        """Log that the server refused a command, at intervals, because it may refuse every request."""
        now, said = asyncio.get_running_loop().time(), _reason_text(reason)
        # The kind of a refusal is the error's class and first word. The library has no class for
        # some errors, whose text begins with a code.
        refusals = self._refusals.setdefault(f"{type(reason).__name__} {said.partition(' ')[0]}", _Refusals())
        refusals.commands.add(what)
        refusals.last, refusals.message = now, said
        if now - refusals.logged >= _LOG_PAUSE:
            refusals.logged = now
            log.log(self._level, "The task store refuses a command: %s", said)

    def report_success(self, what: str) -> None:
        """Handle that the server accepted the command `what`.

        Logs the end of a kind of refusal, if it was for this command and has not occurred lately.
        """
        if not self._refusals:
            return
        calm, level = asyncio.get_running_loop().time() - _CALM, min(self._level, logging.WARNING)
        for kind, refusals in tuple(self._refusals.items()):
            if what in refusals.commands and refusals.last <= calm:
                del self._refusals[kind]
                log.log(level, "The task store accepts a command again that it refused: %s", refusals.message)

    async def close(self) -> None:
        """Stop probing."""
        self._closed = True
        if self._probing is not None:
            self._probing.cancel()
            with suppress(asyncio.CancelledError):
                await self._probing

    async def _probe_until_up(self, known: str) -> None:
        while True:
            try:
                await self._probe()
                break
            except Exception as error:  # probe again after any failure
                # The reason may change during an outage: log the new one.
                if isinstance(error, UnfitServerError) and _reason_text(error) != known:
                    known = _reason_text(error)
                    log.log(self._level, "The task store cannot be used: %s", known)
            await asyncio.sleep(_PAUSE.total_seconds())
        self._probing = None
        log.log(min(self._level, logging.WARNING), "The task store can be used again")


def _reason_text(reason: BaseException) -> str:
    return str(reason) or ("it does not answer" if isinstance(reason, TimeoutError) else type(reason).__name__)
