"""Visits to URLs that a server wants made before it does what it was asked for: each is a question to the host.

A server of the legacy era refuses the request and names them (-32042); nobody waits at the server meanwhile. What
must not live here: which errors mean that (a dialect), and how a request is made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

from taskgate.domain.versions import Peer
from taskgate.protocol.base import UpstreamDialect
from taskgate.protocol.envelope import Notification, Response
from taskgate.protocol.questions import Answer, Question
from taskgate.upstream import failures
from taskgate.upstream.call_listener import CallListener
from taskgate.upstream.calls import UpstreamRequest
from taskgate.upstream.principal import Principal

MAX_ROUNDS: Final = 4
"""How often one request is refused for another visit before the refusal is the answer."""


class Detour:
    """One question that its server does not wait for; see ServerQuestion. `decide` hears its answer, None without."""

    __slots__ = ("_decide", "_forgets", "_was_withdrawn", "question")

    key: Final = None
    """See ServerQuestion: nobody waits at the server."""

    def __init__(self, question: Question, decide: Callable[["Detour", Answer | None], None]) -> None:
        self.question = question
        self._decide: Callable[[Detour, Answer | None], None] | None = decide
        self._forgets: list[Callable[[], None]] = []
        self._was_withdrawn = False

    @property
    def is_open(self) -> bool:
        """See ServerQuestion."""
        return self._decide is not None

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
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
    """The visits that the requests of one session wait for; `host` may be asked to make them."""

    def __init__(self, dialect: UpstreamDialect, host: Peer | None) -> None:
        self._dialect = dialect
        self._host = host
        self._deciding: set[asyncio.Future[bool]] = set()
        self._ended = False

    async def after(
        self, errand: UpstreamRequest, response: Response, ask: Callable[[UpstreamRequest], Awaitable[Response]]
    ) -> Response:
        """The answer to a refused request, sent again by `ask` after what its server wanted to be done first (10.3)."""
        if errand.listener is None:
            return response
        loop = asyncio.get_running_loop()
        ends = loop.time() + errand.bounds.ceiling
        for _ in range(MAX_ROUNDS):
            request_contexts = self._dialect.request_contexts(response, self._host)
            if not request_contexts or not await self._agreed_by(ends, request_contexts, errand.listener):
                break
            # The server refused before it acted, so this is the first time that it may.
            left = timedelta(seconds=ends - loop.time())
            response = await ask(errand._replace(bounds=errand.bounds.within(left)))
        return response

    async def _agreed_by(self, ends: float, request_contexts: Sequence[Question], listener: CallListener) -> bool:
        try:
            async with asyncio.timeout_at(ends):
                return not self._ended and await self._agreed(request_contexts, listener)
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None

    async def _agreed(self, questions: Sequence[Question], listener: CallListener) -> bool:
        """Whether `listener` has every one of these agreed to; the first that is not decides.

        What is still open when this ends, however it does, is withdrawn.
        """
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting: set[Detour] = set()

        def decide(detour: Detour, answer: Answer | None) -> None:
            waiting.discard(detour)
            if answer is None or not self._dialect.agrees(answer):
                _settle(decided, agreed=False)
            elif not waiting:
                _settle(decided, agreed=True)

        detours = [Detour(question, decide) for question in questions]
        waiting.update(detours)
        self._deciding.add(decided)
        try:
            for detour in detours:
                if not decided.done():
                    listener.asked(detour)
            return await decided
        finally:
            self._deciding.discard(decided)
            for detour in detours:
                detour.withdraw()

    def end(self) -> None:
        """Nobody is asked any more, and nothing was agreed to."""
        self._ended = True
        for decided in tuple(self._deciding):
            _settle(decided, agreed=False)


def _settle(decided: "asyncio.Future[bool]", *, agreed: bool) -> None:
    if not decided.done():
        decided.set_result(agreed)
