"""What is said to a server beside the calls: answers to what it asked, notifications. Each is sent in the background.

What must not live here: what is said, and when.
"""

import asyncio
from collections.abc import Callable, Coroutine
from logging import getLogger
from typing import Any, Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.principal import Principal

MAX_ASIDES: Final = 64
"""Messages that may be on their way at once before what can be dropped is dropped."""

PAUSES: Final = (0.5, 2.0, 8.0)
"""Seconds before each further try of a message that a server waits for: to have it twice harms none."""

_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})

log = getLogger("taskgate.upstream")


class BackgroundPosts:
    """Messages that have no answer; whether one arrives is the server's affair. `send` sends one, for its status."""

    def __init__(self, send: Callable[[str, Principal | None], Coroutine[Any, Any, int]]) -> None:
        self._send = send
        self._sending: set[asyncio.Task[None]] = set()
        self._answers = 0
        self._after_answers: dict[int, Callable[[], None]] = {}

    def say(self, message: str, *, droppable: bool = False, insists: bool = False) -> None:
        """Send a message in the background; where that matters, again and again while it is only not taken for now.

        What somebody else decides the number of is droppable, so that it is bounded.
        """
        if not (droppable and len(self._sending) >= MAX_ASIDES):
            self._begin(self._say(message, insists=insists))

    def answer(self, message: str, principal: Principal | None) -> None:
        """Send what the server waits for, for whom it is; again and again while it is only not taken for now."""
        self._answers += 1
        self._begin(self._insist(message, principal))

    def after_answers(self, about: int, tell: Callable[[], None]) -> None:
        """Call `tell` once the server has every answer that is on its way now; at once if none is.

        Only what was said last about the same is told.
        """
        if self._answers:
            self._after_answers[about] = tell
        else:
            tell()

    async def sent(self) -> None:
        """Wait until everything was sent."""
        if self._sending:
            await asyncio.wait(tuple(self._sending))

    async def drop(self) -> None:
        """Give up what is still on its way."""
        asides = tuple(self._sending)
        for aside in asides:
            aside.cancel()
        if asides:
            await asyncio.wait(asides)

    def _begin(self, sending: Coroutine[Any, Any, None]) -> None:
        aside = asyncio.get_running_loop().create_task(sending)
        self._sending.add(aside)
        aside.add_done_callback(self._sending.discard)

    async def _insist(self, message: str, principal: Principal | None) -> None:
        try:
            if not await self._insist_on(message, principal):
                log.warning("an answer could not be delivered to the server that waits for it")
        finally:
            self._answers -= 1
        if not self._answers:
            waiting, self._after_answers = self._after_answers, {}
            for tell in waiting.values():
                tell()

    async def _insist_on(self, message: str, principal: Principal | None) -> bool:
        """Whether it arrived in the end."""
        for pause in PAUSES:
            if await self._arrived(message, principal):
                return True
            await asyncio.sleep(pause)
        return await self._arrived(message, principal)

    async def _say(self, message: str, *, insists: bool) -> None:
        await (self._insist_on(message, None) if insists else self._arrived(message, None))

    async def _arrived(self, message: str, principal: Principal | None) -> bool:
        """Whether there is no reason to send it again."""
        try:
            return await self._send(message, principal) not in _AGAIN
        except UpstreamFailed as failure:
            return failure.reason == UpstreamReason.SESSION_LOST.value
