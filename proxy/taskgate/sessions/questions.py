"""The questions of a server that belong to no task: asked of the host of its session, and answered by it.

A question goes out on the stream of the call it is asked for, else on a GET stream, else it waits for one. What must
not live here: what is asked. What holds: it is on one stream at a time, the first answer is the only one, and a server
that asks is always answered, or has gone.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from logging import getLogger
from typing import Final, Protocol

from taskgate.admission.rules import MAX_QUESTION, QuestionBounds
from taskgate.protocol.dialects import LegacyDownstreamDialect
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import Answer
from taskgate.streams.event_stream import EventStream
from taskgate.upstream.call_listener import ServerQuestion

ASKED: Final = "question-"
"""What the id of a question begins with; the process that asked it may stand behind."""

GIVEN_UP: Final = "The answer is no longer needed"
"""What a host is told of a question, of a task or not, that is taken back."""

log = getLogger("taskgate.questions")


class Carrying(Protocol):
    """A stream that a question went out on: one of this process, or what is at another."""

    def send(self, message: str) -> bool:
        """Say something on it."""
        ...


class Carrier(Protocol):
    """Finds a stream that a question can go out on."""

    def carry(self, message: str) -> Carrying | None:
        """Send a message on one stream; None where there is none that takes it."""
        ...


class _Open:
    """One question that waits; `feed` is the stream that carries it."""

    __slots__ = ("carriers", "feed", "message", "question", "timer")

    def __init__(
        self, question: ServerQuestion, message: str, carriers: tuple[Carrier, ...], timer: asyncio.TimerHandle
    ) -> None:
        self.question = question
        self.message = message
        self.carriers = carriers
        self.timer = timer
        self.feed: Carrying | None = None

    def send(self) -> None:
        """Put it on the first stream that takes it."""
        for carrier in self.carriers:
            self.feed = carrier.carry(self.message)
            if self.feed is not None:
                return


class SessionQuestions:
    """The open questions to one host session.

    `mark` stands in their ids where other processes ask the same host, too. `moved` hears of streams that came (None)
    or ended.
    """

    def __init__(
        self,
        *,
        dialect: LegacyDownstreamDialect,
        bounds: QuestionBounds,
        mark: str = "",
        moved: Callable[[EventStream | None], None] = lambda _: None,
    ) -> None:
        self._dialect = dialect
        self._bounds = bounds
        self._prefix = f"{ASKED}{mark}-" if mark else ASKED
        self._moved = moved
        self._numbers = count(1)
        self._open: dict[str, _Open] = {}
        self._closed = False
        self._has_told = False

    def ask(self, question: ServerQuestion, *carriers: Carrier) -> None:
        """Ask the host, on a stream of the first of the carriers that has one, now or later."""
        params = question.question.params
        if self._closed:
            question.refuse()
            return
        if len(self._open) >= self._bounds.outstanding or (params is not None and params.size > MAX_QUESTION):
            if not self._has_told:
                # Once: how often it happens is the server's to decide.
                self._has_told = True
                log.warning("input requests of a server are rejected: too many or too large")
            question.refuse()
            return
        id_ = f"{self._prefix}{next(self._numbers)}"
        timer = asyncio.get_running_loop().call_later(self._bounds.wait.total_seconds(), self._expire, id_)
        message = self._dialect.question(id_, question.question)
        asked = self._open[id_] = _Open(question, message, carriers, timer)
        asked.send()
        question.when_withdrawn(partial(self._withdraw, id_))

    def answer(self, id: str, answer: Answer) -> bool:
        """Give the server the host's answer; whether it waited for one."""
        asked = self._taken(id)
        if asked is not None:
            asked.question.answer(answer)
        return asked is not None

    def tell(self, id: str, notification: Notification) -> bool:
        """Tell the server how far the host is with one; whether there is such a question."""
        asked = self._open.get(id)
        if asked is not None:
            asked.question.tell(notification)
        return asked is not None

    def stream_opened(self) -> None:
        """There is a stream that was not there before."""
        self._moved(None)
        self.carry()

    def carry(self) -> None:
        """Ask what is on no stream, where there is one by now."""
        for asked in tuple(self._open.values()):
            if asked.feed is None:
                asked.send()

    def stream_ended(self, feed: EventStream) -> None:
        """What a stream carried that ended is for another one."""
        self._moved(feed)
        self.lost(feed)

    def lost(self, feed: Carrying) -> None:
        """The same of any stream, this process's or not."""
        for asked in tuple(self._open.values()):
            if asked.feed is feed:
                asked.feed = None
                asked.send()

    def close(self) -> None:
        """The session is over: nobody answers any more."""
        self._closed = True
        for id_ in tuple(self._open):
            self._refuse(id_)

    def _withdraw(self, id: str) -> None:
        self._give_up(id)

    def _expire(self, id: str) -> None:
        log.info("an input request of a server was not answered in time")
        self._refuse(id)

    def _refuse(self, id: str) -> None:
        asked = self._give_up(id)
        if asked is not None:
            asked.question.refuse()

    def _give_up(self, id: str) -> _Open | None:
        """Wait for an answer no more, and tell the host so if it was asked."""
        asked = self._taken(id)
        if asked is not None and asked.feed is not None:
            asked.feed.send(self._dialect.withdrawal(id, GIVEN_UP))
        return asked

    def _taken(self, id: str) -> _Open | None:
        """A question that nobody else gets from now on."""
        asked = self._open.pop(id, None)
        if asked is not None:
            asked.timer.cancel()
        return asked


def asked_by(id: str) -> str | None:
    """The mark in the id of a question; None where there is none."""
    mark, dash, _ = id.removeprefix(ASKED).partition("-")
    return mark if id.startswith(ASKED) and dash else None
