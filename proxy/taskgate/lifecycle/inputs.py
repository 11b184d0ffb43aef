"""The questions of a server during one task: `TaskInputs`. It stores them in the record as input
requests, and passes the stored answers to the server.

The record is the mailbox: any process may deliver a question (`offers`) and receive its answer
(`following`). A question goes through these steps:

    server asks      →  `ask`: InputRequested in the record     status input_required
    host answers     →  InputAnswered in the record             by any process
    `obey`           →  the server gets the answer              AnswerForwarded

Every question gets an answer, a refusal, or the call is over. `TaskListener` creates this object at
the first question or checkpoint. The second part of the class is for calls that another process can
resume (`checkpoint_writer`).
"""

import asyncio
from functools import partial
from logging import getLogger

from taskgate.admission.rules import MAX_QUESTION, QuestionBounds
from taskgate.domain.events import (
    AnswerForwarded,
    CheckpointSaved,
    InputClaimed,
    InputRequested,
    InputResolution,
    InputWithdrawn,
    TaskEvent,
)
from taskgate.domain.record import InputRequest, OwnerKey, SealedCheckpoint, TaskId, TaskRecord
from taskgate.jsontext.spans import RawJson
from taskgate.lifecycle.changes import Changes
from taskgate.lifecycle.checkpoint_writer import CheckpointWriter
from taskgate.lifecycle.checkpoints import AskedQuestion, CallCheckpoint, CheckpointSeals
from taskgate.lifecycle.names import QuestionNames, is_name
from taskgate.lifecycle.round_checkpoints import RoundCheckpointWriter
from taskgate.lifecycle.slots import QuestionSlot, Slots
from taskgate.protocol.dialects import LegacyDownstreamDialect
from taskgate.protocol.server_messages import Question
from taskgate.system.background import Background
from taskgate.upstream.call_listener import Between, ServerQuestion
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import ResumePoint

log = getLogger("taskgate.inputs")


class TaskInputs:
    """The questions of one task, in the process that runs its call."""

    def __init__(
        self,
        owner: OwnerKey,
        task: TaskId,
        *,
        changes: Changes,
        dialect: LegacyDownstreamDialect,
        bounds: QuestionBounds,
    ) -> None:
        self._owner = owner
        self._task = task
        self._changes = changes
        self._dialect = dialect
        self._bounds = bounds
        self._slots = Slots()
        self._has_told = False
        self._in_turn = asyncio.Lock()
        self._background = Background()
        self._keeping: CheckpointWriter | None = None
        self._names = QuestionNames()

    def ask(self, question: ServerQuestion) -> None:
        """Store a question as an input request. One beyond the limits of number and size is
        refused.

        A question that an earlier process was asked is already in the record.
        """
        wait, outstanding = self._bounds
        timer = asyncio.get_running_loop().call_later(wait.total_seconds(), self._expire, question)
        slot = self._slots.take(question, timer)
        if (known := self._names.met(question.key)) is not None:
            slot.key, slot.is_there = known, True
            self._background.run(partial(self._meet, slot))
            return
        if self._keeping is not None and not is_name(question.key):
            # A process that takes the call over could not answer it.
            self._hold(None)
        if len(self._slots) > outstanding or self._slots.size > MAX_QUESTION:
            if not self._has_told:
                # Logged once, because the server decides how often it happens.
                self._has_told = True
                log.warning(
                    "input requests of a server are rejected: too many or too large", extra={"upstream": self._mount}
                )
            self._slots.free(slot)
            question.refuse()
        else:
            self._background.run(partial(self._put, slot))

    def obey(self, record: TaskRecord, principal: Principal | None) -> None:
        """Pass the record's answers to the server; `principal` is the caller who answered last."""
        kept = {request.deferred_to: request.key for request in record.inputs if request.deferred_to is not None}
        for key, answer in record.answers.items():
            slot = self._slots.under(key)
            if slot is None or not slot.question.is_open:
                continue
            slot.question.answer(answer, principal)
            self._forwarded(slot, key, answer)
            if key not in kept.values():
                self._slots.free(slot)
            method, params = slot.question.question
            last = None if params is None else self._dialect.settled_task(method, params.with_token(""), answer)
            if last is not None and last in kept:
                # Only now is the question answered for which the host runs a task of its own
                # (L-HOST-5).
                self._end(kept[last], InputResolution.ANSWERED)

    def free(self, key: str, claim: str) -> None:
        """Release a question from the stream that claimed it: its process is gone."""

        def give_back(record: TaskRecord) -> TaskEvent | None:
            is_claimed = any(each.key == key and each.claimed_by == claim for each in record.inputs)
            return InputClaimed(key=key, stream=None) if is_claimed else None

        self._background.run(partial(self._changes.insist, self._owner, self._task, give_back))

    def rest(self, between: Between, checkpoints: CheckpointSeals) -> RoundCheckpointWriter:
        """Write the checkpoint between two rounds, whose questions were all asked here."""
        slots = {key: self._slots.at(question) for key, (_, question) in between.asked.items() if question is not None}
        inputs = {key: slot.input for key, slot in slots.items() if slot is not None}
        resting = RoundCheckpointWriter(
            self._owner, self._task, changes=self._changes, checkpoints=checkpoints, between=between, inputs=inputs
        )
        self._background.run(partial(self._keep, resting))
        return resting

    # --- checkpoints of a call at its server --------------------------------------------------------------------------

    def on_checkpoint(self, resume_point: ResumePoint, checkpoints: CheckpointSeals) -> None:
        """Store where the call is, with its questions and their keys; see CallListener."""
        if not self._slots.are_named:
            return
        if self._keeping is None:
            self._keeping = self._new_keeping(checkpoints)
        self._hold(resume_point)

    def stand(
        self, record: TaskRecord, call_checkpoint: CallCheckpoint, checkpoints: CheckpointSeals
    ) -> dict[str, Question]:
        """Resume a checkpoint of an earlier process.

        Returns the questions that the server may still wait for, by its keys; it will ask them
        again.
        """
        self._keeping = self._new_keeping(checkpoints)
        self._keeping.stand(call_checkpoint.resume_point)
        still = {request.key for request in record.inputs}
        waited_for = [each for each in call_checkpoint.asked if each.input in still or each.input in record.answers]
        for each in waited_for:
            wait = self._bounds.wait.total_seconds()
            timer = asyncio.get_running_loop().call_later(wait, self._expire_unmet, each.key)
            self._names.expect(each, timer)
        for key in still.difference(each.input for each in waited_for):
            # Its question is unknown to the checkpoint, so its answer could not be passed on.
            self._make(InputWithdrawn(key=key))
        return {each.key: Question(each.method, None) for each in waited_for}

    def sink(self) -> None:
        """Remove the checkpoint, because the call could not be resumed."""
        if self._keeping is not None:
            self._hold(None)

    def asked_in(self, record: TaskRecord) -> tuple[AskedQuestion, ...]:
        there = {request.key for request in record.inputs} | record.answers.keys()
        return tuple(each for key, each in (self._names.others | self._slots.asked).items() if key in there)

    def arrived(self, keys: frozenset[str]) -> None:
        self._names.forget(keys)

    async def settled(self) -> None:
        async with self._in_turn:
            # Every earlier question is stored by now, or never will be.
            pass

    @property
    def is_kept(self) -> bool:
        """Whether another process could resume the call now."""
        return self._keeping is not None and self._keeping.is_kept

    def find(self, key: str) -> ServerQuestion | None:
        """Return the open question under a key of an input request."""
        slot = self._slots.under(key)
        return None if slot is None else slot.question

    def close(self) -> None:
        """Stop all timers and writes, because the call is over."""
        for slot in self._slots:
            self._slots.free(slot)
        self._names.close()
        self._background.cancel()

    @property
    def _mount(self) -> str:
        return self._owner.mount

    async def _put(self, slot: QuestionSlot) -> None:
        def request(record: TaskRecord) -> TaskEvent | None:
            if slot.key is not None and slot.key != record.next_input_key:
                # Only this call adds input requests: the last attempt was stored, although the
                # store reported a failure.
                slot.is_there = True
                return None
            if not slot.question.is_open:
                return None
            slot.key = record.next_input_key
            return InputRequested(
                request=self._request(slot.key, slot.question), checkpoint=self._kept_with(record, slot)
            )

        # One at a time, so that the record has the questions in their order.
        async with self._in_turn:
            if await self._changes.insist(self._owner, self._task, request) is not None:
                slot.is_there = True
        if not slot.is_there:
            self._slots.free(slot)
            slot.question.refuse()
        elif self._slots.at(slot.question) is not None:
            slot.question.when_withdrawn(partial(self._withdraw, slot, InputResolution.SUPERSEDED))
        elif slot.key is not None:
            # It expired before it was known to be stored.
            self._make(InputWithdrawn(key=slot.key, resolution=InputResolution.EXPIRED))

    async def _meet(self, slot: QuestionSlot) -> None:
        """Continue a question that is in the record: it may be answered, or no longer wait."""
        is_waiting = False

        def look(record: TaskRecord) -> None:
            nonlocal is_waiting
            is_waiting = slot.key in record.answers or any(request.key == slot.key for request in record.inputs)
            self.obey(record, None)

        await self._changes.insist(self._owner, self._task, look)
        if not is_waiting:
            self._slots.free(slot)
            slot.question.refuse()
        elif self._slots.at(slot.question) is not None:
            slot.question.when_withdrawn(partial(self._withdraw, slot, InputResolution.SUPERSEDED))

    async def _keep(self, resting: RoundCheckpointWriter) -> None:
        await self.settled()
        await resting.keep()

    def _new_keeping(self, checkpoints: CheckpointSeals) -> CheckpointWriter:
        return CheckpointWriter(self._owner, self._task, changes=self._changes, checkpoints=checkpoints, questions=self)

    def _hold(self, resume_point: ResumePoint | None) -> None:
        assert self._keeping is not None, "a task with a checkpoint has a checkpoint writer"
        if self._keeping.hold(resume_point, self._names.given):
            self._background.run(self._keeping.write)

    def _kept_with(self, record: TaskRecord, slot: QuestionSlot) -> SealedCheckpoint | None:
        return None if self._keeping is None else self._keeping.including(record, slot.asked(record.next_input_key))

    def _forwarded(self, slot: QuestionSlot, key: str, answer: RawJson) -> None:
        """Record that the server was given an answer. A process that takes over may have to repeat
        it.
        """
        if self._keeping is None or not self._keeping.holds:
            self._make(AnswerForwarded(key=key))
        elif not self._names.answered(slot.asked(key), key, len(answer)):
            self._background.run(partial(self._changes.insist, self._owner, self._task, partial(_dropped, key)))

    def _request(self, key: str, question: ServerQuestion) -> InputRequest:
        method, params = question.question
        text = "" if params is None else params.with_token(self._dialect.input_id(self._task, key))
        return InputRequest(key=key, method=method, params=text)

    def _expire(self, question: ServerQuestion) -> None:
        slot = self._slots.at(question)
        assert slot is not None, "the timer of a free slot is stopped"
        log.info("an input request of a server was not answered in time", extra={"upstream": self._mount})
        question.refuse()
        self._withdraw(slot, InputResolution.EXPIRED)

    def _expire_unmet(self, name: str) -> None:
        """Withdraw a question of an earlier process that the server did not ask again in time."""
        key = self._names.met(name)
        if key is not None:
            self._make(InputWithdrawn(key=key, resolution=InputResolution.EXPIRED))

    def _withdraw(self, slot: QuestionSlot, settled: InputResolution) -> None:
        if self._slots.at(slot.question) is not None:
            self._slots.free(slot)
            if slot.is_there and slot.key is not None:
                self._make(InputWithdrawn(key=slot.key, resolution=settled))

    def _end(self, key: str, settled: InputResolution) -> None:
        slot = self._slots.under(key)
        if slot is not None:
            self._withdraw(slot, settled)

    def _make(self, event: TaskEvent) -> None:
        self._background.run(partial(self._changes.insist, self._owner, self._task, lambda _: event))


def _dropped(key: str, record: TaskRecord) -> CheckpointSaved:
    return CheckpointSaved(checkpoint=record.checkpoint, delivered=frozenset({key}))
