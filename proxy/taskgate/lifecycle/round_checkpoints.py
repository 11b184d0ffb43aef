"""The checkpoint of a call between two rounds: `RoundCheckpointWriter`.

A modern server may answer with questions instead of a result; the call then waits for answers and
sends the next round. The checkpoint is stored during the wait. It is removed durably before the
next round is sent, so that a process which takes the task over never sends a round twice.
`TaskInputs` creates it; the upstream session awaits `leave` before the next round. `checkpoints`
defines the content.
"""

from collections.abc import Callable, Mapping

from taskgate.domain.events import CheckpointSaved, RoundDispatched
from taskgate.domain.record import OwnerKey, SealedCheckpoint, TaskId, TaskRecord
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.checkpoints import AskedQuestion, CheckpointSeals, RoundCheckpoint
from taskgate.upstream.call_listener import Between

InputOf = Callable[[], str | None]
"""Returns the key of the input request that a question became; None if it became none."""


class RoundCheckpointWriter:
    """The checkpoint of one round. `inputs` maps the server's keys to the keys of the input
    requests.
    """

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
        """Whether another process could resume the call now."""

    async def keep(self) -> None:
        """Write the checkpoint, after all questions of the round are in the record."""
        written = await self._changes.insist(self._owner, self._task, self._kept)
        self.is_kept = written is not None and not self._is_over

    async def leave(self) -> bool:
        """Remove the checkpoint, and return whether the next round may be sent.

        While the store is unavailable, the round waits.
        """
        self._is_over, self.is_kept = True, False
        if not self._may_be_there:
            return True
        return await left(self._changes, self._owner, self._task)

    def _kept(self, _: TaskRecord) -> CheckpointSaved | None:
        if self._is_over:
            # An event chosen before is refused because of its revision, or its checkpoint is
            # removed.
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
    """Store that the next round is sent; return False if the task has ended or is another
    process's.
    """
    return await changes.insist(owner, task, lambda _: RoundDispatched()) is not None
