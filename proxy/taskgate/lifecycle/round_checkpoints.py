"""Calls that rest between two rounds, in the record: kept while they do, and cleared before the next round leaves.

Cleared durably, so that whoever takes the task over never makes a round that has left: at most once. What must not live
here: what is kept (`checkpoints`), and questions on their way into the record (`inputs`).
"""

from collections.abc import Callable, Mapping

from taskgate.domain.events import CheckpointSaved, RoundDispatched
from taskgate.domain.record import OwnerKey, SealedCheckpoint, TaskId, TaskRecord
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.checkpoints import AskedQuestion, CheckpointSeals, RoundCheckpoint
from taskgate.upstream.call_listener import Between

InputOf = Callable[[], str | None]
"""The key of the input request that a question became; None where it became none."""


class RoundCheckpointWriter:
    """One round that a call of this process rests in; `inputs` tells by the server's keys what was asked as what."""

    __slots__ = (
        "_between",
        "_changes",
        "_checkpoints",
        "_inputs",
        "_is_over",
        "_may_be_there",
        "_owner",
        "_task",
        "is_kept",
    )

    def __init__(
        self,
        owner: OwnerKey,
        task: TaskId,
        *,
        changes: Changes,
        checkpoints: CheckpointSeals,
        between: Between,
        inputs: Mapping[str, InputOf],
    ) -> None:
        self._owner = owner
        self._task = task
        self._changes = changes
        self._checkpoints = checkpoints
        self._between = between
        self._inputs = inputs
        self._is_over = False
        self._may_be_there = False
        self.is_kept = False
        """Whether another process can go on with the call as it is now."""

    async def keep(self) -> None:
        """Write down what the next round takes, once every question of this one is in the record."""
        written = await self._changes.insist(self._owner, self._task, self._kept)
        self.is_kept = written is not None and not self._is_over

    async def leave(self) -> bool:
        """See Leave. While the store does not take it, the round waits."""
        self._is_over, self.is_kept = True, False
        if not self._may_be_there:
            return True
        return await left(self._changes, self._owner, self._task)

    def _kept(self, _: TaskRecord) -> CheckpointSaved | None:
        if self._is_over:
            # What has been chosen before is refused for its revision, or is cleared.
            return None
        state, asked, given = self._between
        inputs = {key: of() for key, of in self._inputs.items()}
        if any(inputs.get(key) is None and key not in given for key in asked):
            return None
        rest = RoundCheckpoint(
            state, tuple(AskedQuestion(key, each.method, inputs.get(key)) for key, (each, _) in asked.items())
        )
        sealed = self._checkpoints.seal(self._owner, self._task, rest)
        if sealed is None:
            return None
        self._may_be_there = True
        answers = {input: given[key] for key, input in inputs.items() if input is not None and key in given}
        return CheckpointSaved(checkpoint=SealedCheckpoint(sealed=sealed, answers=answers))


async def left(changes: Changes, owner: OwnerKey, task: TaskId) -> bool:
    """Write that the next round leaves; False where the task has ended, or is another process's."""
    return await changes.insist(owner, task, lambda _: RoundDispatched()) is not None
