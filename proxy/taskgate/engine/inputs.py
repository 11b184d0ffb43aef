"""The questions of a server during one task: from the server into the record, and the answers back to the server.

The record is the mailbox: who delivers a question, and who answers it, may be anywhere (`offers`, `following`). What
must not live here: hosts and their streams. What holds: a server that asks is always answered, or has gone.
"""

import asyncio
from datetime import timedelta
from functools import partial
from logging import getLogger
from typing import Final, NamedTuple

from taskgate.dialects.base import DownstreamDialect
from taskgate.engine.background import Background
from taskgate.engine.changes import Changes
from taskgate.engine.resting import Resting
from taskgate.engine.rests import Rests
from taskgate.tasks.events import AnswerForwarded, InputClaimed, InputRequested, InputWithdrawn, Settled, TaskEvent
from taskgate.tasks.record import InputRequest, OwnerKey, TaskId, TaskRecord
from taskgate.upstream.base import Between, ServerQuestion, Speaker

MAX_QUESTION: Final = 4 * 1024 * 1024
"""Characters of the parameters of all that one task asks at once: its head, written at every change, has them."""

log = getLogger("taskgate.inputs")


class Bounds(NamedTuple):
    """How long a question may wait for its answer, and how many of a task or a session may wait at once."""

    wait: timedelta
    outstanding: int


class _Slot:
    """A question's place among those that may wait at once, until it has its last answer or none will come."""

    __slots__ = ("is_there", "key", "question", "size", "timer")

    def __init__(self, question: ServerQuestion, timer: asyncio.TimerHandle) -> None:
        params = question.question.params
        self.question = question
        self.size = 0 if params is None else params.size
        self.timer = timer
        self.key: str | None = None
        self.is_there = False

    def input(self) -> str | None:
        """The key under which it is in the record, or was."""
        return self.key if self.is_there else None


class TaskInputs:
    """The questions of one task, in the process that holds its call."""

    def __init__(
        self, owner: OwnerKey, task: TaskId, *, changes: Changes, dialect: DownstreamDialect, bounds: Bounds
    ) -> None:
        self._owner = owner
        self._task = task
        self._changes = changes
        self._dialect = dialect
        self._bounds = bounds
        self._slots: dict[ServerQuestion, _Slot] = {}
        self._has_told = False
        self._in_turn = asyncio.Lock()
        self._background = Background()

    def ask(self, question: ServerQuestion) -> None:
        """Put a question to the task's host; one too many, or one too large, is refused at once."""
        wait, outstanding = self._bounds
        timer = asyncio.get_running_loop().call_later(wait.total_seconds(), self._expire, question)
        slot = self._slots[question] = _Slot(question, timer)
        if len(self._slots) > outstanding or sum(each.size for each in self._slots.values()) > MAX_QUESTION:
            if not self._has_told:
                # Once: how often it happens is the server's to decide.
                self._has_told = True
                log.warning("questions of a server are refused: too many or large", extra={"upstream": self._mount})
            self._free(slot)
            question.refuse()
        else:
            self._background.run(partial(self._put, slot))

    def obey(self, record: TaskRecord, speaker: Speaker | None) -> None:
        """Give the server the answers that the record holds; `speaker` is who answered last."""
        kept = {request.kept_as: request.key for request in record.inputs if request.kept_as is not None}
        for key, answer in record.answers.items():
            slot = self._of(key)
            if slot is None or not slot.question.is_open:
                continue
            slot.question.answer(answer, speaker)
            self._make(AnswerForwarded(key=key))
            if key not in kept.values():
                self._free(slot)
            method, params = slot.question.question
            last = None if params is None else self._dialect.settles(method, params.with_token(""), answer)
            if last is not None and last in kept:
                # What the host kept a task for is answered only now (L-HOST-5).
                self._end(kept[last], Settled.ANSWERED)

    def free(self, key: str, claim: str) -> None:
        """The stream that a question was claimed for is gone, and its process with it: another is to have it."""

        def give_back(record: TaskRecord) -> TaskEvent | None:
            is_claimed = any(each.key == key and each.claimed_by == claim for each in record.inputs)
            return InputClaimed(key=key, stream=None) if is_claimed else None

        self._background.run(partial(self._changes.insist, self._owner, self._task, give_back))

    def rest(self, between: Between, rests: Rests) -> Resting:
        """Keep what the next round takes, whose questions were all asked here."""
        slots = {key: self._slots.get(question) for key, (_, question) in between.asked.items() if question is not None}
        inputs = {key: slot.input for key, slot in slots.items() if slot is not None}
        resting = Resting(self._owner, self._task, changes=self._changes, rests=rests, between=between, inputs=inputs)
        self._background.run(partial(self._keep, resting))
        return resting

    def find(self, key: str) -> ServerQuestion | None:
        """The open question under a key."""
        slot = self._of(key)
        return None if slot is None else slot.question

    def close(self) -> None:
        """The call is over: there is nobody left to answer."""
        for slot in tuple(self._slots.values()):
            self._free(slot)
        self._background.cancel()

    @property
    def _mount(self) -> str:
        return self._owner.mount

    async def _put(self, slot: _Slot) -> None:
        def request(record: TaskRecord) -> TaskEvent | None:
            if slot.key is not None and slot.key != record.next_input_key:
                # Only this task's own server asks: the last try was written, although the store could not say so.
                slot.is_there = True
                return None
            if not slot.question.is_open:
                return None
            slot.key = record.next_input_key
            return InputRequested(request=self._request(slot.key, slot.question))

        # One at a time, so that the first question asked is the first of the record.
        async with self._in_turn:
            if await self._changes.insist(self._owner, self._task, request) is not None:
                slot.is_there = True
        if not slot.is_there:
            self._free(slot)
            slot.question.refuse()
        elif slot.question in self._slots:
            slot.question.when_withdrawn(partial(self._withdraw, slot, Settled.SUPERSEDED))
        elif slot.key is not None:
            # Its time was up before it could be seen there.
            self._make(InputWithdrawn(key=slot.key, settled=Settled.EXPIRED))

    async def _keep(self, resting: Resting) -> None:
        async with self._in_turn:
            # All that was asked before is there by now, or never will be.
            pass
        await resting.keep()

    def _request(self, key: str, question: ServerQuestion) -> InputRequest:
        method, params = question.question
        text = "" if params is None else params.with_token(self._dialect.input_id(self._task, key))
        return InputRequest(key=key, method=method, params=text)

    def _expire(self, question: ServerQuestion) -> None:
        slot = self._slots[question]
        log.info("a question of a server was not answered in time", extra={"upstream": self._mount})
        question.refuse()
        self._withdraw(slot, Settled.EXPIRED)

    def _withdraw(self, slot: _Slot, settled: Settled) -> None:
        if slot.question in self._slots:
            self._free(slot)
            if slot.is_there and slot.key is not None:
                self._make(InputWithdrawn(key=slot.key, settled=settled))

    def _end(self, key: str, settled: Settled) -> None:
        slot = self._of(key)
        if slot is not None:
            self._withdraw(slot, settled)

    def _of(self, key: str) -> _Slot | None:
        return next((slot for slot in self._slots.values() if slot.key == key), None)

    def _free(self, slot: _Slot) -> None:
        slot.timer.cancel()
        self._slots.pop(slot.question, None)

    def _make(self, event: TaskEvent) -> None:
        self._background.run(partial(self._changes.insist, self._owner, self._task, lambda _: event))
