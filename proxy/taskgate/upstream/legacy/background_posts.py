"""Messages to a server that get no response: `BackgroundPosts` sends each in a background task.

They are answers to the server's questions, notifications and cancellations. Each `Conversation` has
one `BackgroundPosts`. Its senders do not wait, and do not learn whether a message arrived.
"""

import asyncio
from collections.abc import Callable, Coroutine
from logging import getLogger
from typing import Any, Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.system.background import cancel_and_wait
from taskgate.upstream.calls import Principal

MAX_POSTS: Final = 64
"""Messages that may be under way before droppable ones are dropped."""

PAUSES: Final = (0.5, 2.0, 8.0)
"""Seconds before each further attempt to send a message that the server waits for; a duplicate is
harmless."""

_TEMPORARY: Final = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses of refusals after which a message may be sent again."""

log = getLogger("taskgate.upstream")


class BackgroundPosts:
    """The messages under way in one conversation.

    `send` POSTs one message on behalf of a principal, None for that of the session. It returns the
    HTTP status.
    """

    def __init__(self, send: Callable[[str, Principal | None], Coroutine[Any, Any, int]]) -> None:
        self._send = send
        self._sending: set[asyncio.Task[None]] = set()
        # The number of answers that are under way.
        self._answers = 0
        self._after_answers: dict[int, Callable[[], None]] = {}

    def say(self, message: str, *, droppable: bool = False, insists: bool = False) -> None:
        """Send a message in the background, once.

        With `insists` it is repeated after each of PAUSES, until it is accepted or refused for
        good. With `droppable` it is dropped if MAX_POSTS messages are under way: hosts or servers
        decide how many such messages there are.
        """
        if not (droppable and len(self._sending) >= MAX_POSTS):
            self._begin(self._send_message(message, insists=insists))

    def answer(self, message: str, principal: Principal | None) -> None:
        """Send the answer to a question in the background, on behalf of `principal`.

        The server waits for it, so it is repeated as with `insists`.
        """
        self._answers += 1
        self._begin(self._send_answer(message, principal))

    def after_answers(self, about: int, tell: Callable[[], None]) -> None:
        """Call `tell` once, as soon as no answer is under way; now if there is none.

        An answer is under way until the server has it, or it is given up. Answers that are sent
        meanwhile delay the call too. A later `tell` for the same `about` replaces this one. After
        `drop`, none is called.
        """
        if self._answers:
            self._after_answers[about] = tell
        else:
            tell()

    async def sent(self) -> None:
        """Wait until every message that is under way now was sent or given up."""
        if self._sending:
            await asyncio.wait(tuple(self._sending))

    async def drop(self) -> None:
        """Cancel the messages that are under way."""
        await cancel_and_wait(*self._sending)

    def _begin(self, sending: Coroutine[Any, Any, None]) -> None:
        """Start a background task that sends one message."""
        aside = asyncio.get_running_loop().create_task(sending)
        self._sending.add(aside)
        aside.add_done_callback(self._sending.discard)

    async def _send_answer(self, message: str, principal: Principal | None) -> None:
        """Send an answer. If it was the last one under way, make the calls of `after_answers`."""
        try:
            if not await self._send_repeatedly(message, principal):
                log.warning("an answer could not be delivered to the server that waits for it")
        finally:
            self._answers -= 1
        if not self._answers:
            waiting, self._after_answers = self._after_answers, {}
            for tell in waiting.values():
                tell()

    async def _send_repeatedly(self, message: str, principal: Principal | None) -> bool:
        """Send until the message is settled, with PAUSES between; returns whether it is."""
        for pause in PAUSES:
            if await self._arrived(message, principal):
                return True
            await asyncio.sleep(pause)
        return await self._arrived(message, principal)

    async def _send_message(self, message: str, *, insists: bool) -> None:
        await (self._send_repeatedly(message, None) if insists else self._arrived(message, None))

    async def _arrived(self, message: str, principal: Principal | None) -> bool:
        """Send once; returns whether not to send again.

        That is so if it was accepted or refused for good, or if the server lost the session.
        """
        try:
            return await self._send(message, principal) not in _TEMPORARY
        except UpstreamFailed as failure:
            return failure.reason == UpstreamReason.SESSION_LOST.value
