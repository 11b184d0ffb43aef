"""Open question of a modern server: `RoundQuestion`, in a round of a call or of a server's task.

`questions` and `task_questions` create it and give it to the call's listener. It is open until it
is answered or refused by the host's side, or withdrawn by its creator. Its creator is its `Asker`,
which gets the answer and sends it to the server.
"""

from collections.abc import Callable
from typing import Protocol

from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import Answer, Question
from taskgate.upstream.principal import Principal


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
