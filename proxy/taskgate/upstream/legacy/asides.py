"""Messages to a server that have no answer: `BackgroundPosts` sends each in a background task.

They are answers to the server's questions, notifications and cancellations. One per `Conversation`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from logging import getLogger
from typing import Any, Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream.principal import Principal

MAX_ASIDES: Final = 64
"""Messages that may be under way before droppable ones are dropped."""

PAUSES: Final = (0.5, 2.0, 8.0)
"""Seconds before each further attempt to send a message that the server waits for; a duplicate is
harmless."""

_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})

log = getLogger("taskgate.upstream")


class BackgroundPosts:
    """Sends messages by `send`, which returns the HTTP status. Delivery is not reported to the
    sender."""

    def __init__(self, send: Callable[[str, Principal | None], Coroutine[Any, Any, int]]) -> None:
        self._send = send
        self._sending: set[asyncio.Task[None]] = set()
        self._answers = 0
        self._after_answers: dict[int, Callable[[], None]] = {}

    def say(self, message: str, *, droppable: bool = False, insists: bool = False) -> None:
        """Send a message in the background; `insists` repeats it while the refusal is temporary.

        Droppable are messages whose number another party decides, so that it is bounded.
        """
        if not (droppable and len(self._sending) >= MAX_ASIDES):
            self._begin(self._say(message, insists=insists))

    def answer(self, message: str, principal: Principal | None) -> None:
        """Send an answer that the server waits for, on behalf of `principal`; repeated while
        refusals are temporary."""
        self._answers += 1
        self._begin(self._insist(message, principal))

    def after_answers(self, about: int, tell: Callable[[], None]) -> None:
        """Call `tell` once the server has every answer that is under way now; at once if there is
        none.

        A later call with the same `about` replaces the earlier one.
        """
        if self._answers:
            self._after_answers[about] = tell
        else:
            tell()

    async def sent(self) -> None:
        """Wait until every message was sent."""
        if self._sending:
            await asyncio.wait(tuple(self._sending))

    async def drop(self) -> None:
        """Cancel the messages that are under way."""
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
        """Send until it is accepted; returns whether it was."""
        for pause in PAUSES:
            if await self._arrived(message, principal):
                return True
            await asyncio.sleep(pause)
        return await self._arrived(message, principal)

    async def _say(self, message: str, *, insists: bool) -> None:
        await (self._insist_on(message, None) if insists else self._arrived(message, None))

    async def _arrived(self, message: str, principal: Principal | None) -> bool:
        """Send once; returns whether sending again is useless."""
        try:
            return await self._send(message, principal) not in _AGAIN
        except UpstreamFailed as failure:
            return failure.reason == UpstreamReason.SESSION_LOST.value
