"""Input requests of a server task: `TaskQuestions` asks each once and gets its answer accepted.

The server shows the open questions of its task in each poll. A new one is asked; its answer is then
"given", which means to be sent, and after `tasks/update` "brought". If the server shows it again
all the same, the answer is sent again. A question that the server no longer shows is withdrawn and
forgotten. `FollowedTask` passes on the polls and sends the answers. Keys of a task's questions are
unique (M-UPD-4).
"""

from collections.abc import Callable, Mapping
from typing import Final

from taskgate.domain.versions import Peer
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import Answer, Question
from taskgate.protocol.vocabulary import INVALID_PARAMS
from taskgate.upstream.calls import Call
from taskgate.upstream.context import ModernUpstreamContext
from taskgate.upstream.modern.open_question import RoundQuestion
from taskgate.upstream.principal import Principal

TRIES: Final = 3
"""How often an answer is sent that the server refuses, for a reason that may be temporary."""


class TaskQuestions:
    """The questions of the task that `call` became.

    `stir` is called when there is an answer to send, or one that cannot be expressed.
    """

    def __init__(
        self, upstream_context: ModernUpstreamContext, host: Peer | None, call: Call, stir: Callable[[], None]
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
