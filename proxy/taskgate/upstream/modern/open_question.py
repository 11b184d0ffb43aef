"""A question of a server of this era while nobody has answered it: in a round, or of a task of the server's own.

What must not live here: who is asked (whoever hears it decides), and how the answer gets to the server.
"""

from collections.abc import Callable
from typing import Protocol

from taskgate.protocol.envelope import Notification
from taskgate.protocol.questions import Answer, Question
from taskgate.upstream.principal import Principal


class Asker(Protocol):
    """Whoever waits for the answer."""

    def answered(self, name: str, answer: Answer, principal: Principal | None) -> None:
        """Somebody answered; told once."""
        ...

    def no_answer(self, question: Question) -> Answer:
        """What stands for the answer where nobody gave any."""
        ...


class RoundQuestion:
    """One question, which its server calls `name`; see ServerQuestion.

    `lasts` is of a name that is good for more than the next request: by that another process can answer.
    """

    __slots__ = ("_asker", "_forgets", "_name", "_was_withdrawn", "key", "question")

    def __init__(self, name: str, question: Question, asker: Asker, *, lasts: bool = False) -> None:
        self.question = question
        self.key = name if lasts else None
        """See ServerQuestion."""
        self._name = name
        self._asker: Asker | None = asker
        self._forgets: list[Callable[[], None]] = []
        self._was_withdrawn = False

    @property
    def is_open(self) -> bool:
        """See ServerQuestion."""
        return self._asker is not None

    def answer(self, answer: Answer, principal: Principal | None = None) -> None:
        """See ServerQuestion."""
        asker, self._asker = self._asker, None
        if asker is not None:
            self._forgets = []
            asker.answered(self._name, answer, principal)

    def refuse(self) -> None:
        """See ServerQuestion."""
        if self._asker is not None:
            self.answer(self._asker.no_answer(self.question))

    def tell(self, notification: Notification) -> None:
        """See ServerQuestion. A server of this era does not hear of it: it waits for nothing on any stream."""

    def when_withdrawn(self, forget: Callable[[], None]) -> None:
        """See ServerQuestion."""
        if self._asker is not None:
            self._forgets.append(forget)
        elif self._was_withdrawn:
            forget()

    def withdraw(self) -> None:
        """Nobody can answer it any more."""
        self._asker, self._was_withdrawn = None, True
        forgets, self._forgets = self._forgets, []
        for forget in forgets:
            forget()
