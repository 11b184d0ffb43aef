"""Questions of one round of a modern call: `OpenRound` asks each once and gathers the answers.

`RoundRunner` creates one for each answer of the server that asks something, awaits `gather`, and
sends all answers in the next request. The round is over when all questions are answered, or one
answer cannot be expressed in this era. Questions that are open at its end are withdrawn. A next
round may reuse their names.
"""

import asyncio

from taskgate.domain.versions import Peer
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.protocol.server_messages import Answer, Question, ServerRound
from taskgate.upstream.call_listener import Between
from taskgate.upstream.calls import Call
from taskgate.upstream.modern.open_question import RoundQuestion
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import Leave


class OpenRound:
    """The questions of one round.

    After `gather`, `principal` is the caller who answered last, None if unknown. `leave` is what
    the listener's `keep` returned, to be awaited before the next round is sent. It is None if the
    listener stores no checkpoint.
    """

    def __init__(self, dialect: ModernUpstream, call: Call, asked: ServerRound) -> None:
        self._dialect = dialect
        self._call = call
        self._questions = asked.questions
        self._state = asked.state
        self._answers: dict[str, Answer] = {}
        # Questions without an answer.
        self._open: dict[str, RoundQuestion] = {}
        self._over = asyncio.Event()
        self.principal: Principal | None = None
        self.leave: Leave | None = None

    async def gather(self, host: Peer | None) -> RawJson | None:
        """Return all answers encoded for the server; None if there is one that cannot be encoded.

        A question that the host did not declare is not asked: it counts as unanswered (L-INPUT-6).
        """
        unasked = {key for key, each in self._questions.items() if not self._dialect.can_ask(host, each)}
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
        return self._dialect.input_responses(
            {key: (each, self._answers[key]) for key, each in asked if key in self._answers}
        )

    def answered(self, name: str, answer: Answer, principal: Principal | None) -> None:
        """Take an answer, as the `Asker` of the questions."""
        del self._open[name]
        self._call.asks(-1)
        self.principal = principal or self.principal
        self._take(name, answer)

    def no_answer(self, question: Question) -> Answer:
        return self._dialect.default_answer(question)

    def _ask(self) -> None:
        """Give the questions to the call's listener, then have it store a checkpoint of the
        round."""
        listener = self._call.listener
        assert listener is not None, "only a call with a listener has rounds"
        heard = dict(self._open)
        for question in heard.values():
            # The listener may have ended the round in the call before.
            if question.is_open and not self._over.is_set():
                listener.asked(question)
        if not self._over.is_set():
            asked = {key: (each, heard.get(key)) for key, each in self._questions.items()}
            self.leave = listener.keep(Between(self._state, asked, self._answers))

    def _take(self, key: str, answer: Answer) -> None:
        """Store an answer; the round is over with the last one, or with one that cannot be
        expressed."""
        self._answers[key] = answer
        cannot_be_told = self._dialect.input_responses({key: (self._questions[key], answer)}) is None
        if cannot_be_told or len(self._answers) == len(self._questions):
            self._over.set()

    def _withdraw(self) -> None:
        left, self._open = self._open, {}
        for question in left.values():
            question.withdraw()
