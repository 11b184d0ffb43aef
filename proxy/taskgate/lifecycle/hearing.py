"""The listener of a task's call: `TaskListener`.

A server sends messages while it works on a call. Each goes where it belongs:

- progress: into the record as status message, at most once a second, and to the host;
- log messages: to the host (`task_streams`);
- questions: into the record as input requests (`inputs`);
- checkpoints: into the record (`checkpoint_writer`, `round_checkpoints`).

`Runner` creates a listener for each run, from the shared `TaskListeners`, and gives it to the
upstream session, which calls the methods of `CallListener`. `Runner` and `RecordWatcher` call the
others. A listener ends with `close`, when the call is over here, or with `leave`, when the run is
stopped. `leave` also decides whether the call is left to another process.

The constant at the end is the listener of sessions that have no host.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from taskgate.admission.rules import RuntimeConfig
from taskgate.domain.events import Progressed, TaskEvent
from taskgate.domain.record import OwnerKey, RequestId, TaskRecord
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.checkpoints import UNSEALED, CallCheckpoint, CheckpointSeals, RoundCheckpoint
from taskgate.lifecycle.inputs import TaskInputs
from taskgate.lifecycle.round_checkpoints import RoundCheckpointWriter
from taskgate.lifecycle.round_waiter import RoundWaiter
from taskgate.lifecycle.task_streams import TaskOrigin, TaskStreams, origin_of
from taskgate.protocol.dialects import LegacyDownstreamDialect
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.messages import Notification
from taskgate.protocol.server_messages import Question, read_progress
from taskgate.protocol.vocabulary import NOTE_MESSAGE, NOTE_PROGRESS
from taskgate.system.background import Background
from taskgate.upstream.call_listener import Between, ServerQuestion, UnsavedCallListener
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import Leave, ResumePoint

WRITE_EVERY: Final = timedelta(seconds=1)
"""The shortest time between two writes of a task's progress."""


class TaskListeners:
    """The factory of task listeners, with what they share.

    `outlives` is whether records survive this process: only then are checkpoints stored.
    """

    def __init__(
        self,
        *,
        changes: Changes,
        streams: TaskStreams,
        dialect: LegacyDownstreamDialect,
        live: RuntimeConfig,
        checkpoints: CheckpointSeals = UNSEALED,
        outlives: bool = True,
    ) -> None:
        self.changes = changes
        self.streams = streams
        self.dialect = dialect
        self.live = live
        self.checkpoints = checkpoints
        self.outlives = outlives

    def of(self, record: TaskRecord) -> "TaskListener":
        """Create the listener of one task's call; it must be closed."""
        self.streams.speak(record.id)
        return TaskListener(self, record.owner, origin_of(record), record.call.progress_token)


class TaskListener:
    """A `CallListener` for the call of one task. After `close` it ignores messages.

    - `_token`: the progress token of the host's call; None if it wants no progress.
    - `_done`: the last progress value; `_unwritten`: the status message that is still to be written.
    - `_inputs`: the questions, None until the first one or the first checkpoint.
    - `_round`: the checkpoint of the last wait between two rounds, written or taken over.
    """

    __slots__ = (
        "_background",
        "_bounds",
        "_closed",
        "_done",
        "_hearing",
        "_inputs",
        "_origin",
        "_owner",
        "_round",
        "_token",
        "_unwritten",
        "_writing",
        "leaves",
        "principal",
    )

    def __init__(self, hearing: TaskListeners, owner: OwnerKey, origin: TaskOrigin, token: RequestId | None) -> None:
        self._hearing = hearing
        # The operator's rules when the task began.
        self._bounds = hearing.live.current.questions
        self._owner = owner
        self._origin = origin
        self._token = token
        self._done: float | None = None
        self._unwritten: str | None = None
        self._writing = False
        self._inputs: TaskInputs | None = None
        self._round: RoundCheckpointWriter | RoundWaiter | None = None
        self._background: Background | None = None
        self._closed = False
        self.leaves = False
        """Whether the call was left to another process: `leave` has set it.

        The upstream session then sends the server no cancellation when the call is cancelled here.
        """
        self.principal: Principal | None = None
        """The caller who answered last; the server gets the answers as from them."""

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
            host_session = self._hearing.streams.session(self._origin)
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
            return None
        # The upstream session awaits `leave` before the next round.
        self._round = round_writer = self._inputs.rest(between, self._hearing.checkpoints)
        return round_writer.leave

    def awaits(self, record: TaskRecord, rest: RoundCheckpoint) -> RoundWaiter:
        """Return the waiter for the answers of the round in an earlier process's checkpoint.

        Called once, instead of `stands`, for a call that was taken over.
        """
        self._round = awaited = RoundWaiter(record, rest, changes=self._hearing.changes, wait=self._bounds.wait)
        return awaited

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        if self._hearing.outlives and not self._closed:
            self._get_inputs().on_checkpoint(resume_point, self._hearing.checkpoints)

    def stands(self, record: TaskRecord, call_checkpoint: CallCheckpoint) -> Mapping[str, Question]:
        """Continue from the checkpoint of an earlier process, of a call at its server.

        Returns the questions that the server may still wait for, by the server's keys.
        """
        return self._get_inputs().stand(record, call_checkpoint, self._hearing.checkpoints)

    def sinks(self) -> None:
        """Drop the checkpoint: the server no longer has the call, which is sent again."""
        if self._inputs is not None:
            self._inputs.sink()

    def leave(self) -> bool:
        """Decide, before the run is stopped, whether the call is left to another process.

        Returns True if the record has a checkpoint from which another process can resume it. Then
        the listener closes, and neither the call nor its questions are cancelled. On False nothing
        has changed, and the caller cancels the call.
        """
        self.leaves = self.leaves or (self.is_resting and self._hearing.outlives)
        if self.leaves:
            self.close()
        return self.leaves

    @property
    def is_resting(self) -> bool:
        """Whether another process could resume the call now: the record has a checkpoint of it."""
        checkpoints, stands = self._round, self._inputs
        return (checkpoints is not None and checkpoints.is_kept) or (stands is not None and stands.is_kept)

    def refused(self, required: Mapping[str, Any]) -> None:
        """Ignore it: a task ends as its server ends it."""

    def obey(self, record: TaskRecord) -> None:
        """Act on changes that others made to the record: pass on the answers of hosts."""
        if isinstance(self._round, RoundWaiter):
            self._round.obey(record)
        if self._inputs is not None and record.answers:
            self._inputs.obey(record, self.principal)

    def free(self, key: str, claim: str) -> None:
        """Remove the claim of a stream from a question, because the stream's process is gone."""
        if self._inputs is not None and not self._closed:
            self._inputs.free(key, claim)

    def find(self, key: str) -> ServerQuestion | None:
        """Return the question that is open here under a key of an input request."""
        return None if self._inputs is None else self._inputs.find(key)

    def close(self) -> None:
        """Stop all work for the call, because it is over here or was left to another process."""
        if not self._closed:
            self._hearing.streams.fall_silent(self._origin.task)
        self._closed = True
        if self._inputs is not None:
            self._inputs.close()
        if self._background is not None:
            self._background.cancel()

    def _get_inputs(self) -> TaskInputs:
        if self._inputs is None:
            hearing = self._hearing
            self._inputs = TaskInputs(
                self._owner,
                self._origin.task,
                changes=hearing.changes,
                dialect=hearing.dialect,
                bounds=self._bounds,
            )
        return self._inputs

    def _progressed(self, notification: Notification) -> None:
        progress = read_progress(notification)
        if progress is None or (self._done is not None and progress.done < self._done):
            return
        # Hosts may rely on growing progress (L-PROG-1); the text may change without it.
        is_further = self._done is None or progress.done > self._done
        self._done = progress.done
        self._unwritten = progress.status_message
        if self._token is not None and is_further:
            self._tell(notification, self._token)
        if not self._writing:
            self._writing = True
            if self._background is None:
                self._background = Background()
            self._background.run(self._write)

    def _tell(self, notification: Notification, token: RequestId | None) -> None:
        dialect, task = self._hearing.dialect, self._origin.task
        self._hearing.streams.tell(self._origin, dialect.notification(notification, token, task))

    async def _write(self) -> None:
        """Write the newest progress, and repeat while there is newer: one write at a time, in
        order.
        """
        told = ""

        def newest(_: TaskRecord) -> TaskEvent:
            nonlocal told
            told, self._unwritten = self._unwritten or told, None
            return Progressed(message=told)

        while self._unwritten is not None:
            await self._hearing.changes.insist(self._owner, self._origin.task, newest)
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
