"""Where the call of one task is at its server, on its way into the record: the newest counts, written now and then.

Whoever takes the task over goes on from there, and the server tells it nothing again that was before. So nothing is
kept that is behind a question which the record does not have. What must not live here: questions (`inputs`), what is
sealed (`checkpoints`), and how a call goes on (`continuing`).
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
"""How often, at most, it is written; but for the first time, which is at once."""


class QuestionState(Protocol):
    """What the server asked, as far as keeping its call has to do with it."""

    def asked_in(self, record: TaskRecord) -> tuple[AskedQuestion, ...]:
        """What of a record its server asked under names of its own, and may not have the answer to."""
        ...

    def arrived(self, keys: frozenset[str]) -> None:
        """Nobody goes on from before the server had the answers under those keys."""
        ...

    async def settled(self) -> None:
        """Wait until all that was asked is in the record, or never will be."""
        ...


class CheckpointWriter:
    """Keeps the call of one task."""

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
        """Whether another process can go on with the call as it is now."""

    @property
    def holds(self) -> bool:
        """Whether the call is to be kept, as far as is known."""
        return self._newest is not None

    def stand(self, resume_point: ResumePoint) -> None:
        """It is kept there already."""
        self._newest = self._safe = resume_point
        self.is_kept = True

    def hold(self, resume_point: ResumePoint | None, arrived: frozenset[str]) -> bool:
        """Keep that from now on, None nothing; the server has the answers under those keys. Whether `write` is due."""
        self._newest = resume_point
        self._arrived |= arrived
        if resume_point is None:
            self._safe, self.is_kept = None, False
        is_first, self._is_due, self._writing = not self._writing, True, True
        return is_first

    def including(self, record: TaskRecord, asked: AskedQuestion) -> SealedCheckpoint | None:
        """What is kept once that question is in the record, too; None where nothing is, or what is stays."""
        if self._safe is None:
            return None
        return self._sealed(self._safe, (*self._questions.asked_in(record), asked))

    async def write(self) -> None:
        """Write what is newest, and again while there is newer."""
        while self._is_due:
            self._is_due = False
            resume_point, arrived = self._newest, self._arrived
            await self._questions.settled()
            if self._newest is None and resume_point is not None:
                continue
            written = await self._changes.insist(self._owner, self._task, partial(self._kept, resume_point, arrived))
            self._arrived -= arrived
            if written is not None:
                self._questions.arrived(arrived)
            self._note(resume_point, written)
            await asyncio.sleep(KEEP_EVERY.total_seconds())
        self._writing = False

    def _note(self, resume_point: ResumePoint | None, written: TaskRecord | None) -> None:
        if self._newest is not None:
            self.is_kept = written is not None and written.checkpoint is not None
            self._safe = resume_point if self.is_kept else None

    def _kept(
        self, resume_point: ResumePoint | None, arrived: frozenset[str], record: TaskRecord
    ) -> CheckpointSaved | None:
        arrived = arrived.intersection(record.answers)
        left = {key: answer for key, answer in record.answers.items() if key not in arrived}
        asked = self._questions.asked_in(evolve(record, answers=left))
        kept = None if resume_point is None else self._sealed(resume_point, asked)
        return CheckpointSaved(checkpoint=kept, delivered=arrived) if kept or record.checkpoint or arrived else None

    def _sealed(self, resume_point: ResumePoint, asked: tuple[AskedQuestion, ...]) -> SealedCheckpoint | None:
        sealed = self._checkpoints.seal(self._owner, self._task, CallCheckpoint(resume_point, asked))
        return None if sealed is None else SealedCheckpoint(sealed=sealed)
