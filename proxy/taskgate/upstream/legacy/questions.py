"""What a server asked in one conversation and waits for: each is answered once, or withdrawn, and told about it.

What must not live here: who is asked (whoever hears it decides), what a message means (a dialect).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, Protocol

from taskgate.domain.record import RequestId
from taskgate.protocol.base import UpstreamDialect
from taskgate.protocol.envelope import Notification
from taskgate.protocol.questions import Answer, Question, ReceivedQuestion
from taskgate.upstream.calls import Call
from taskgate.upstream.principal import Principal

MAX_OPEN: Final = 64
"""Questions that one conversation may have open: more than any tool asks at once, and a bound for a mad one."""


class Say(Protocol):
    """Sends a message in the background."""

    def __call__(self, message: str, *, droppable: bool = False) -> None: ...


Reply = Callable[[str, Principal | None], None]
"""Sends an answer in the background, for whom it is."""


class OpenQuestion:
    """One question; see ServerQuestion. `call` is the one it is asked for, None where it belongs to none."""

    __slots__ = (
        "_forgets", "_id", "_questions", "_token", "_was_withdrawn",
        "asked", "call", "came_aside", "guessed", "key", "question",
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
        self._questions: Questions | None = questions
        self._forgets: list[Callable[[], None]] = []
        self._was_withdrawn = False

    @property
    def is_open(self) -> bool:
        """See ServerQuestion."""
        return self._questions is not None

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
        """See ServerQuestion."""
        questions, self._questions = self._questions, None
        if questions is not None:
            self._forgets = []
            questions.answered(self._id, answer, principal)

    def refuse(self) -> None:
        """See ServerQuestion."""
        if self._questions is not None:
            self.answer(self._questions.no_answer(self.question.method))

    def tell(self, notification: Notification) -> None:
        """See ServerQuestion."""
        if self._questions is not None and self._token is not None:
            self._questions.tell(notification, self._token)

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        """See ServerQuestion."""
        if self._questions is not None:
            self._forgets.append(forget)
        elif self._was_withdrawn:
            forget()

    def withdraw(self) -> None:
        """Nobody can answer it any more."""
        self._questions, self._was_withdrawn = None, True
        forgets, self._forgets = self._forgets, []
        for forget in forgets:
            forget()


class Questions:
    """The open questions of one conversation."""

    def __init__(self, dialect: UpstreamDialect, say: Say, reply: Reply) -> None:
        self._dialect = dialect
        self._say = say
        self._reply = reply
        self._open: dict[RequestId, OpenQuestion] = {}

    def ask(
        self, asked: ReceivedQuestion, call: Call | None, *, came_aside: bool, guessed: bool = False
    ) -> OpenQuestion | None:
        """A new question; None where it is asked already, and where it is one too many, which the server is told."""
        if asked.id in self._open:
            # Asked again, by a stream that was taken up again for one: it will be answered.
            return None
        if len(self._open) >= MAX_OPEN:
            refusal = self._dialect.no_answer(asked.question.method)
            self._say(self._dialect.answer(asked.id, refusal), droppable=True)
            return None
        question = self._open[asked.id] = OpenQuestion(asked, self, call, came_aside=came_aside, guessed=guessed)
        if call is not None:
            call.asks(1)
        return question

    def answered(self, id: RequestId, answer: Answer, principal: Principal | None) -> None:
        """Somebody answered: the server hears it."""
        self._taken(id)
        self._reply(self._dialect.answer(id, answer), principal)

    def no_answer(self, method: str) -> Answer:
        """What stands for the answer to such a question where nobody gave any."""
        return self._dialect.no_answer(method)

    def tell(self, notification: Notification, token: RequestId) -> None:
        """Somebody is so far with it."""
        self._say(self._dialect.pass_on(notification, token), droppable=True)

    def withdraw(self, id: RequestId) -> None:
        """The server does not wait any more; an id that it did not ask under names nothing."""
        question = self._taken(id)
        if question is not None:
            question.withdraw()

    def hand_over(self, call: Call, whole: Call) -> None:
        """What was asked for that call is asked for another, of which it was the first part."""
        for question in self._open.values():
            if question.call is call:
                question.call = whole
                whole.asks(1)

    def end_of(self, call: Call, *, is_left: bool) -> list[ReceivedQuestion]:
        """That call is over here, and with it what was asked for it; what may be for another call is handed back.

        What came beside its stream may belong to more than the call: its server hears that nobody answers, unless the
        call is left for somebody else to go on with.
        """
        others: list[ReceivedQuestion] = []
        for id_, question in tuple(self._open.items()):
            if question.call is call:
                self.withdraw(id_)
                if question.guessed and not is_left:
                    others.append(question.asked)
                elif question.came_aside and not is_left:
                    self._reply(self._dialect.answer(id_, self._dialect.no_answer(question.question.method)), None)
        return others

    def end(self) -> None:
        """The conversation is over."""
        for id_ in tuple(self._open):
            self.withdraw(id_)

    def _taken(self, id: RequestId) -> OpenQuestion | None:
        question = self._open.pop(id, None)
        if question is not None and question.call is not None:
            question.call.asks(-1)
        return question


def asked_again(asked: Mapping[str, Question]) -> Iterator[ReceivedQuestion]:
    """What a server asked another process, by the keys that it had there; what can be none is passed over."""
    for key, question in asked.items():
        with suppress(ValueError):
            id_ = json.loads(key)
            if isinstance(id_, str | int):
                yield ReceivedQuestion(id_, question, None)
