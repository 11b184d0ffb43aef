"""Questions of a server to a legacy host, outside of tasks: `SessionQuestions` sends them.

A question goes out on the stream of its call, else on a GET stream, else it waits for one. If that
stream ends, the question goes to another one. It is on one stream at a time, and its first answer
counts. Every question ends once. It is answered, refused (after a time, or as the session ends), or
withdrawn by the server. If it ends without the host's answer, the host is told that none is needed.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from logging import getLogger
from typing import Final, Protocol

from taskgate.admission.rules import MAX_QUESTION, QuestionBounds
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import Answer
from taskgate.streams.event_stream import EventStream
from taskgate.upstream.calls import ServerQuestion

ID_PREFIX: Final = "question-"
"""The start of a question's id; the name of the asking replica may follow."""

WITHDRAWN: Final = "The answer is no longer needed"
"""The reason for a host when a question, of a task or not, is withdrawn."""

log = getLogger("taskgate.questions")


class QuestionStream(Protocol):
    """A stream on which a question was sent: of this process, or of another replica."""

    def send(self, message: str) -> bool:
        """Send a message; returns whether the host can get it."""
        ...


class QuestionRoute(Protocol):
    """A way to the host: the stream of a call, or the GET streams of a session."""

    def send_question(self, message: str) -> QuestionStream | None:
        """Send a question on one stream; None if no stream takes it."""
        ...


class _OpenQuestion:
    """A question without an answer; `stream` is the one it was sent on, None while it waits."""

    __slots__ = ("message", "question", "routes", "stream", "timer")

    def __init__(
        self, question: ServerQuestion, message: str, routes: tuple[QuestionRoute, ...], timer: asyncio.TimerHandle
    ) -> None:
        self.question = question
        self.message = message
        self.routes = routes
        self.timer = timer
        self.stream: QuestionStream | None = None

    def send(self) -> None:
        """Send it on the first route with a stream that takes it."""
        for route in self.routes:
            self.stream = route.send_question(self.message)
            if self.stream is not None:
                return


class SessionQuestions:
    """The open questions to the host of one session; refused together when the session ends.

    `replica` is the name of this process if others ask the same host: it becomes part of the ids.
    `on_change` is called when a GET stream has opened, with None, and when one has ended, with it.
    """

    def __init__(
        self,
        *,
        dialect: LegacyDownstream,
        bounds: QuestionBounds,
        replica: str = "",
        on_change: Callable[[EventStream | None], None] = lambda _: None,
    ) -> None:
        self._dialect = dialect
        self._bounds = bounds
        self._prefix = f"{ID_PREFIX}{replica}-" if replica else ID_PREFIX
        self._on_change = on_change
        self._numbers = count(1)
        self._open: dict[str, _OpenQuestion] = {}
        self._is_closed = False
        self._has_warned = False

    def ask(self, question: ServerQuestion, *routes: QuestionRoute) -> None:
        """Ask the host on the first route that has a stream, now or when one opens.

        The question is refused at once if it is too large, too many are open, or the session ended.
        """
        params = question.question.params
        if self._is_closed:
            question.refuse()
            return
        if len(self._open) >= self._bounds.outstanding or (params is not None and params.size > MAX_QUESTION):
            if not self._has_warned:
                # One line per session, because the server decides how often this happens.
                self._has_warned = True
                log.warning("input requests of a server are rejected: too many or too large")
            question.refuse()
            return
        id_ = f"{self._prefix}{next(self._numbers)}"
        timer = asyncio.get_running_loop().call_later(self._bounds.wait.total_seconds(), self._expire, id_)
        message = self._dialect.question(id_, question.question)
        asked = self._open[id_] = _OpenQuestion(question, message, routes, timer)
        asked.send()
        question.when_withdrawn(partial(self._on_withdrawn, id_))

    def withdraw(self, route: QuestionRoute) -> Sequence[ServerQuestion]:
        """Withdraw the open questions of a call from the host, and return them: another asks them."""
        ids = [id_ for id_, asked in self._open.items() if asked.routes[0] is route]
        return [asked.question for asked in map(self._withdraw, ids) if asked is not None]

    def answer(self, id: str, answer: Answer) -> bool:
        """Send the host's answer to the server; returns whether the question was open."""
        asked = self._remove(id)
        if asked is not None:
            asked.question.answer(answer)
        return asked is not None

    def is_open(self, id: str) -> bool:
        """Whether the host was asked that question, and has not answered it."""
        return id in self._open

    def on_progress(self, id: str, notification: Notification) -> bool:
        """Send the host's progress to the server; returns whether the question is open."""
        asked = self._open.get(id)
        if asked is not None:
            asked.question.tell(notification)
        return asked is not None

    def on_stream_opened(self) -> None:
        """Handle a new GET stream of this process: questions that wait for a stream are sent."""
        self._on_change(None)
        self.resend()

    def resend(self) -> None:
        """Send the questions that wait for a stream, if there is one by now, here or elsewhere."""
        for asked in tuple(self._open.values()):
            if asked.stream is None:
                asked.send()

    def on_stream_ended(self, stream: EventStream) -> None:
        """Handle the end of a GET stream of this process."""
        self._on_change(stream)
        self.on_stream_lost(stream)

    def on_stream_lost(self, stream: QuestionStream) -> None:
        """Send the questions of a stream that ended, here or elsewhere, on another one."""
        for asked in tuple(self._open.values()):
            if asked.stream is stream:
                asked.stream = None
                asked.send()

    def close(self) -> None:
        """Refuse all questions, because the session has ended."""
        self._is_closed = True
        for id_ in tuple(self._open):
            self._refuse(id_)

    def _on_withdrawn(self, id: str) -> None:
        """Handle that the server withdrew a question: it needs no answer, so none is sent."""
        self._withdraw(id)

    def _expire(self, id: str) -> None:
        log.info("an input request of a server was not answered in time")
        self._refuse(id)

    def _refuse(self, id: str) -> None:
        asked = self._withdraw(id)
        if asked is not None:
            asked.question.refuse()

    def _withdraw(self, id: str) -> _OpenQuestion | None:
        """Stop waiting for an answer, and withdraw the question from the host if it was sent."""
        asked = self._remove(id)
        if asked is not None and asked.stream is not None:
            asked.stream.send(self._dialect.withdrawal(id, WITHDRAWN))
        return asked

    def _remove(self, id: str) -> _OpenQuestion | None:
        """Return a question that is no longer open from now on; None if it was not."""
        asked = self._open.pop(id, None)
        if asked is not None:
            asked.timer.cancel()
        return asked


def asking_replica(id: str) -> str | None:
    """Return the name of the replica that sent the question with this id; None if the id has none.

    The host may have made the id up, so the name need not be one of a replica.
    """
    replica, dash, _ = id.removeprefix(ID_PREFIX).partition("-")
    return replica if id.startswith(ID_PREFIX) and dash else None
