"""Visits to URLs that a server wants made before it does what it was asked for: each is a question to the host.

A server of the initialize era refuses the request and names them (-32042); nobody waits at the server meanwhile. What
must not live here: which errors mean that (a dialect), and the request.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from taskgate.dialects.questions import Answer, Question
from taskgate.mcp.jsonrpc import Notification
from taskgate.upstream.base import Hearer, Speaker

MAX_ROUNDS: Final = 4
"""How often one request is refused for another visit before the refusal is the answer."""


class Detour:
    """One question that its server does not wait for; see ServerQuestion. `decide` hears its answer, None without."""

    __slots__ = ("_decide", "_forgets", "_was_withdrawn", "question")

    def __init__(self, question: Question, decide: Callable[["Detour", Answer | None], None]) -> None:
        self.question = question
        self._decide: Callable[[Detour, Answer | None], None] | None = decide
        self._forgets: list[Callable[[], None]] = []
        self._was_withdrawn = False

    @property
    def is_open(self) -> bool:
        """See ServerQuestion."""
        return self._decide is not None

    def answer(self, answer: Answer, speaker: Speaker | None = None) -> None:
        """See ServerQuestion."""
        self._end(answer)

    def refuse(self) -> None:
        """See ServerQuestion."""
        self._end(None)

    def tell(self, notification: Notification) -> None:
        """See ServerQuestion; no server asked to know."""

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        """See ServerQuestion."""
        if self._decide is not None:
            self._forgets.append(forget)
        elif self._was_withdrawn:
            forget()

    def withdraw(self) -> None:
        """The answer does not matter any more."""
        if self._decide is None:
            return
        self._decide, self._was_withdrawn = None, True
        forgets, self._forgets = self._forgets, []
        for forget in forgets:
            forget()

    def _end(self, answer: Answer | None) -> None:
        decide, self._decide = self._decide, None
        if decide is not None:
            self._forgets = []
            decide(self, answer)


class Detours:
    """The visits that the requests of one session wait for. `accepts` tells whether an answer agrees to one."""

    def __init__(self, accepts: Callable[[Answer], bool]) -> None:
        self._accepts = accepts
        self._deciding: set[asyncio.Future[bool]] = set()

    async def agreed(self, questions: Sequence[Question], hearer: Hearer) -> bool:
        """Whether `hearer` has every one of these agreed to; the first that is not decides.

        What is still open when this ends, however it does, is withdrawn.
        """
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting: set[Detour] = set()

        def decide(detour: Detour, answer: Answer | None) -> None:
            waiting.discard(detour)
            if answer is None or not self._accepts(answer):
                _settle(decided, agreed=False)
            elif not waiting:
                _settle(decided, agreed=True)

        detours = [Detour(question, decide) for question in questions]
        waiting.update(detours)
        self._deciding.add(decided)
        try:
            for detour in detours:
                if not decided.done():
                    hearer.asked(detour)
            return await decided
        finally:
            self._deciding.discard(decided)
            for detour in detours:
                detour.withdraw()

    def end(self) -> None:
        """Nobody is asked any more, and nothing was agreed to."""
        for decided in tuple(self._deciding):
            _settle(decided, agreed=False)


def _settle(decided: "asyncio.Future[bool]", *, agreed: bool) -> None:
    if not decided.done():
        decided.set_result(agreed)
