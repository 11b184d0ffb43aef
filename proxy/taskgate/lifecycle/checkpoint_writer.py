"""The writer of a running call's checkpoint: `CheckpointWriter`, one for each task.

A call at a server that supports resumption has a resume point: a session, the server's own task id,
or an event id. Each event of the server gives a newer one. The newest is written into the record
about once a second. A process that takes the task over resumes there, and the server does not
repeat earlier events. So a resume point is written only after the questions before it are in the
record.

`TaskInputs` creates this object at the first resume point, or when the call itself was taken over.
It calls `hold` with each newer one, and then runs `write` in the background if that returned True.
`checkpoints` seals the text, `execution` resumes the call.
"""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Final, Protocol

from taskgate.domain.events import CheckpointSaved
from taskgate.domain.record import OwnerKey, SealedCheckpoint, TaskId, TaskRecord, evolve
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.checkpoints import AskedQuestion, CallCheckpoint, CheckpointSeals
from taskgate.upstream.resume_points import ResumePoint

KEEP_EVERY: Final = timedelta(seconds=1)
"""The shortest time between two writes; the first one is immediate."""


class QuestionState(Protocol):
    """The call's questions, as far as the writer needs them. `TaskInputs` implements it."""

    def asked_in(self, record: TaskRecord) -> tuple[AskedQuestion, ...]:
        """Return the questions in a record whose answer may be missing at the server.

        They are those that have an input request or an answer in the record.
        """
        ...

    def arrived(self, keys: frozenset[str]) -> None:
        """Forget the answers under those keys: the server has them, and the record dropped them."""
        ...

    async def settled(self) -> None:
        """Wait until every question asked so far is in the record, or never will be."""
        ...


class CheckpointWriter:
    """The checkpoint of one running call.

    `_newest` is the newest resume point, None if the call must not be resumed elsewhere. `_safe` is
    the one that the record has. `_arrived` are keys of answers that the server has, and that the
    next write drops from the record. `_is_due` is whether `hold` was called since the last write
    began; `_writing` is whether `write` runs.
    """

    __slots__ = (
        "_arrived",
        "_changes",
        "_checkpoints",
        "_is_due",
        "_newest",
        "_owner",
        "_questions",
        "_safe",
        "_task",
        "_writing",
        "is_kept",
    )  # fmt: skip

    def __init__(
        self, owner: OwnerKey, task: TaskId, *, changes: Changes, checkpoints: CheckpointSeals, questions: QuestionState
    ) -> None:
        self._owner = owner
        self._task = task
        self._changes = changes
        self._checkpoints = checkpoints
        self._questions = questions
        self._newest: ResumePoint | None = None
        self._safe: ResumePoint | None = None
        self._arrived: frozenset[str] = frozenset()
        self._is_due = False
        self._writing = False
        self.is_kept = False
        """Whether another process could resume the call now: the record has a checkpoint of it."""

    @property
    def holds(self) -> bool:
        """Whether the call has a resume point, written or to be written."""
        return self._newest is not None

    def stand(self, resume_point: ResumePoint) -> None:
        """Start from a resume point that is already in the record."""
        self._newest = self._safe = resume_point
        self.is_kept = True

    def hold(self, resume_point: ResumePoint | None, arrived: frozenset[str]) -> bool:
        """Set the newest resume point; return True if the caller must start `write`.

        It returns False while `write` already runs, which then repeats. None removes the
        checkpoint. `arrived` are keys of answers that the server has by now.
        """
        self._newest = resume_point
        self._arrived |= arrived
        if resume_point is None:
            self._safe, self.is_kept = None, False
        is_first, self._is_due, self._writing = not self._writing, True, True
        return is_first

    def including(self, record: TaskRecord, asked: AskedQuestion) -> SealedCheckpoint | None:
        """Return the stored checkpoint with one more question, which the same write adds.

        Returns None if no checkpoint is stored, or the new one is too large. The record's
        checkpoint, if any, then stays as it is.
        """
        if self._safe is None:
            return None
        return self._sealed(self._safe, (*self._questions.asked_in(record), asked))

    async def write(self) -> None:
        """Write the newest resume point, and repeat while there is a newer one.

        Each write waits first until all earlier questions are in the record.
        """
        while self._is_due:
            self._is_due = False
            resume_point, arrived = self._newest, self._arrived
            await self._questions.settled()
            if self._newest is None and resume_point is not None:
                # Meanwhile the checkpoint was removed: only that is written now.
                continue
            written = await self._changes.insist(self._owner, self._task, partial(self._event, resume_point, arrived))
            self._arrived -= arrived
            if written is not None:
                self._questions.arrived(arrived)
            self._note(resume_point, written)
            await asyncio.sleep(KEEP_EVERY.total_seconds())
        self._writing = False

    def _note(self, resume_point: ResumePoint | None, written: TaskRecord | None) -> None:
        # After a removal meanwhile, `hold` has already reset both.
        if self._newest is not None:
            self.is_kept = written is not None and written.checkpoint is not None
            self._safe = resume_point if self.is_kept else None

    def _event(
        self, resume_point: ResumePoint | None, arrived: frozenset[str], record: TaskRecord
    ) -> CheckpointSaved | None:
        arrived = arrived.intersection(record.answers)
        # The questions as they are after this write: answers that arrived are gone.
        left = {key: answer for key, answer in record.answers.items() if key not in arrived}
        asked = self._questions.asked_in(evolve(record, answers=left))
        kept = None if resume_point is None else self._sealed(resume_point, asked)
        return CheckpointSaved(checkpoint=kept, delivered=arrived) if kept or record.checkpoint or arrived else None

    def _sealed(self, resume_point: ResumePoint, asked: tuple[AskedQuestion, ...]) -> SealedCheckpoint | None:
        sealed = self._checkpoints.seal(self._owner, self._task, CallCheckpoint(resume_point, asked))
        return None if sealed is None else SealedCheckpoint(sealed=sealed)
