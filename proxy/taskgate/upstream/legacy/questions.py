"""Open questions of a server in one conversation: `Questions`, each answered once or withdrawn.

`attribution` finds the call that a question is for. `Conversation` registers the question here, and
gives the `OpenQuestion` to the listener of that call. A question is open until it is answered or
withdrawn; the answer is posted in the background.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, Protocol

from taskgate.domain.record import RequestId
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import Answer, Question, ReceivedQuestion
from taskgate.upstream.calls import Call
from taskgate.upstream.principal import Principal

MAX_OPEN: Final = 64
"""Questions that may be open in one conversation: more than any tool asks at once."""


class Say(Protocol):
    """A function that sends a message in the background."""

    def __call__(self, message: str, *, droppable: bool = False) -> None: ...


Reply = Callable[[str, Principal | None], None]
"""Sends an answer in the background, on behalf of a principal."""


class OpenQuestion:
    """A `ServerQuestion` of a legacy server. `call` is the call that it is asked for, None if there
    is none.

    `key` is its name for other processes: the server's id as JSON, None without a call.
    `came_aside`: it came outside of the call's stream. `guessed`: it may be for another call.
    """

    __slots__ = (
        "_id",
        "_questions",
        "_token",
        "_was_withdrawn",
        "_when_withdrawn",
        "asked",
        "call",
        "came_aside",
        "guessed",
        "key",
        "question",
    )  # fmt: skip

    def __init__(
        self, asked: ReceivedQuestion, questions: "Questions", call: Call | None, *, came_aside: bool, guessed: bool
    ) -> None:
        self.asked = asked
        self.question = asked.question
        self.key = None if call is None else json.dumps(asked.id)
        self.call = call
        self.came_aside = came_aside
        self.guessed = guessed
        self._id = asked.id
        self._token = asked.progress_token
        # None once it is no longer open.
        self._questions: Questions | None = questions
        self._when_withdrawn: list[Callable[[], None]] = []
        self._was_withdrawn = False

    @property
    def is_open(self) -> bool:
        return self._questions is not None

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
        questions, self._questions = self._questions, None
        if questions is not None:
            self._when_withdrawn = []
            questions.answered(self._id, answer, principal)

    def refuse(self) -> None:
        if self._questions is not None:
            self.answer(self._questions.no_answer(self.question.method))

    def tell(self, notification: Notification) -> None:
        if self._questions is not None and self._token is not None:
            self._questions.tell(notification, self._token)

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        if self._questions is not None:
            self._when_withdrawn.append(forget)
        elif self._was_withdrawn:
            forget()

    def withdraw(self) -> None:
        """Close the question without an answer, and tell those who asked by `when_withdrawn`."""
        self._questions, self._was_withdrawn = None, True
        callbacks, self._when_withdrawn = self._when_withdrawn, []
        for forget in callbacks:
            forget()


class Questions:
    """The open questions of one conversation."""

    def __init__(self, dialect: LegacyUpstream, say: Say, reply: Reply) -> None:
        self._dialect = dialect
        self._say = say
        self._reply = reply
        self.open: dict[RequestId, OpenQuestion] = {}
        """The open questions, by the server's ids."""

    def ask(
        self, asked: ReceivedQuestion, call: Call | None, *, came_aside: bool, guessed: bool = False
    ) -> OpenQuestion | None:
        """Register a question and return it.

        None if it is open already, or if MAX_OPEN are: then it is refused at the server.
        """
        if asked.id in self.open:
            # Repeated by a stream that was reopened; the first one will be answered.
            return None
        if len(self.open) >= MAX_OPEN:
            refusal = self._dialect.default_answer(asked.question.method)
            self._say(self._dialect.answer(asked.id, refusal), droppable=True)
            return None
        question = self.open[asked.id] = OpenQuestion(asked, self, call, came_aside=came_aside, guessed=guessed)
        if call is not None:
            call.asks(1)
        return question

    def answered(self, id: RequestId, answer: Answer, principal: Principal | None) -> None:
        """Send the answer to an open question, and forget the question. `OpenQuestion` calls it."""
        self._remove(id)
        self._reply(self._dialect.answer(id, answer), principal)

    def no_answer(self, method: str) -> Answer:
        """Return the answer to a question of this method for a host that gave none."""
        return self._dialect.default_answer(method)

    def tell(self, notification: Notification, token: RequestId) -> None:
        """Send the host's progress on a question."""
        self._say(self._dialect.notification(notification, token), droppable=True)

    def withdraw(self, id: RequestId) -> None:
        """Withdraw a question: the server no longer waits. An unknown id is ignored."""
        question = self._remove(id)
        if question is not None:
            question.withdraw()

    def hand_over(self, call: Call, whole: Call) -> None:
        """Move the open questions of a call that became a task to `whole`, its `TaskCall`."""
        for question in self.open.values():
            if question.call is call:
                question.call = whole
                whole.asks(1)

    def end_of(self, call: Call, *, is_left: bool) -> list[ReceivedQuestion]:
        """Withdraw the questions of a call that is over; return those that may be for another call.

        A question outside of the call's stream does not end with the call for its server, so it is
        refused there. With `is_left` another process resumes the call and gets its questions: none
        is refused or returned.
        """
        others: list[ReceivedQuestion] = []
        for id_, question in tuple(self.open.items()):
            if question.call is call:
                self.withdraw(id_)
                if question.guessed and not is_left:
                    others.append(question.asked)
                elif question.came_aside and not is_left:
                    self._reply(self._dialect.answer(id_, self._dialect.default_answer(question.question.method)), None)
        return others

    def end(self) -> None:
        """Withdraw all questions: the conversation is over."""
        for id_ in tuple(self.open):
            self.withdraw(id_)

    def _remove(self, id: RequestId) -> OpenQuestion | None:
        """Remove a question, and let the time of its call run again if it was its last."""
        question = self.open.pop(id, None)
        if question is not None and question.call is not None:
            question.call.asks(-1)
        return question


def asked_again(asked: Mapping[str, Question]) -> Iterator[ReceivedQuestion]:
    """Yield the questions that another process got, by the keys they had there; invalid keys are
    skipped."""
    for key, question in asked.items():
        with suppress(ValueError):
            id_ = json.loads(key)
            if isinstance(id_, str | int):
                yield ReceivedQuestion(id_, question, None)
