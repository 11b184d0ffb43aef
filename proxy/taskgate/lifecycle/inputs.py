"""The questions of a server during one task: `TaskInputs`. It stores them in the record as input
requests, and passes the stored answers to the server.

The record is the mailbox: any process may deliver a question (`input_delivery`) and receive its
answer (`result_wait`). A question goes through these steps:

    server asks        →  `ask`: InputRequested in the record     status input_required
    host answers       →  InputAnswered in the record             by any process
    `forward_answers`  →  the server gets the answer              AnswerForwarded

Every question ends in one of these ways. The server gets an answer, or a refusal (too many, too
large, no answer in time). Or the server withdraws it, or its call ends. A host may also answer with
a task of its own: the question is then *deferred*. The server gets that answer, and the input
request stays in the record until the host's task has ended.

`TaskListener` creates this object at the first question or checkpoint, and calls `close` when the
call is over. The second part of the class is for calls that another process can resume
(`CheckpointWriter`). Such a process needs the answers that the server may not have received. So
an answer then stays in the record until a newer resume point proves that it arrived.

A question has two keys. The *server's key* is the server's own name for it (`ServerQuestion.key`,
None without a name). The *input key* names the input request that the question becomes in the
record. `QuestionSlot` is a question that is open here. `QuestionNames` are those that are not.
"""

import asyncio
from functools import partial
from logging import getLogger
from typing import Final

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
from taskgate.domain.machine import MAX_CHECKPOINT_ANSWERS
from taskgate.domain.record import InputRequest, OwnerKey, SealedCheckpoint, TaskId, TaskRecord
from taskgate.jsontext.spans import RawJson
from taskgate.lifecycle.checkpoints import (
    AskedQuestion,
    CallCheckpoint,
    CheckpointSeals,
    CheckpointWriter,
    RoundCheckpointWriter,
)
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.server_messages import Question
from taskgate.system.background import Background
from taskgate.upstream.calls import Between, Principal, ResumePoint, ServerQuestion

MAX_NAME: Final = 1024
"""Characters of a name. A call whose questions have longer names is not resumed."""

log = getLogger("taskgate.inputs")


def is_name(key: str | None) -> bool:
    """Return whether a question with that name of the server can be answered by another process."""
    return key is not None and len(key) <= MAX_NAME


class QuestionSlot:
    """One open question of the server.

    It has a slot from the moment that the server asks, until it is answered, refused or withdrawn,
    or its time is over. If the host answered with a task of its own, it has the slot until that
    task has ended.

    - `key`: the input key, set right before the write of the input request. If the store fails
      then, the record may or may not have the request.
    - `is_there`: whether the input request is known to be in the record.
    - `size`: the characters of the question's parameters.
    - `timer`: refuses the question at the end of its time.
    """

    __slots__ = ("is_there", "key", "question", "size", "timer")

    def __init__(self, question: ServerQuestion, timer: asyncio.TimerHandle) -> None:
        params = question.question.params
        self.question = question
        self.size = 0 if params is None else params.size
        self.timer = timer
        self.key: str | None = None
        self.is_there = False

    def input(self) -> str | None:
        """Return the input key if the input request was stored; else None."""
        return self.key if self.is_there else None

    def asked(self, key: str) -> AskedQuestion:
        """Return the question under both of its keys, for a checkpoint; `key` is the input key."""
        return AskedQuestion(self.question.key or "", self.question.question.method, key)


class QuestionNames:
    """The named questions of one task that are not open in this process.

    A server that supports resumption names each question, with a key unique in its call. After a
    takeover it asks its questions again, and the name tells which input request of the record each
    one is. A process that takes the task over needs two kinds, so checkpoints contain them:

    - *expected*: asked of an earlier process, and not asked again yet;
    - *given*: answered by this process, while the server may not have received the answer yet.

    No code here waits or writes; the timers come from the caller.
    """

    __slots__ = ("_expected", "_given", "_known", "_size")

    def __init__(self) -> None:
        self._known: dict[str, AskedQuestion] = {}
        self._expected: dict[str, asyncio.TimerHandle] = {}
        self._given: dict[str, tuple[AskedQuestion, int]] = {}
        self._size = 0

    @property
    def others(self) -> dict[str, AskedQuestion]:
        """The expected and the given questions, by the keys of their input requests."""
        expected = {each.input or "": each for name, each in self._known.items() if name in self._expected}
        return {**expected, **{key: asked for key, (asked, _) in self._given.items()}}

    def expect(self, asked: AskedQuestion, timer: asyncio.TimerHandle) -> None:
        """Add an expected question. `timer` withdraws it, and is cancelled once it is asked again."""
        self._known[asked.key] = asked
        self._expected[asked.key] = timer

    def met(self, name: str | None) -> str | None:
        """Return the key of the input request of a question that an earlier process was asked.

        None for any other name, and without one. Called when the server asks the question again, or
        when its timer has fired. From then on it is no longer expected, but is still recognized if
        the server repeats it.
        """
        known = None if name is None else self._known.get(name)
        if known is None or name is None:
            return None
        timer = self._expected.pop(name, None)
        if timer is not None:
            timer.cancel()
        return known.input

    def answered(self, asked: AskedQuestion, key: str, size: int) -> bool:
        """Add a given question: its answer of `size` characters was sent to the server.

        `key` is that of the input request. Returns False, and adds nothing, if the answers that may
        not have arrived are too large together.
        """
        if self._size + size > MAX_CHECKPOINT_ANSWERS:
            return False
        self._size += size
        self._given[key] = asked, size
        return True

    @property
    def given(self) -> frozenset[str]:
        """The keys of the input requests whose answers were sent, and may not have arrived."""
        return frozenset(self._given)

    def forget(self, keys: frozenset[str]) -> None:
        """Remove given questions whose answers arrived; `keys` are those of their input requests."""
        for key in keys.intersection(self._given):
            _, size = self._given.pop(key)
            self._size -= size

    def close(self) -> None:
        """Cancel the timers of the expected questions."""
        for timer in self._expected.values():
            timer.cancel()
        self._expected.clear()


class TaskInputs:
    """The questions of one task, in the process that runs its call.

    `_slots` are the questions that are open here, `_names` those known by name alone. `_writer`
    writes the call's resume points; None before the first one. `_round` writes the newest wait
    between rounds; None without one. `in_turn` is held while a question
    or a checkpoint is written. All writes run in the background.
    """

    def __init__(
        self,
        owner: OwnerKey,
        task: TaskId,
        *,
        transitions: Transitions,
        dialect: LegacyDownstream,
        bounds: QuestionBounds,
    ) -> None:
        self._owner = owner
        self._task = task
        self._transitions = transitions
        self._dialect = dialect
        self._bounds = bounds
        self._slots: dict[ServerQuestion, QuestionSlot] = {}
        self._has_warned = False
        self.in_turn = asyncio.Lock()
        self._background = Background()
        self._writer: CheckpointWriter | None = None
        self._round: RoundCheckpointWriter | None = None
        self._names = QuestionNames()

    def ask(self, question: ServerQuestion) -> None:
        """Store a question of the server as an input request, in the background.

        One beyond the limits of number and size is refused at once. One that an earlier process was
        asked too is already in the record, and may have its answer there.
        """
        wait, outstanding = self._bounds
        timer = asyncio.get_running_loop().call_later(wait.total_seconds(), self._expire, question)
        slot = self._slots[question] = QuestionSlot(question, timer)
        if (known := self._names.met(question.key)) is not None:
            slot.key, slot.is_there = known, True
            self._background.run(partial(self._ask_known, slot))
            return
        if self._writer is not None and not is_name(question.key):
            # A process that takes the call over could not answer it, so remove the checkpoint.
            self._set_resume_point(None)
        size = sum(each.size for each in self._slots.values())
        if len(self._slots) > outstanding or size > MAX_QUESTION:
            if not self._has_warned:
                # Logged once, because the server decides how often it happens.
                self._has_warned = True
                log.warning(
                    "input requests of a server are rejected: too many or too large",
                    extra={"upstream": self._owner.mount},
                )
            self._free(slot)
            question.refuse()
        else:
            self._background.run(partial(self._put, slot))

    def forward_answers(self, record: TaskRecord, principal: Principal | None) -> None:
        """Pass the record's answers to the server; each is passed once.

        Called for each change of the record by others. `principal` is the caller who answered last.
        """
        # The input keys of deferred questions, by the id of the host's task.
        deferred = {request.deferred_to: request.key for request in record.inputs if request.deferred_to is not None}
        for key, answer in record.answers.items():
            slot = self._slot_under(key)
            if slot is None or not slot.question.is_open:
                continue
            slot.question.answer(answer, principal)
            self._forwarded(slot, key, answer)
            if key not in deferred.values():
                self._free(slot)
            method, params = slot.question.question
            # The server follows the host's task with questions of its own, such as `tasks/result`.
            settled = None if params is None else self._dialect.settled_task(method, params.with_token(""), answer)
            if settled is not None and settled in deferred:
                # Only now is the question answered for which the host runs a task of its own
                # (L-HOST-5).
                host_slot = self._slot_under(deferred[settled])
                if host_slot is not None:
                    self._withdraw(host_slot, InputResolution.ANSWERED)

    def release_claim(self, key: str, claim: str) -> None:
        """Remove the claim of a stream whose process is gone, so that another stream may deliver the
        question.
        """

        def give_back(record: TaskRecord) -> TaskEvent | None:
            is_claimed = any(each.key == key and each.claimed_by == claim for each in record.inputs)
            return InputClaimed(key=key, stream=None) if is_claimed else None

        self._background.run(partial(self._transitions.insist, self._owner, self._task, give_back))

    def write_round(self, between: Between, checkpoints: CheckpointSeals) -> RoundCheckpointWriter:
        """Start to write the checkpoint of the wait between two rounds; return its writer.

        Called after `ask` was called with each question of the round that goes to a host. The
        caller must await the writer's `leave` before the next round.
        """
        slots = {key: self._slots.get(question) for key, (_, question) in between.asked.items() if question is not None}
        inputs = {key: slot.input for key, slot in slots.items() if slot is not None}
        round_writer = RoundCheckpointWriter(
            self._owner,
            self._task,
            transitions=self._transitions,
            checkpoints=checkpoints,
            between=between,
            inputs=inputs,
        )
        self._round = round_writer
        self._background.run(partial(self._keep_round, round_writer))
        return round_writer

    # --- checkpoints of a call at its server --------------------------------------------------------------------------

    def on_checkpoint(self, resume_point: ResumePoint, checkpoints: CheckpointSeals) -> None:
        """Store a newer resume point of the call, with the questions that lack an answer.

        Nothing is stored while the server waits for a question without a name: after a takeover
        no process could tell which one it is.
        """
        if not all(is_name(each.question.key) or not each.question.is_open for each in self._slots.values()):
            return
        if self._writer is None:
            self._writer = self._new_writer(checkpoints)
        self._set_resume_point(resume_point)

    def resume_at(
        self, record: TaskRecord, call_checkpoint: CallCheckpoint, checkpoints: CheckpointSeals
    ) -> dict[str, Question]:
        """Continue from the checkpoint of an earlier process. Called once, after a takeover.

        Returns the questions that the server may still wait for, by its keys. It asks them again;
        those that it does not ask in time are withdrawn.
        """
        self._writer = self._new_writer(checkpoints)
        self._writer.start_at(call_checkpoint.resume_point)
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

    def drop_checkpoint(self) -> None:
        """Remove the checkpoint, because the server no longer has the call and it is sent again."""
        if self._writer is not None:
            self._set_resume_point(None)

    # The QuestionState protocol: what the checkpoint writer needs.

    def asked_in(self, record: TaskRecord) -> tuple[AskedQuestion, ...]:
        there = {request.key for request in record.inputs} | record.answers.keys()
        # A question whose write has begun is included: this write may be the one that adds it.
        here = {slot.key: slot.asked(slot.key) for slot in self._slots.values() if slot.key is not None}
        return tuple(each for key, each in (self._names.others | here).items() if key in there)

    def arrived(self, keys: frozenset[str]) -> None:
        self._names.forget(keys)

    @property
    def is_kept(self) -> bool:
        """Whether another process could resume the call now, at its server."""
        return self._writer is not None and self._writer.is_kept

    def find_question(self, key: str) -> ServerQuestion | None:
        """Return the question that is open here under a key of an input request."""
        slot = self._slot_under(key)
        return None if slot is None else slot.question

    def close(self) -> None:
        """Stop all timers and writes, because the call is over here. No question is answered by that."""
        for slot in self._slots.values():
            slot.timer.cancel()
        self._slots.clear()
        self._names.close()
        self._background.cancel()

    async def _put(self, slot: QuestionSlot) -> None:
        """Write a new question into the record; refuse it if that fails."""

        included: RoundCheckpointWriter | None = None

        def request(record: TaskRecord) -> TaskEvent | None:
            nonlocal included
            if slot.key is not None and slot.key != record.next_input_key:
                # Only this call adds input requests: the last attempt was stored, although the
                # store reported a failure.
                slot.is_there = True
                return None
            if not slot.question.is_open:
                return None
            slot.key = record.next_input_key
            checkpoint = self._checkpoint_with(record, slot)
            included = self._round if self._writer is None and checkpoint is not None else None
            return InputRequested(request=self._request(slot.key, slot.question), checkpoint=checkpoint)

        # One at a time, so that the record has the questions in their order.
        async with self.in_turn:
            if await self._transitions.insist(self._owner, self._task, request) is not None:
                slot.is_there = True
                if included is not None:
                    included.included()
        if not slot.is_there:
            self._free(slot)
            slot.question.refuse()
        elif slot.question in self._slots:
            slot.question.when_withdrawn(partial(self._withdraw, slot, InputResolution.SUPERSEDED))
        elif slot.key is not None:
            # Its time was over, and its slot freed, before it was known to be stored.
            self._make(InputWithdrawn(key=slot.key, resolution=InputResolution.EXPIRED))

    async def _ask_known(self, slot: QuestionSlot) -> None:
        """Handle that the server asks a question again that an earlier process was asked.

        If the record has its answer, the server gets it. If the record no longer has the question,
        it is refused.
        """
        is_waiting = False

        def look(record: TaskRecord) -> None:
            nonlocal is_waiting
            is_waiting = slot.key in record.answers or any(request.key == slot.key for request in record.inputs)
            self.forward_answers(record, None)

        await self._transitions.insist(self._owner, self._task, look)
        if not is_waiting:
            self._free(slot)
            slot.question.refuse()
        elif slot.question in self._slots:
            slot.question.when_withdrawn(partial(self._withdraw, slot, InputResolution.SUPERSEDED))

    async def _keep_round(self, round_writer: RoundCheckpointWriter) -> None:
        async with self.in_turn:
            await round_writer.write()

    def _new_writer(self, checkpoints: CheckpointSeals) -> CheckpointWriter:
        return CheckpointWriter(
            self._owner, self._task, transitions=self._transitions, checkpoints=checkpoints, questions=self
        )

    def _set_resume_point(self, resume_point: ResumePoint | None) -> None:
        """Write a newer resume point in the background; None removes the checkpoint.

        A newer one means that the server has all answers that were sent before it.
        """
        assert self._writer is not None, "a task with a checkpoint has a checkpoint writer"
        if self._writer.set(resume_point, self._names.given):
            self._background.run(self._writer.write)

    def _checkpoint_with(self, record: TaskRecord, slot: QuestionSlot) -> SealedCheckpoint | None:
        if self._writer is not None:
            return self._writer.including(record, slot.asked(record.next_input_key))
        return None if self._round is None else self._round.including(slot.input, record.next_input_key)

    def _forwarded(self, slot: QuestionSlot, key: str, answer: RawJson) -> None:
        """Drop an answer from the record that was sent to the server, now or later.

        If another process could resume the call, it stays until a newer resume point: that process
        may have to send it again. If too many answers wait for that, this one is dropped now.
        """
        if self._writer is None or not self._writer.has_resume_point:
            self._make(AnswerForwarded(key=key))
        elif not self._names.answered(slot.asked(key), key, len(answer)):
            self._background.run(partial(self._transitions.insist, self._owner, self._task, partial(_drop_answer, key)))

    def _request(self, key: str, question: ServerQuestion) -> InputRequest:
        method, params = question.question
        text = "" if params is None else params.with_token(self._dialect.input_id(self._task, key))
        return InputRequest(key=key, method=method, params=text)

    def _expire(self, question: ServerQuestion) -> None:
        # The timer of a free slot is cancelled.
        slot = self._slots[question]
        log.info("an input request of a server was not answered in time", extra={"upstream": self._owner.mount})
        question.refuse()
        self._withdraw(slot, InputResolution.EXPIRED)

    def _expire_unmet(self, name: str) -> None:
        """Withdraw a question of an earlier process that the server did not ask again in time."""
        key = self._names.met(name)
        if key is not None:
            self._make(InputWithdrawn(key=key, resolution=InputResolution.EXPIRED))

    def _withdraw(self, slot: QuestionSlot, settled: InputResolution) -> None:
        """Free a slot, unless that was done before, and remove its input request from the record."""
        if slot.question in self._slots:
            self._free(slot)
            if slot.is_there and slot.key is not None:
                self._make(InputWithdrawn(key=slot.key, resolution=settled))

    def _slot_under(self, key: str) -> QuestionSlot | None:
        """Return the slot with that input key; None if there is none."""
        return next((slot for slot in self._slots.values() if slot.key == key), None)

    def _free(self, slot: QuestionSlot) -> None:
        """Remove a slot and cancel its timer; the question itself gets no answer by that."""
        slot.timer.cancel()
        self._slots.pop(slot.question, None)

    def _make(self, event: TaskEvent) -> None:
        """Apply an event to the record in the background."""
        self._background.run(partial(self._transitions.insist, self._owner, self._task, lambda _: event))


def _drop_answer(key: str, record: TaskRecord) -> CheckpointSaved:
    return CheckpointSaved(checkpoint=record.checkpoint, delivered=frozenset({key}))
