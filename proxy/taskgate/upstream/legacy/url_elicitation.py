"""URL elicitation before a request is repeated (-32042): `UrlElicitations` asks the host, then repeats.

A legacy server refuses a request and names URLs that the user has to visit first. The gateway makes
a question to the host of each URL, a `UrlQuestion`. The server knows nothing of these questions and
does not wait. If the host agrees to all of them, the same request is sent again
(docs/decisions/0019). `LegacySession` uses it for each error response.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from taskgate.domain.versions import Peer
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.server_messages import Answer, Question
from taskgate.upstream import failures
from taskgate.upstream.calls import CallListener, Principal, UpstreamCall

MAX_ROUNDS: Final = 4
"""How often one request is repeated before the refusal is the answer."""


class UrlQuestion:
    """One URL to visit, as a `ServerQuestion` that its server does not wait for.

    It is open until it is answered, refused or withdrawn. `decide` is called once for the first
    two, with the host's answer, None for a refusal.
    """

    __slots__ = ("_decide", "_forgets", "_was_withdrawn", "question")

    key: Final = None
    """None: no server waits for the answer."""

    def __init__(self, question: Question, decide: Callable[["UrlQuestion", Answer | None], None]) -> None:
        self.question = question
        # None once it is no longer open.
        self._decide: Callable[[UrlQuestion, Answer | None], None] | None = decide
        self._forgets: list[Callable[[], None]] = []
        self._was_withdrawn = False

    @property
    def is_open(self) -> bool:
        return self._decide is not None

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
        self._end(answer)

    def refuse(self) -> None:
        self._end(None)

    def tell(self, notification: Notification) -> None:
        """Ignored: the server did not ask for progress."""

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        if self._decide is not None:
            self._forgets.append(forget)
        elif self._was_withdrawn:
            forget()

    def withdraw(self) -> None:
        """Withdraw the question if it is open: its answer no longer matters."""
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


class UrlElicitations:
    """The URL elicitations of one session; `host` is the host that can be asked, if any."""

    def __init__(self, dialect: LegacyUpstream, host: Peer | None) -> None:
        self._dialect = dialect
        self._host = host
        self._undecided: set[asyncio.Future[bool]] = set()
        self._ended = False

    async def after(
        self,
        call: UpstreamCall,
        listener: CallListener,
        response: Response,
        ask: Callable[[UpstreamCall, CallListener], Awaitable[Response]],
        began: float,
    ) -> Response:
        """Handle an error response: ask the host, send the request again by `ask`, and so on.

        Returns the last response. That is `response` if it names no URLs, or the host does not
        agree to all of them. Asking and sending share the time of the request, its ceiling since
        `began`, by the loop's time. Raises UpstreamFailed.
        """
        bounds, loop = call.bounds, asyncio.get_running_loop()
        assert bounds is not None, "the request was sent"
        ends = began + bounds.ceiling
        for _ in range(MAX_ROUNDS):
            questions = self._dialect.url_questions(response, self._host)
            if not questions or not await self._agreed_before(ends, questions, listener):
                break
            # The server refused before it acted, so a repeated request acts only once.
            left = timedelta(seconds=ends - loop.time())
            response = await ask(replace(call, bounds=bounds.within(left)), listener)
        return response

    async def _agreed_before(self, ends: float, questions: Sequence[Question], listener: CallListener) -> bool:
        """Whether the host agrees to every question, until the loop time `ends` at most."""
        try:
            async with asyncio.timeout_at(ends):
                return not self._ended and await self._agreed(questions, listener)
        except TimeoutError:
            raise failures.too_late(dispatched=False) from None

    async def _agreed(self, questions: Sequence[Question], listener: CallListener) -> bool:
        """Whether the host agrees to every question; the first refusal decides.

        Questions that are still open at the end are withdrawn.
        """
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting: set[UrlQuestion] = set()

        def decide(detour: UrlQuestion, answer: Answer | None) -> None:
            waiting.discard(detour)
            if answer is None or not self._dialect.is_accepted(answer):
                _settle(decided, agreed=False)
            elif not waiting:
                _settle(decided, agreed=True)

        detours = [UrlQuestion(question, decide) for question in questions]
        waiting.update(detours)
        self._undecided.add(decided)
        try:
            for detour in detours:
                if not decided.done():
                    listener.asked(detour)
            return await decided
        finally:
            self._undecided.discard(decided)
            for detour in detours:
                detour.withdraw()

    def end(self) -> None:
        """End all open questions as not agreed, and ask no more. Called when the session closes."""
        self._ended = True
        for decided in tuple(self._undecided):
            _settle(decided, agreed=False)


def _settle(decided: "asyncio.Future[bool]", *, agreed: bool) -> None:
    if not decided.done():
        decided.set_result(agreed)
