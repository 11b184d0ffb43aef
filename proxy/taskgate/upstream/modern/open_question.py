"""Open question of a modern server: `RoundQuestion`, in a round of a call or of a server's task.

`questions` and `task_questions` create it as its `Asker` and give it to the call's listener. They
send the answer to the server.
"""

from collections.abc import Callable
from typing import Protocol

from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import Answer, Question
from taskgate.upstream.principal import Principal


class Asker(Protocol):
    """Receiver of the answer."""

    def answered(self, name: str, answer: Answer, principal: Principal | None) -> None:
        """Receive the answer; called once."""
        ...

    def no_answer(self, question: Question) -> Answer:
        """Return the answer for a host that gave none."""
        ...


class RoundQuestion:
    """A `ServerQuestion` that the server calls `name`.

    `lasts`: the name is valid beyond the next request, so that another process can answer by it.
    """

    __slots__ = ("_asker", "_forgets", "_name", "_was_withdrawn", "key", "question")

    def __init__(self, name: str, question: Question, asker: Asker, *, lasts: bool = False) -> None:
        self.question = question
        self.key = name if lasts else None
        """The server's name, if it is valid in other processes; None otherwise."""
        self._name = name
        self._asker: Asker | None = asker
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
        """Withdraw the question: it can no longer be answered."""
        self._asker, self._was_withdrawn = None, True
        forgets, self._forgets = self._forgets, []
        for forget in forgets:
            forget()
