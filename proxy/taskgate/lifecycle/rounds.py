"""A call between two rounds: `RoundCheckpointWriter` in the process that began the round,
`RoundWaiter` in one that took the call over.

A modern server may answer with questions instead of a result. The call then waits for the host's
answers, and sends the next request with them: the next round. While it waits, the record has a
checkpoint, from which another process could send that round. `checkpoints` defines the content.

`TaskInputs` creates one writer for each wait, and runs `keep` once. When the answers are there, the
upstream session awaits `leave`. That removes the checkpoint durably before the next round is sent,
so that no other process sends the round a second time.

After a takeover the questions are in the record, and hosts store their answers there. `execution`
gets the waiter from `TaskListener`, awaits `answers`, and then sends the next round. Right before
that the upstream session awaits `leave`. Meanwhile `TaskListener` passes each changed record to
`obey`.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from taskgate.domain.events import CheckpointSaved, InputResolution, InputWithdrawn, RoundDispatched
from taskgate.domain.record import OwnerKey, SealedCheckpoint, TaskId, TaskRecord
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.checkpoints import AskedQuestion, CheckpointSeals, RoundCheckpoint
from taskgate.protocol.server_messages import Answer, Question
from taskgate.upstream.call_listener import Between

InputOf = Callable[[], str | None]
"""Returns the key of the input request that a question became; None while it is not stored."""


class RoundCheckpointWriter:
    """The checkpoint of one wait between two rounds.

    `inputs` has, by the server's key of each question put to a host, a function. It returns the key
    of the input request. `_is_over` is whether `leave` was called. `_may_be_there` is whether a
    write of the checkpoint was tried, so that the record may have it.
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
        """Whether another process could resume the call now: the record has the checkpoint."""

    async def keep(self) -> None:
        """Write the checkpoint. Called once, after all questions of the round are in the record.

        Nothing is written if a question has neither an input request nor an answer, or the
        checkpoint is too large.
        """
        written = await self._changes.insist(self._owner, self._task, self._event)
        self.is_kept = written is not None and not self._is_over

    async def leave(self) -> bool:
        """Remove the checkpoint, and return whether the next round may be sent.

        Must be awaited once before that round. Returns False if the task has ended or another
        process has it. While the store is unavailable, this waits.
        """
        self._is_over, self.is_kept = True, False
        if not self._may_be_there:
            return True
        return await _mark_dispatched(self._changes, self._owner, self._task)

    def _event(self, _: TaskRecord) -> CheckpointSaved | None:
        if self._is_over:
            # A write that began before `leave` does no harm: either its swap fails, because the
            # revision has changed, or `leave` removes what it wrote.
            return None
        state, asked, given = self._between
        inputs = {key: of() for key, of in self._inputs.items()}
        if any(inputs.get(key) is None and key not in given for key in asked):
            # Another process could never get an answer to that question.
            return None
        rest = RoundCheckpoint(
            state, tuple(AskedQuestion(key, each.method, inputs.get(key)) for key, (each, _) in asked.items())
        )
        sealed = self._checkpoints.seal(self._owner, self._task, rest)
        if sealed is None:
            return None
        self._may_be_there = True
        # Answers received by now are no longer in the record, so the checkpoint has them.
        answers = {input: given[key] for key, input in inputs.items() if input is not None and key in given}
        return CheckpointSaved(checkpoint=SealedCheckpoint(sealed=sealed, answers=answers))


async def _mark_dispatched(changes: Changes, owner: OwnerKey, task: TaskId) -> bool:
    """Store that the next round is about to be sent, which removes the checkpoint.

    Returns False if the task has ended or another process has it. Then the round must not be sent.
    """
    return await changes.insist(owner, task, lambda _: RoundDispatched()) is not None


class RoundWaiter:
    """The wait for the answers to the questions of the checkpoint `rest`.

    The questions have the usual time `wait`, counted from the moment when `answers` has read the
    record. Those without an answer by then are withdrawn.
    """

    __slots__ = ("_changes", "_over", "_record", "_wait", "is_kept", "rest")

    def __init__(self, record: TaskRecord, rest: RoundCheckpoint, *, changes: Changes, wait: timedelta) -> None:
        self.rest = rest
        self.is_kept = True
        """Whether another process could resume the call now: the record still has the checkpoint."""
        self._record = record
        self._changes = changes
        self._wait = wait
        self._over = asyncio.Event()

    def obey(self, record: TaskRecord) -> None:
        """Take over the answers of a record, unless it is older than the known one."""
        if record.revision >= self._record.revision:
            self._record = record
        if not self._outstanding():
            self._over.set()

    async def answers(self) -> dict[str, tuple[Question, Answer | None]]:
        """Wait until no question is open, and return the answers by the server's keys.

        None stands for a question that got no answer in time. Called once.
        """
        # Answers may have been stored before this object existed. The time does not run while the
        # store fails, because hosts cannot answer then.
        await self._look()
        try:
            async with asyncio.timeout(self._wait.total_seconds()):
                await self._over.wait()
        except TimeoutError:
            await self._expire()
        # The earlier process had received the first ones; hosts stored the others since.
        given: dict[str | None, Answer] = {}
        if self._record.checkpoint is not None:
            given.update(self._record.checkpoint.answers)
        given.update(self._record.answers)
        return {each.key: (Question(each.method, None), given.get(each.input)) for each in self.rest.asked}

    async def leave(self) -> bool:
        """Remove the checkpoint, and return whether the next round may be sent.

        Returns False if the task has ended or another process has it.
        """
        self.is_kept = False
        return await _mark_dispatched(self._changes, self._record.owner, self._record.id)

    async def _expire(self) -> None:
        for key in self._outstanding():
            await self._changes.insist(self._record.owner, self._record.id, partial(_withdrawn, key))
        await self._look()

    async def _look(self) -> None:
        await self._changes.insist(self._record.owner, self._record.id, self.obey)

    def _outstanding(self) -> list[str]:
        asked = {each.input for each in self.rest.asked}
        return [request.key for request in self._record.inputs if request.key in asked]


def _withdrawn(key: str, _: TaskRecord) -> InputWithdrawn:
    return InputWithdrawn(key=key, resolution=InputResolution.EXPIRED)
