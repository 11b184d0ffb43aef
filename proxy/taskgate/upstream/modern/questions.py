"""Questions of a modern server: `OpenRound` for one round of a call, `TaskQuestions` for a server's task.

Each asks every question once, as a `RoundQuestion` that it gives to the call's listener. The
question is open until it is answered or refused by the host's side, or withdrawn.

`RoundRunner` creates an `OpenRound` for each answer of the server that asks something, awaits
`gather`, and sends all answers in the next request. The round is over when all questions are
answered, or one answer cannot be expressed in this era. A next round may reuse their names.

The server shows the open questions of its task in each poll. A new one is asked; its answer is then
"given", which means to be sent, and after `tasks/update` "brought". If the server shows it again all
the same, the answer is sent again. A question that the server no longer shows is withdrawn and
forgotten. Keys of a task's questions are unique (M-UPD-4).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from taskgate.domain.versions import Peer
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.messages import Notification, Response
from taskgate.protocol.modern.upstream import ModernUpstream
from taskgate.protocol.server_messages import Answer, Question, ServerRound
from taskgate.protocol.vocabulary import INVALID_PARAMS
from taskgate.upstream.calls import Between, Leave, Principal, RunningCall
from taskgate.upstream.context import ModernUpstreamContext


class Asker(Protocol):
    """Creator of a question, which receives the answer."""

    def answered(self, name: str, answer: Answer, principal: Principal | None) -> None:
        """Receive the answer to the question that the server calls `name`. Called once, at the
        first answer or refusal."""
        ...

    def no_answer(self, question: Question) -> Answer:
        """Return the answer that the server gets if the host gave none."""
        ...


class RoundQuestion:
    """A `ServerQuestion` that the server calls `name`.

    `lasts`: the name stays valid until the question is answered, so that another process can answer
    by it.
    """

    __slots__ = ("_asker", "_forgets", "_name", "_was_withdrawn", "key", "question")

    def __init__(self, name: str, question: Question, asker: Asker, *, lasts: bool = False) -> None:
        self.question = question
        self.key = name if lasts else None
        """The server's name, if another process can answer by it; None otherwise."""
        self._name = name
        self._asker: Asker | None = asker
        # Callbacks of `when_withdrawn`.
        self._forgets: list[Callable[[], None]] = []
        self._was_withdrawn = False

    @property
    def is_open(self) -> bool:
        return self._asker is not None

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
        asker, self._asker = self._asker, None
        if asker is not None:
            self._forgets = []
            asker.answered(self._name, answer, principal)

    def refuse(self) -> None:
        if self._asker is not None:
            self.answer(self._asker.no_answer(self.question))

    def tell(self, notification: Notification) -> None:
        """Ignored: a modern server gets no progress, since it does not wait on a stream."""

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        if self._asker is not None:
            self._forgets.append(forget)
        elif self._was_withdrawn:
            forget()

    def withdraw(self) -> None:
        """Withdraw the question: it can no longer be answered, and those who wait for that are
        told."""
        self._asker, self._was_withdrawn = None, True
        forgets, self._forgets = self._forgets, []
        for forget in forgets:
            forget()


class OpenRound:
    """The questions of one round.

    After `gather`, `principal` is the caller who answered last, None if unknown. `leave` is what
    the listener's `keep` returned, to be awaited before the next round is sent. It is None if the
    listener stores no checkpoint.
    """

    def __init__(self, dialect: ModernUpstream, call: RunningCall, asked: ServerRound) -> None:
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


TRIES: Final = 3
"""How often an answer is sent that the server refuses, for a reason that may be temporary."""


class TaskQuestions:
    """The questions of the task that `call` became.

    `stir` is called when there is an answer to send, or one that cannot be expressed.
    """

    def __init__(
        self, upstream_context: ModernUpstreamContext, host: Peer | None, call: RunningCall, stir: Callable[[], None]
    ) -> None:
        self._dialect = upstream_context.dialect
        self._host = host
        self._call = call
        self._stir = stir
        # By the server's keys: all that it shows, those without an answer, answers to send, answers
        # sent, and its refusals of answers.
        self._asked: dict[str, Question] = {}
        self._open: dict[str, RoundQuestion] = {}
        self._given: dict[str, Answer] = {}
        self._brought: dict[str, Answer] = {}
        self._refusals: dict[str, list[Response]] = {}
        self.is_hopeless = False
        """Whether there is an answer that cannot be expressed in this era; the call then ends."""
        self.refusal: Response | None = None
        """The server's refusal of an answer, if it waits for a different one; it is then the call's
        response."""

    @property
    def given(self) -> Mapping[str, Answer]:
        """The answers that are still to be sent, by the server's keys."""
        return self._given

    def recall(self, asked: Mapping[str, Question]) -> None:
        """Ask questions again that another process may have left open."""
        for key, question in asked.items():
            self._hear(key, question)

    def show(self, questions: Mapping[str, Question]) -> None:
        """Take the open questions of a poll: ask new ones, withdraw missing ones, have answers sent
        again that are still missing."""
        for key in [key for key in self._asked if key not in questions]:
            self._forget(key)
        for key, question in questions.items():
            if key not in self._asked:
                self._put(key, question)
            elif key in self._brought and not self._is_refused(key):
                # Still open: the server may have lost the answer, or could not take it.
                self._given[key] = self._brought.pop(key)

    def bringing(self) -> dict[str, tuple[Question, Answer]]:
        """Return all answers to send now, with their questions."""
        return {key: (self._asked[key], answer) for key, answer in self._given.items()}

    def brought(self, given: Mapping[str, tuple[Question, Answer]], response: Response) -> None:
        """Note that these answers were sent, and the server's response to them: accepted or
        refused."""
        for key, (_, answer) in given.items():
            self._given.pop(key, None)
            self._brought[key] = answer
            if response.error is not None:
                self._refusals.setdefault(key, []).append(response)

    def close(self) -> None:
        """Withdraw and forget all questions."""
        for key in tuple(self._asked):
            self._forget(key)

    # --- the asker of its questions -----------------------------------------------------------------------------------

    def answered(self, name: str, answer: Answer, principal: Principal | None) -> None:
        del self._open[name]
        self._call.asks(-1)
        # The same caller with a newer token, which is valid for longer than that of the call.
        self._call.principal = principal or self._call.principal
        self._take(name, answer)

    def no_answer(self, question: Question) -> Answer:
        return self._dialect.default_answer(question)

    def _put(self, key: str, question: Question) -> None:
        """Ask a new question, or answer it for a host that cannot be asked."""
        if self._dialect.can_ask(self._host, question):
            self._hear(key, question)
        else:
            # Questions that the host did not declare are not asked, so they have no answer
            # (L-INPUT-6).
            self._asked[key] = question
            self._take(key, self.no_answer(question))

    def _hear(self, key: str, question: Question) -> None:
        """Ask a question by the call's listener."""
        self._asked[key] = question
        listener = self._call.listener
        assert listener is not None, "only a call with a listener becomes a task"
        self._open[key] = asked = RoundQuestion(key, question, self, lasts=True)
        self._call.asks(1)
        listener.asked(asked)

    def _take(self, key: str, answer: Answer) -> None:
        """Take an answer, to be sent."""
        if self._dialect.input_responses({key: (self._asked[key], answer)}) is None:
            self.is_hopeless = True
        else:
            self._given[key] = answer
        self._stir()

    def _is_refused(self, key: str) -> bool:
        """Whether the server refused the answer for good, or too often; sets `refusal`."""
        refusals = self._refusals.get(key, [])
        if len(refusals) >= TRIES or any(_is_about_it(each) for each in refusals):
            self.refusal = refusals[-1]
        return self.refusal is not None

    def _forget(self, key: str) -> None:
        del self._asked[key]
        self._given.pop(key, None)
        self._brought.pop(key, None)
        self._refusals.pop(key, None)
        asked = self._open.pop(key, None)
        if asked is not None:
            self._call.asks(-1)
            asked.withdraw()


def _is_about_it(refusal: Response) -> bool:
    return refusal.error_code == INVALID_PARAMS
