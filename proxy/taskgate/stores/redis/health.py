"""Whether the server answers. While it does not, nobody waits for it: it is asked in the background until it does.

What must not live here: what makes it fit to be used (`opening`), and what is asked of it.
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
"""Between two looks at a server that does not answer."""
_QUIET: Final = 60.0
"""Seconds for which the same complaint is not logged again."""
_CALM: Final = 5.0
"""Seconds without a refusal of a kind after which what is done again tells that it is over."""


class UnfitServerError(Exception):
    """The server answers, but is not one to keep anything at; the text is for the operator."""


class _Refusals:
    """Of one kind: what was refused, as the server said it last, and when it was told."""

    __slots__ = ("last", "said", "told", "what")

    def __init__(self) -> None:
        self.what: set[str] = set()
        self.said = ""
        self.last = 0.0
        self.told = float("-inf")


class RedisHealth:
    """Open, or closed by a failure until a look at the server succeeds. Belongs to one event loop.

    `quiet` is for one of several of a process: the operator is told once.
    """

    def __init__(self, look: Callable[[], Awaitable[None]], *, quiet: bool = False) -> None:
        self._look = look
        self._level = logging.DEBUG if quiet else logging.ERROR
        self._looking: asyncio.Task[None] | None = None
        self._refusals: dict[str, _Refusals] = {}
        self._closed = False

    @property
    def is_well(self) -> bool:
        """Whether the server answered when it was asked last."""
        return self._looking is None

    def expect(self) -> None:
        """Raises StoreUnavailable at once while the server does not answer."""
        if self._looking is not None:
            raise StoreUnavailable("The task store is not available")

    async def recovered(self) -> None:
        """Wait until it answers again, or nobody looks any more."""
        if self._looking is not None:
            await asyncio.wait((self._looking,))

    def lose(self, reason: BaseException) -> None:
        """It does not answer, or not as it should: nobody asks it until it does."""
        if self._looking is None and not self._closed:
            log.log(self._level, "The task store cannot be used: %s", _said(reason))
            # It is nobody's: whoever met it first is answered long before it is over.
            looking = self._keep_looking(_said(reason))
            self._looking = asyncio.create_task(looking, name="taskgate-store-health", context=Context())

    def complain(self, reason: BaseException, what: str) -> None:
        """It refused something, `what`: logged now and then, for it may do so for every request."""
        now, said = asyncio.get_running_loop().time(), _said(reason)
        # What the library has no class for begins with its kind.
        refusals = self._refusals.setdefault(f"{type(reason).__name__} {said.partition(' ')[0]}", _Refusals())
        refusals.what.add(what)
        refusals.last, refusals.said = now, said
        if now - refusals.told >= _QUIET:
            refusals.told = now
            log.log(self._level, "The task store refuses what it is asked: %s", said)

    def done(self, what: str) -> None:
        """It did something: where it had refused that before, and nothing of the kind lately, it is told to be over."""
        if not self._refusals:
            return
        calm, level = asyncio.get_running_loop().time() - _CALM, min(self._level, logging.WARNING)
        for kind, refusals in tuple(self._refusals.items()):
            if what in refusals.what and refusals.last <= calm:
                del self._refusals[kind]
                log.log(level, "The task store does again what it refused: %s", refusals.said)

    async def close(self) -> None:
        """Look no more."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    async def _keep_looking(self, known: str) -> None:
        while True:
            try:
                await self._look()
                break
            except Exception as error:  # whatever it answers, it is asked again
                # What it lacks may change while nobody can use it: the operator is told of the new reason.
                if isinstance(error, UnfitServerError) and _said(error) != known:
                    known = _said(error)
                    log.log(self._level, "The task store cannot be used: %s", known)
            await asyncio.sleep(_PAUSE.total_seconds())
        self._looking = None
        log.log(min(self._level, logging.WARNING), "The task store can be used again")


def _said(reason: BaseException) -> str:
    return str(reason) or ("it does not answer" if isinstance(reason, TimeoutError) else type(reason).__name__)
