"""The listener of a task's call: `TaskListener`.

A server sends messages while it works on a call. Each goes where it belongs:

- progress: into the record as status message, at most once a second, and to the host;
- log messages: to the host (`task_streams`);
- questions: into the record as input requests (`inputs`);
- checkpoints: into the record (`checkpoints`).

`Runner` creates a listener for each run, from the shared `TaskListeners`. `TaskRun` gives it to the
upstream session, which calls the methods of `CallListener`. `Runner` and `TaskRun` call the others.
A listener ends with `close`, when the call is over here, or with `leave`, when the run is stopped.
`leave` also decides whether the call is *left*: it goes on at its server, and another process
resumes it from the checkpoint in the record.

A checkpoint is of one of two kinds (`checkpoints`). At its server, the call has a resume point.
Between two *rounds*, the server has asked questions and expects a new request with the answers.

The constant at the end is the listener of sessions that have no host. `Runner` passes it to the
upstream sessions of calls that were taken over.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from taskgate.admission.rules import RuntimeConfig
from taskgate.domain.events import Progressed, TaskEvent
from taskgate.domain.record import OwnerKey, RequestId, TaskRecord
from taskgate.lifecycle.checkpoints import (
    UNSEALED,
    CallCheckpoint,
    CheckpointSeals,
    RoundCheckpoint,
    RoundCheckpointWriter,
    RoundWaiter,
)
from taskgate.lifecycle.inputs import TaskInputs
from taskgate.lifecycle.task_streams import TaskOrigin, TaskStreams
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import Question, read_progress
from taskgate.protocol.vocabulary import NOTE_MESSAGE, NOTE_PROGRESS
from taskgate.system.background import Background
from taskgate.upstream.calls import Between, Leave, Principal, ResumePoint, ServerQuestion, UnsavedCallListener

WRITE_EVERY: Final = timedelta(seconds=1)
"""The shortest time between two writes of a task's progress."""


class TaskListeners:
    """The factory of task listeners, with what they share.

    `streams` has the streams to hosts. `outlives` is whether records survive this process. Only then
    are resume points stored, and calls left to another process.
    """

    def __init__(
        self,
        *,
        transitions: Transitions,
        streams: TaskStreams,
        dialect: LegacyDownstream,
        live: RuntimeConfig,
        checkpoints: CheckpointSeals = UNSEALED,
        outlives: bool = True,
    ) -> None:
        self.transitions = transitions
        self.streams = streams
        self.dialect = dialect
        self.live = live
        self.checkpoints = checkpoints
        self.outlives = outlives

    def of(self, record: TaskRecord) -> "TaskListener":
        """Create the listener of one task's call; the caller must call `close` once the call is over."""
        if self.streams.remote is not None:
            self.streams.remote.begin(record.id)
        owner, call = record.owner, record.call
        origin = TaskOrigin(record.id, owner.mount, call.tool, call.host_session)
        return TaskListener(self, owner, origin, call.progress_token)


class TaskListener:
    """A `CallListener` for the call of one task. After `close` it ignores messages.

    - `_token`: the progress token of the host's call; None if it wants no progress.
    - `_last_progress`: the last progress value.
    - `_unwritten`: the newest status message, until its write begins; else None.
    - `_inputs`: the questions and the call's resume point; None until the first of either.
    - `_round`: the object that removes the checkpoint between two rounds, before the next round. It
      is a writer for a round of this process, or a waiter for one of an earlier process. None before
      the first round.
    - `_closed`: set by `close`, also through `leave`.
    """

    __slots__ = (
        "_background",
        "_bounds",
        "_closed",
        "_inputs",
        "_last_progress",
        "_origin",
        "_owner",
        "_round",
        "_shared",
        "_token",
        "_unwritten",
        "_writing",
        "leaves",
        "principal",
    )

    def __init__(self, shared: TaskListeners, owner: OwnerKey, origin: TaskOrigin, token: RequestId | None) -> None:
        self._shared = shared
        # The operator's rules at the start of this run; later changes of them do not matter.
        self._bounds = shared.live.current.questions
        self._owner = owner
        self._origin = origin
        self._token = token
        self._last_progress: float | None = None
        self._unwritten: str | None = None
        self._writing = False
        self._inputs: TaskInputs | None = None
        self._round: RoundCheckpointWriter | RoundWaiter | None = None
        self._background: Background | None = None
        self._closed = False
        self.leaves = False
        """Whether the call was left to another process. Only `leave` sets it.

        The upstream session then sends the server no cancellation when the call is cancelled here.
        """
        self.principal: Principal | None = None
        """The caller who answered last, set by `Runner.answers`; the server gets answers as from them."""

    def more_follows(self) -> None:
        """Ignore it: what becomes of a task is stored at once."""

    def on_notification(self, notification: Notification) -> None:
        if self._closed:
            return
        if notification.method == NOTE_PROGRESS:
            self._progressed(notification)
        elif notification.method == NOTE_MESSAGE:
            self._tell(notification, None)
        else:
            # Not about the task: servers may send notifications of the session on the call's
            # stream.
            host_session = self._shared.streams.session(self._origin)
            if host_session is not None:
                host_session.on_notification(notification)

    def clog(self) -> None:
        """Return None: a task does not wait for a slow host."""

    @property
    def passes_rounds(self) -> bool:
        return False

    @property
    def can_be_asked(self) -> bool:
        return False

    def asked(self, question: ServerQuestion) -> None:
        if not self._closed:
            self._get_inputs().ask(question)
        elif not self.leaves:
            # A question of a call that was left stays open for the process that resumes it.
            question.refuse()

    def keep(self, between: Between) -> Leave | None:
        if self._closed or self._inputs is None:
            # Without `_inputs` no host was asked anything, so there is no wait.
            return None
        self._round = round_writer = self._inputs.write_round(between, self._shared.checkpoints)
        # Not the method of this class: the writer's, which removes the checkpoint.
        return round_writer.leave

    def wait_for_round(self, record: TaskRecord, checkpoint: RoundCheckpoint) -> RoundWaiter:
        """Return the waiter for the answers to an earlier process's round, `checkpoint`.

        Called once at the start of a run that took over a call between two rounds.
        """
        self._round = waiter = RoundWaiter(
            record, checkpoint, transitions=self._shared.transitions, wait=self._bounds.wait
        )
        return waiter

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        if self._shared.outlives and not self._closed:
            self._get_inputs().on_checkpoint(resume_point, self._shared.checkpoints)

    def resume_at(self, record: TaskRecord, call_checkpoint: CallCheckpoint) -> Mapping[str, Question]:
        """Take over the questions and the resume point in an earlier process's checkpoint.

        Called once at the start of a run that took over a call at its server. Returns the questions
        that the server may still wait for, by the server's keys.
        """
        return self._get_inputs().resume_at(record, call_checkpoint, self._shared.checkpoints)

    def drop_checkpoint(self) -> None:
        """Remove the resume point from the record.

        `TaskRun` calls it when the server no longer has the call, which is then sent again.
        """
        if self._inputs is not None:
            self._inputs.drop_checkpoint()

    async def checkpoint_written(self) -> None:
        """Wait for the end of a write of the checkpoint that has begun, so that `has_checkpoint` tells of it."""
        if self._inputs is not None:
            async with self._inputs.in_turn:
                pass

    def leave(self) -> bool:
        """Decide, before the run is stopped, whether the call is left to another process.

        Returns True if the record has a checkpoint from which another process can resume it. Then
        the listener closes, and neither the call nor its questions are cancelled. On False nothing
        has changed, and the caller cancels the call.
        """
        self.leaves = self.leaves or (self.has_checkpoint and self._shared.outlives)
        if self.leaves:
            self.close()
        return self.leaves

    @property
    def has_checkpoint(self) -> bool:
        """Whether the record has a checkpoint now, so that another process could resume the call."""
        between_rounds, at_server = self._round, self._inputs
        return (between_rounds is not None and between_rounds.is_kept) or (at_server is not None and at_server.is_kept)

    def refused(self, required: Mapping[str, Any]) -> None:
        """Ignore it: a task ends as its server ends it."""

    def record_changed(self, record: TaskRecord) -> None:
        """Pass the hosts' answers in the record on: to the server, or to the waiter of a round.

        `Runner` calls it for each change that others made to the record of a running task.
        """
        if isinstance(self._round, RoundWaiter):
            self._round.record_changed(record)
        if self._inputs is not None and record.answers:
            self._inputs.forward_answers(record, self.principal)

    def release_claim(self, key: str, claim: str) -> None:
        """Remove the claim of a stream from a question, because the stream's process is gone.

        A claim reserves the question for one stream. Without it, another stream may deliver it.
        """
        if self._inputs is not None and not self._closed:
            self._inputs.release_claim(key, claim)

    def find_question(self, key: str) -> ServerQuestion | None:
        """Return the question that is open here under a key of an input request."""
        return None if self._inputs is None else self._inputs.find_question(key)

    def close(self) -> None:
        """Stop all work for the call, because it is over here or was left to another process.

        May be called again. Questions get no answer by that.
        """
        if not self._closed and self._shared.streams.remote is not None:
            self._shared.streams.remote.end(self._origin.task)
        self._closed = True
        if self._inputs is not None:
            self._inputs.close()
        if self._background is not None:
            self._background.cancel()

    def _get_inputs(self) -> TaskInputs:
        if self._inputs is None:
            shared = self._shared
            self._inputs = TaskInputs(
                self._owner,
                self._origin.task,
                transitions=shared.transitions,
                dialect=shared.dialect,
                bounds=self._bounds,
            )
        return self._inputs

    def _progressed(self, notification: Notification) -> None:
        progress = read_progress(notification)
        if progress is None or (self._last_progress is not None and progress.done < self._last_progress):
            return
        # Hosts may rely on growing progress (L-PROG-1), so they get no equal value. Its text is
        # written all the same.
        is_further = self._last_progress is None or progress.done > self._last_progress
        self._last_progress = progress.done
        self._unwritten = progress.status_message
        if self._token is not None and is_further:
            self._tell(notification, self._token)
        if not self._writing:
            self._writing = True
            if self._background is None:
                self._background = Background()
            self._background.run(self._write)

    def _tell(self, notification: Notification, token: RequestId | None) -> None:
        dialect, task = self._shared.dialect, self._origin.task
        self._shared.streams.send(self._origin, dialect.notification(notification, token, task))

    async def _write(self) -> None:
        """Write the newest progress, and repeat while there is newer: one write at a time, in
        order.
        """
        text = ""

        def newest(_: TaskRecord) -> TaskEvent:
            # Called again if the write fails: then the same text is written, or a newer one.
            nonlocal text
            text, self._unwritten = self._unwritten or text, None
            return Progressed(message=text)

        while self._unwritten is not None:
            await self._shared.transitions.insist(self._owner, self._origin.task, newest)
            await asyncio.sleep(WRITE_EVERY.total_seconds())
        self._writing = False


class _Nobody(UnsavedCallListener):
    """The listener of a session without a host. It drops messages and refuses questions."""

    def met(self, server: ServerDescription) -> None:
        """Ignore it: there is no host."""

    def on_notification(self, notification: Notification) -> None:
        """Ignore it: there is no host."""

    def clog(self) -> None:
        """Return None: there is no host."""

    @property
    def passes_rounds(self) -> bool:
        return False

    def asked(self, question: ServerQuestion) -> None:
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        """Ignore it: there is no host."""


NOBODY: Final = _Nobody()
