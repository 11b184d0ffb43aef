"""The questions of one round: each asked once, and the round over when all are answered or one cannot be.

What must not live here: who is asked (whoever hears it decides), and what becomes of the answers.
"""

import asyncio
from collections.abc import Callable

from taskgate.dialects.questions import Answer, Question
from taskgate.dialects.stateless_server import ServerRound, StatelessServerDialect
from taskgate.mcp.jsonrpc import Notification, RawJson
from taskgate.mcp.versions import Peer
from taskgate.upstream.base import Between, Speaker
from taskgate.upstream.calls import Call
from taskgate.upstream.resting import Leave


class RoundQuestion:
    """One question; see ServerQuestion."""

    __slots__ = ("_forgets", "_key", "_round", "_was_withdrawn", "question")

    def __init__(self, key: str, question: Question, of: "OpenRound") -> None:
        self.question = question
        self._key = key
        self._round: OpenRound | None = of
        self._forgets: list[Callable[[], None]] = []
        self._was_withdrawn = False

    @property
    def is_open(self) -> bool:
        """See ServerQuestion."""
        return self._round is not None

    def answer(self, answer: Answer, speaker: Speaker | None = None) -> None:
        """See ServerQuestion. The server hears it together with all others of the round."""
        of, self._round = self._round, None
        if of is not None:
            self._forgets = []
            of.answered(self._key, answer, speaker)

    def refuse(self) -> None:
        """See ServerQuestion."""
        if self._round is not None:
            self.answer(self._round.no_answer(self.question))

    def tell(self, notification: Notification) -> None:
        """See ServerQuestion. A server of this era does not hear of it: it waits for nothing on any stream."""

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        """See ServerQuestion."""
        if self._round is not None:
            self._forgets.append(forget)
        elif self._was_withdrawn:
            forget()

    def withdraw(self) -> None:
        """Nobody can answer it any more."""
        self._round, self._was_withdrawn = None, True
        forgets, self._forgets = self._forgets, []
        for forget in forgets:
            forget()


class OpenRound:
    """The questions of one round of a call. `speaker` is who answered last, None for nobody in particular.

    `leave` is there while somebody keeps what the next round takes.
    """

    def __init__(self, dialect: StatelessServerDialect, call: Call, asked: ServerRound) -> None:
        self._dialect = dialect
        self._call = call
        self._questions = asked.questions
        self._state = asked.state
        self._answers: dict[str, Answer] = {}
        self._open: dict[str, RoundQuestion] = {}
        self._over = asyncio.Event()
        self.speaker: Speaker | None = None
        self.leave: Leave | None = None

    async def gather(self, host: Peer | None) -> RawJson | None:
        """All answers, as the server is told; None where there is one that it cannot be told.

        What the host did not declare it is not asked: nobody answers that (L-INPUT-6).
        """
        unasked = {key for key, each in self._questions.items() if not self._dialect.declared(host, each)}
        self._open = {
            key: RoundQuestion(key, each, self) for key, each in self._questions.items() if key not in unasked
        }
        self._call.asks(len(self._open))
        try:
            for key in unasked:
                self._take(key, self.no_answer(self._questions[key]))
            self._ask()
            await self._over.wait()
        finally:
            self._withdraw()
        asked = self._questions.items()
        return self._dialect.answers({key: (each, self._answers[key]) for key, each in asked if key in self._answers})

    def answered(self, key: str, answer: Answer, speaker: Speaker | None) -> None:
        """Somebody answered."""
        del self._open[key]
        self._call.asks(-1)
        self.speaker = speaker or self.speaker
        self._take(key, answer)

    def no_answer(self, question: Question) -> Answer:
        """What stands for the answer where nobody gave any."""
        return self._dialect.no_answer(question)

    def _ask(self) -> None:
        hearer = self._call.hearer
        assert hearer is not None, "no request of our own can be answered with a round"
        heard = dict(self._open)
        for question in heard.values():
            # Whoever heard the one before may have ended the round.
            if question.is_open and not self._over.is_set():
                hearer.asked(question)
        if not self._over.is_set():
            asked = {key: (each, heard.get(key)) for key, each in self._questions.items()}
            self.leave = hearer.keep(Between(self._state, asked, self._answers))

    def _take(self, key: str, answer: Answer) -> None:
        self._answers[key] = answer
        cannot_be_told = self._dialect.answers({key: (self._questions[key], answer)}) is None
        if cannot_be_told or len(self._answers) == len(self._questions):
            self._over.set()

    def _withdraw(self) -> None:
        left, self._open = self._open, {}
        for question in left.values():
            question.withdraw()
