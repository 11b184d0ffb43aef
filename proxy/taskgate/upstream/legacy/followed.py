"""Calls that their server made tasks of (2025-11-25): `TaskCall` and `FollowedCalls`.

They receive what the server says of its tasks and asks for them. `native` makes a `TaskCall`,
`following` polls its task, and `Conversation` finds it by token, task or request id.
"""

import asyncio
from collections.abc import Iterator

from taskgate.domain.record import TaskStatus
from taskgate.protocol.server_messages import ServerTask, progress_done, text_progress
from taskgate.upstream.calls import Call, UpstreamRequest


class TaskCall(Call):
    """A `Call` whose task at the server is followed. `task` is its last known state.

    `stirs` is set when there is something to do for it. If its host wants progress, status messages
    of the task are sent as progress too.
    """

    __slots__ = ("_said", "_tells", "_turn", "is_ahead", "stirs", "task")

    def __init__(self, id: int, errand: UpstreamRequest, task: ServerTask, *, tells: bool, spent: float = 0) -> None:
        super().__init__(id, errand.listener, errand.bounds, principal=errand.principal, spent=spent)
        self.sent = True
        self.stirs = asyncio.Event()
        self.task = task._replace(message=None)
        self.is_ahead = False
        """Whether an answer was sent to the server since the last resume point; see
        `CallListener.on_checkpoint`."""
        self._tells = tells
        self._said: str | None = None
        self._turn = 0

    def is_working(self) -> bool:
        """Whether its task runs: it is neither over nor does it wait for input."""
        return self.task.status is TaskStatus.WORKING

    def is_over(self) -> bool:
        """Whether its task has ended."""
        return self.task.status.is_terminal

    def shows(self, task: ServerTask) -> None:
        """Take a new state of the task. A state after the terminal one is late and ignored."""
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
        super().asks(questions)
        if questions < 0:
            self.is_ahead = True
            self.stirs.set()

    def _tell(self, message: str) -> None:
        """Send a status message of the task as progress, with a number above the last one."""
        self._turn += 1
        after = None if self.told is None else progress_done(self.told)
        if self._tells and self.listener is not None:
            self.listener.on_notification(text_progress(self.id, message, self._turn, after or 0.0))


class FollowedCalls:
    """The calls that are followed in one conversation, whether or not they were made in it."""

    def __init__(self) -> None:
        self._calls: dict[int, TaskCall] = {}
        self._parts: dict[int, TaskCall] = {}
        self._expected: set[int] = set()

    def __iter__(self) -> Iterator[TaskCall]:
        return iter(tuple(self._calls.values()))

    def expect(self, id: int) -> None:
        """Register a call that is about to be sent and may become a task."""
        self._expected.add(id)

    @property
    def making(self) -> frozenset[int]:
        """The ids of calls that may still become tasks."""
        return frozenset(self._expected)

    def expects(self, id: int) -> bool:
        """Whether this call may still become a task."""
        return id in self._expected

    def met(self, id: int) -> bool:
        """Report that it is known whether the call became a task; returns whether it was expected."""
        was_expected = id in self._expected
        self._expected.discard(id)
        return was_expected

    def begin(self, call: TaskCall) -> None:
        """Start to follow a call."""
        self._calls[call.id] = call

    def end(self, call: Call) -> None:
        """Stop to follow a call, with the requests that are parts of it."""
        if self._calls.get(call.id) is call:
            del self._calls[call.id]
            self._parts = {part: whole for part, whole in self._parts.items() if whole is not call}

    def has_part(self, part: int, whole: TaskCall) -> None:
        """Make a request a part of a call: messages on its stream belong to the call."""
        self._parts[part] = whole

    def whole(self, call: Call) -> Call:
        """Return the call that a request is made for: nearly always itself."""
        return self._parts.get(call.id, call)

    def of_token(self, token: int) -> TaskCall | None:
        """Return the call with that progress token."""
        return self._calls.get(token)

    def of_task(self, task: str) -> TaskCall | None:
        """Return the call that became that task."""
        return next((call for call in self._calls.values() if call.task.id == task), None)

    def shows(self, task: ServerTask) -> None:
        """Take a status notification of the server; tasks that are not followed are ignored."""
        call = self.of_task(task.id)
        if call is not None:
            call.shows(task)
