"""What a server says while it works on a task: progress, log lines, questions; each to where it belongs.

What must not live here: the call itself (`runner`), how questions reach the record (`inputs`), which stream carries
what (`task_streams`).
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
from taskgate.protocol.base import DownstreamDialect, Server
from taskgate.protocol.envelope import Notification
from taskgate.protocol.progress import read_progress
from taskgate.protocol.questions import Question
from taskgate.protocol.vocabulary import NOTE_MESSAGE, NOTE_PROGRESS
from taskgate.system.background import Background
from taskgate.upstream.call_listener import Between, ServerQuestion, UnsavedCallListener
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import Leave, ResumePoint

WRITE_EVERY: Final = timedelta(seconds=1)
"""How often, at most, the progress of a task is written."""


class TaskListeners:
    """What the hearers of all tasks share. `outlives` is whether records are still there when this process is gone."""

    def __init__(
        self,
        *,
        changes: Changes,
        streams: TaskStreams,
        dialect: DownstreamDialect,
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
        """Who hears the call of one task; to be closed."""
        self.streams.speak(record.id)
        return TaskListener(self, record.owner, origin_of(record), record.call.progress_token)


class TaskListener:
    """Hears one task's call; see CallListener. Nothing is heard any more once it is closed."""

    __slots__ = (
        "_background",
        "_bounds",
        "_closed",
        "_done",
        "_hearing",
        "_inputs",
        "_origin",
        "_owner",
        "_resting",
        "_token",
        "_told",
        "_writing",
        "leaves",
        "principal",
    )

    def __init__(self, hearing: TaskListeners, owner: OwnerKey, origin: TaskOrigin, token: RequestId | None) -> None:
        self._hearing = hearing
        # The rules that the task began with.
        self._bounds = hearing.live.now.questions
        self._owner = owner
        self._origin = origin
        self._token = token
        self._done: float | None = None
        self._told: str | None = None
        self._writing = False
        self._inputs: TaskInputs | None = None
        self._resting: RoundCheckpointWriter | RoundWaiter | None = None
        self._background: Background | None = None
        self._closed = False
        self.leaves = False
        """See CallListener."""
        self.principal: Principal | None = None
        """Who answered last."""

    def on_notification(self, notification: Notification) -> None:
        """See CallListener."""
        if self._closed:
            return
        if notification.method == NOTE_PROGRESS:
            self._progressed(notification)
        elif notification.method == NOTE_MESSAGE:
            self._tell(notification, None)
        else:
            # Not about the task: it came on the call's stream, as servers may have it.
            host_session = self._hearing.streams.session(self._origin)
            if host_session is not None:
                host_session.on_notification(notification)

    def clog(self) -> None:
        """See CallListener: a task waits for no host."""

    @property
    def passes_rounds(self) -> bool:
        """See CallListener."""
        return False

    @property
    def can_be_asked(self) -> bool:
        """See CallListener: it hears a call."""
        return False

    def asked(self, question: ServerQuestion) -> None:
        """See CallListener."""
        if not self._closed:
            self._asking().ask(question)
        elif not self.leaves:
            question.refuse()

    def keep(self, between: Between) -> Leave | None:
        """See CallListener: the record keeps it."""
        if self._closed or self._inputs is None:
            return None
        self._resting = resting = self._inputs.rest(between, self._hearing.checkpoints)
        return resting.leave

    def awaits(self, record: TaskRecord, rest: RoundCheckpoint) -> RoundWaiter:
        """The round that the call rests in since another process had it."""
        self._resting = awaited = RoundWaiter(record, rest, changes=self._hearing.changes, wait=self._bounds.wait)
        return awaited

    def on_checkpoint(self, resume_point: ResumePoint) -> None:
        """See CallListener: the record keeps it, where it outlives this process."""
        if self._hearing.outlives and not self._closed:
            self._asking().on_checkpoint(resume_point, self._hearing.checkpoints)

    def stands(self, record: TaskRecord, call_checkpoint: CallCheckpoint) -> Mapping[str, Question]:
        """The call is at its server since another process had it; what that may still wait for, by its own keys."""
        return self._asking().stand(record, call_checkpoint, self._hearing.checkpoints)

    def sinks(self) -> None:
        """Nobody can go on with the call from where it was: it begins anew."""
        if self._inputs is not None:
            self._inputs.sink()

    def leave(self) -> bool:
        """The call is given up here; whether another process goes on with it. Then its questions are not withdrawn."""
        self.leaves = self.leaves or (self.is_resting and self._hearing.outlives)
        if self.leaves:
            self.close()
        return self.leaves

    @property
    def is_resting(self) -> bool:
        """Whether another process can go on with the call as it is now."""
        checkpoints, stands = self._resting, self._inputs
        return (checkpoints is not None and checkpoints.is_kept) or (stands is not None and stands.is_kept)

    def refused(self, required: Mapping[str, Any]) -> None:
        """See CallListener: a task ends as its server has it end."""

    def obey(self, record: TaskRecord) -> None:
        """Act on what others did to the record."""
        if isinstance(self._resting, RoundWaiter):
            self._resting.obey(record)
        if self._inputs is not None and record.answers:
            self._inputs.obey(record, self.principal)

    def free(self, key: str, claim: str) -> None:
        """A question may be asked on another stream than it was claimed for: that one's process is gone."""
        if self._inputs is not None and not self._closed:
            self._inputs.free(key, claim)

    def find(self, key: str) -> ServerQuestion | None:
        """The open question under a key."""
        return None if self._inputs is None else self._inputs.find(key)

    def close(self) -> None:
        """The call is over."""
        if not self._closed:
            self._hearing.streams.fall_silent(self._origin.task)
        self._closed = True
        if self._inputs is not None:
            self._inputs.close()
        if self._background is not None:
            self._background.cancel()

    def _asking(self) -> TaskInputs:
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
        # Hosts may rely on it that progress grows (L-PROG-1); its words may change without that.
        is_further = self._done is None or progress.done > self._done
        self._done = progress.done
        self._told = progress.status_message
        if self._token is not None and is_further:
            self._tell(notification, self._token)
        if not self._writing:
            self._writing = True
            if self._background is None:
                self._background = Background()
            self._background.run(self._write)

    def _tell(self, notification: Notification, token: RequestId | None) -> None:
        dialect, task = self._hearing.dialect, self._origin.task
        self._hearing.streams.tell(self._origin, dialect.on_notification(notification, token, task))

    async def _write(self) -> None:
        """Write the newest progress, and again while there is newer: one write at a time, so that none overtakes."""
        told = ""

        def newest(_: TaskRecord) -> TaskEvent:
            nonlocal told
            told, self._told = self._told or told, None
            return Progressed(message=told)

        while self._told is not None:
            await self._hearing.changes.insist(self._owner, self._origin.task, newest)
            await asyncio.sleep(WRITE_EVERY.total_seconds())
        self._writing = False


class _Nobody(UnsavedCallListener):
    """Hears what belongs to no call of a session that has no host."""

    def met(self, server: Server) -> None:
        """See SessionCallListener; nobody is there."""

    def on_notification(self, notification: Notification) -> None:
        """See CallListener; nobody is there."""

    def clog(self) -> None:
        """See CallListener; nobody is there."""

    @property
    def passes_rounds(self) -> bool:
        """See CallListener."""
        return False

    def asked(self, question: ServerQuestion) -> None:
        """See CallListener; nobody is there."""
        question.refuse()

    def refused(self, required: Mapping[str, Any]) -> None:
        """See CallListener; nobody is there."""


NOBODY: Final = _Nobody()
