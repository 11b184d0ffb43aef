"""Calls that their server made tasks of, for as long as each is followed to its end: what is told of them is for these.

What must not live here: requests, and when a task is looked at (`native`).
"""

import asyncio
from collections.abc import Iterator

from taskgate.domain.record import TaskStatus
from taskgate.protocol.progress import done_of, in_words
from taskgate.protocol.server_tasks import ServerTask
from taskgate.upstream.calls import Call, UpstreamRequest


class TaskCall(Call):
    """A call whose task at the server is followed; see Call. `task` is as it was shown last.

    `stirs` is set whenever there is something to do for it. Where its host wants to know how far it is, it is told what
    the task says of itself, too.
    """

    __slots__ = ("_said", "_tells", "_turn", "is_ahead", "stirs", "task")

    def __init__(self, id: int, errand: UpstreamRequest, task: ServerTask, *, tells: bool, spent: float = 0) -> None:
        super().__init__(id, errand.listener, errand.bounds, principal=errand.principal, spent=spent)
        self.sent = True
        self.stirs = asyncio.Event()
        self.task = task._replace(message=None)
        self.is_ahead = False
        """Whether its server was given an answer since it was held last; see CallListener."""
        self._tells = tells
        self._said: str | None = None
        self._turn = 0

    def is_working(self) -> bool:
        """Whether its task goes on by itself: it is neither over, nor does it wait for somebody."""
        return self.task.status is TaskStatus.WORKING

    def is_over(self) -> bool:
        """Whether its task has ended, however it did."""
        return self.task.status.is_terminal

    def shows(self, task: ServerTask) -> None:
        """Its server shows how its task is. What is told after the task was over is late, and means nothing."""
        before = self.task
        if self.is_over():
            return
        self.task = task._replace(interval=task.interval or before.interval)
        if self.task != before:
            self.progressed()
        if task.message is not None and task.message != self._said:
            self._said = task.message
            self._tell(task.message)
        if not self.is_working():
            self.stirs.set()

    def asks(self, questions: int) -> None:
        """See Call."""
        super().asks(questions)
        if questions < 0:
            self.is_ahead = True
            self.stirs.set()

    def _tell(self, message: str) -> None:
        """Tell what the task says of itself, further than whatever was told in numbers."""
        self._turn += 1
        after = None if self.told is None else done_of(self.told)
        if self._tells and self.listener is not None:
            self.listener.on_notification(in_words(self.id, message, self._turn, after or 0.0))


class FollowedCalls:
    """The calls that are followed in one conversation, whether or not they were made in it."""

    def __init__(self) -> None:
        self._calls: dict[int, TaskCall] = {}
        self._parts: dict[int, TaskCall] = {}
        self._expected: set[int] = set()

    def __iter__(self) -> Iterator[TaskCall]:
        return iter(tuple(self._calls.values()))

    def expect(self, id: int) -> None:
        """A call with that id is about to leave, of which the server may make a task."""
        self._expected.add(id)

    @property
    def making(self) -> frozenset[int]:
        """The ids of all calls of which that may still turn out."""
        return frozenset(self._expected)

    def expects(self, id: int) -> bool:
        """Whether that may still turn out."""
        return id in self._expected

    def met(self, id: int) -> bool:
        """It turned out; whether it was expected."""
        was_expected = id in self._expected
        self._expected.discard(id)
        return was_expected

    def begin(self, call: TaskCall) -> None:
        """It is followed from now on."""
        self._calls[call.id] = call

    def end(self, call: Call) -> None:
        """It is not followed any more, nor is any request a part of it."""
        if self._calls.get(call.id) is call:
            del self._calls[call.id]
            self._parts = {part: whole for part, whole in self._parts.items() if whole is not call}

    def has_part(self, part: int, whole: TaskCall) -> None:
        """What is said and asked on the stream of the request with that id is said and asked of the call."""
        self._parts[part] = whole

    def whole(self, call: Call) -> Call:
        """The call that a request is made for: itself, nearly always."""
        return self._parts.get(call.id, call)

    def of_token(self, token: int) -> TaskCall | None:
        """The call that was given that progress token."""
        return self._calls.get(token)

    def of_task(self, task: str) -> TaskCall | None:
        """The call that the server made that task of."""
        return next((call for call in self._calls.values() if call.task.id == task), None)

    def shows(self, task: ServerTask) -> None:
        """The server tells by itself how a task is; one that is not followed is none of ours to know."""
        call = self.of_task(task.id)
        if call is not None:
            call.shows(task)
