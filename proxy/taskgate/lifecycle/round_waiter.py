"""The wait for the answers of a round that an earlier process began: `RoundWaiter`.

After a takeover the questions are in the record, and hosts store their answers there. `continuing`
gets the waiter from `TaskListener`, awaits `answers`, and then sends the next round. Right before
that the upstream session awaits `leave`. Meanwhile `TaskListener` passes each changed record to
`obey`.
"""

import asyncio
from datetime import timedelta
from functools import partial

from taskgate.domain.events import InputResolution, InputWithdrawn
from taskgate.domain.record import TaskRecord
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.checkpoints import RoundCheckpoint
from taskgate.lifecycle.round_checkpoints import mark_round_dispatched
from taskgate.protocol.server_messages import Answer, Question


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
        return await mark_round_dispatched(self._changes, self._record.owner, self._record.id)

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
