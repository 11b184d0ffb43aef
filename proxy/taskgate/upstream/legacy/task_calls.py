"""Calls that their server made tasks of (2025-11-25): `TaskCall` and `TaskCalls`.

When a call becomes a task, `server_tasks` makes a `TaskCall` in place of its `RunningCall`. It polls the
task until there is a result, and registers the `TaskCall` in each conversation that it uses.
`Conversation` finds it in its `TaskCalls`, and gives it notifications and questions.
"""

import asyncio
from collections.abc import Iterator

from taskgate.domain.record import TaskStatus
from taskgate.protocol.server_messages import ServerTask, progress_done, text_progress
from taskgate.upstream.calls import CallListener, RunningCall, UpstreamCall


class TaskCall(RunningCall):
    """A call that became a task of its server, from then until its result.

    It has the id of the `RunningCall` that it replaces. `task` is the last known state of the task.
    `stirs` wakes its `TaskFollower`. It is set when the task no longer just works, and when a
    question was answered. With `tells` the host wants progress: status messages of the task are
    sent as progress too.
    """

    def __init__(
        self,
        id: int,
        call: UpstreamCall,
        listener: CallListener,
        task: ServerTask,
        *,
        tells: bool,
        spent: float = 0,
    ) -> None:
        assert call.bounds is not None, "the session has set its timeouts"
        super().__init__(id, listener, call.bounds, principal=call.principal, spent=spent)
        self.sent = True
        self.stirs = asyncio.Event()
        self.task = task._replace(message=None)
        self.is_ahead = False
        """Whether a question was answered or withdrawn since the last resume point.

        `TaskFollower` then gives the listener another one, without that question.
        """
        self._tells = tells
        self._last_message: str | None = None
        self._messages = 0

    def is_working(self) -> bool:
        """Whether its task runs: it is neither over nor does it wait for input."""
        return self.task.status is TaskStatus.WORKING

    def is_over(self) -> bool:
        """Whether its task has ended."""
        return self.task.status.is_terminal

    def shows(self, task: ServerTask) -> None:
        """Store a new state of the task, and send its message as progress.

        A state after the terminal one is late and ignored.
        """
        before = self.task
        if self.is_over():
            return
        self.task = task._replace(interval=task.interval or before.interval)
        if self.task != before:
            self.progressed()
        if task.message is not None and task.message != self._last_message:
            self._last_message = task.message
            self._send_progress(task.message)
        if not self.is_working():
            self.stirs.set()

    def asks(self, questions: int) -> None:
        super().asks(questions)
        if questions < 0:
            self.is_ahead = True
            self.stirs.set()

    def _send_progress(self, message: str) -> None:
        """Send a status message of the task as progress, with a number above the last one."""
        self._messages += 1
        after = None if self.last_progress is None else progress_done(self.last_progress)
        if self._tells and self.listener is not None:
            self.listener.on_notification(text_progress(self.id, message, self._messages, after or 0.0))


class TaskCalls:
    """The calls that are followed in one conversation, whether or not they were made in it.

    It also knows which requests may still become tasks: from `expect` to `met`. And it knows which
    requests are parts of a followed call, such as its `tasks/result`.
    """

    def __init__(self) -> None:
        self._calls: dict[int, TaskCall] = {}
        self._whole_by_part: dict[int, TaskCall] = {}
        self.undecided: set[int] = set()
        """The ids of calls that may still become tasks."""

    def __iter__(self) -> Iterator[TaskCall]:
        return iter(tuple(self._calls.values()))

    def expect(self, id: int) -> None:
        """Register a call that is about to be sent and may become a task. `met` must follow."""
        self.undecided.add(id)

    def met(self, id: int) -> bool:
        """Report that it is now known whether the call became a task.

        Returns whether that was unknown until now.
        """
        was_expected = id in self.undecided
        self.undecided.discard(id)
        return was_expected

    def begin(self, call: TaskCall) -> None:
        """Start to follow a call; `end` must follow."""
        self._calls[call.id] = call

    def end(self, call: TaskCall) -> None:
        """Stop to follow a call, and forget its parts. Calls that are not followed are ignored."""
        if self._calls.get(call.id) is call:
            del self._calls[call.id]
            self._whole_by_part = {part: whole for part, whole in self._whole_by_part.items() if whole is not call}

    def has_part(self, part: int, whole: TaskCall) -> None:
        """Make a request a part of a call: messages on its stream belong to the call."""
        self._whole_by_part[part] = whole

    def whole(self, call: RunningCall) -> RunningCall:
        """Return the followed call that a request is a part of; if there is none, `call` itself."""
        return self._whole_by_part.get(call.id, call)

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
