"""The checkpoints of calls in task records: their seals, `CheckpointSeals`, and their writers.

From a checkpoint another process resumes a call. There are two kinds:

- `CallCheckpoint`: the server is working on the call. It is resumed at the *resume point* (a
  session, the server's task, or an event id). The server may still wait for answers to the
  questions. `CheckpointWriter` writes it.
- `RoundCheckpoint`: a modern server has answered with questions, and waits for no request at the
  moment. The call waits for the host's answers, and then sends the next request with them: the next
  *round*. It needs the server's state, and an answer to each question. `RoundCheckpointWriter`
  writes it, and after a takeover `RoundWaiter` waits for the answers.

Both have, for each question, the server's key and the key of the input request. The text is
encrypted, so that only this deployment can write and read checkpoints (T25). One that an
earlier version wrote is signed.
`recovery` opens checkpoints, `task_run` resumes the call.
"""

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from taskgate.clock import Entropy, SystemEntropy
from taskgate.cluster.encryption import NONCE_BYTES, is_box, joined
from taskgate.cluster.message_auth import SealKeys
from taskgate.domain.events import CheckpointSaved, InputResolution, InputWithdrawn, RoundDispatched
from taskgate.domain.record import OwnerKey, SealedCheckpoint, TaskId, TaskRecord, evolve
from taskgate.jsontext.spans import RawJson
from taskgate.lifecycle.transitions import Transitions
from taskgate.protocol.server_messages import Answer, Question
from taskgate.upstream.calls import Between, ResumePoint

MAX_SEALED: Final = 256 * 1024
"""Characters of a sealed checkpoint. A larger one is not stored, because every change of a task
writes its head, which contains the checkpoint."""
KEEP_EVERY: Final = timedelta(seconds=1)
"""The shortest time between two writes; the first one is immediate."""

InputOf = Callable[[], str | None]
"""Returns the key of the input request that a question became; None while it is not stored."""


class AskedQuestion(NamedTuple):
    """A question of a server in a checkpoint.

    `key` is the server's own key of it. `input` is the key of the input request in the record;
    None for a question that no host was asked.
    """

    key: str
    method: str
    input: str | None


class RoundCheckpoint(NamedTuple):
    """A call between two rounds: the server's state, to be sent back unchanged, and its questions."""

    state: RawJson | None
    asked: tuple[AskedQuestion, ...]


class CallCheckpoint(NamedTuple):
    """A call at its server: the resume point, and the questions whose answer may be missing there."""

    resume_point: ResumePoint
    asked: tuple[AskedQuestion, ...]


class CheckpointSeals:
    """The writer and reader of sealed checkpoints. A sealed text is valid for one task of one owner.

    It is encrypted. It is signed only while a replica is alive that reads no encrypted one.
    """

    def __init__(
        self, keys: SealKeys, entropy: Entropy | None = None, *, encrypts: Callable[[], bool] = lambda: True
    ) -> None:
        """`encrypts` returns whether all replicas that may read a checkpoint can decrypt it."""
        self._keys = keys
        self._entropy = SystemEntropy() if entropy is None else entropy
        self._encrypts = encrypts

    def seal(self, owner: OwnerKey, task: TaskId, checkpoint: RoundCheckpoint | CallCheckpoint) -> str | None:
        """Return the sealed text for the record; None if it is too large."""
        fields = [*checkpoint] if isinstance(checkpoint, RoundCheckpoint) else [checkpoint]
        text = json.dumps([*owner, task, *fields])
        if len(text) > MAX_SEALED:
            return None
        sealed = urlsafe_b64encode(self._sealed(text.encode(), _subject(owner, task))).decode()
        return sealed if len(sealed) <= MAX_SEALED else None

    def open(self, record: TaskRecord) -> RoundCheckpoint | CallCheckpoint | None:
        """Return the checkpoint of a record; None if it has none, or not a valid one of this task."""
        if record.checkpoint is None:
            return None
        try:
            text = self._opened(urlsafe_b64decode(record.checkpoint.sealed), _subject(record.owner, record.id))
            context, mount, task, *fields = json.loads(text or b"null")
            # One field is a whole CallCheckpoint, two are the fields of a RoundCheckpoint.
            checkpoint = _call_checkpoint(*fields) if len(fields) == 1 else _round_checkpoint(*fields)
        except (Error, ValueError, TypeError, RecursionError):
            # Deep arrays exceed the recursion limit. Without a key, any writer to the store can write them.
            return None
        return checkpoint if (OwnerKey(context, mount), task) == (record.owner, record.id) else None

    def _sealed(self, text: bytes, subject: bytes) -> bytes:
        if self._keys.current is None or not self._encrypts():
            return self._keys.sign(text)
        return self._keys.encrypt_record(text, subject, self._entropy.token(NONCE_BYTES))

    def _opened(self, sealed: bytes, subject: bytes) -> bytes | None:
        return self._keys.decrypt_record(sealed, subject) if is_box(sealed) else self._keys.verified(sealed)


def _subject(owner: OwnerKey, task: TaskId) -> bytes:
    return joined(*(part.encode() for part in (*owner, task)))


def _round_checkpoint(state: RawJson | None, asked: Iterable[Iterable[Any]]) -> RoundCheckpoint:
    return RoundCheckpoint(state, tuple(AskedQuestion(*each) for each in asked))


def _call_checkpoint(fields: tuple[Iterable[Any], Iterable[Iterable[Any]]]) -> CallCheckpoint:
    at, asked = fields
    return CallCheckpoint(ResumePoint(*at), tuple(AskedQuestion(*each) for each in asked))


UNSEALED: Final = CheckpointSeals(SealKeys())
"""For a gateway without a key: its checkpoints have no signature."""


# --- a call at its server ---------------------------------------------------------------------------------------------


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

    @property
    def in_turn(self) -> asyncio.Lock:
        """Held while a question or a checkpoint is written.

        While it is held, every earlier question is in the record, or was refused.
        """
        ...


class CheckpointWriter:
    """The checkpoint of one call at its server.

    Each event of the server gives a newer resume point. The newest is written into the record about
    once a second. A process that takes the task over resumes there, and the server does not repeat
    earlier events. So a resume point is written only after the questions before it are in the
    record.

    `TaskInputs` creates this object at the first resume point, or when the call itself was taken
    over. It calls `set` with each newer one, and then runs `write` in the background if that
    returned True.

    `_newest` is the newest resume point, None if the call must not be resumed elsewhere. `_safe` is
    the one that the record has. `_arrived` are keys of answers that the server has, and that the
    next write drops from the record. `_is_due` is whether `set` was called since the last write
    began; `_writing` is whether `write` runs.
    """

    __slots__ = (
        "_arrived",
        "_checkpoints",
        "_is_due",
        "_newest",
        "_owner",
        "_questions",
        "_safe",
        "_task",
        "_transitions",
        "_writing",
        "is_kept",
    )  # fmt: skip

    def __init__(
        self,
        owner: OwnerKey,
        task: TaskId,
        *,
        transitions: Transitions,
        checkpoints: CheckpointSeals,
        questions: QuestionState,
    ) -> None:
        self._owner = owner
        self._task = task
        self._transitions = transitions
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
    def has_resume_point(self) -> bool:
        """Whether the call has a resume point, written or to be written."""
        return self._newest is not None

    def start_at(self, resume_point: ResumePoint) -> None:
        """Start from a resume point that is already in the record."""
        self._newest = self._safe = resume_point
        self.is_kept = True

    def set(self, resume_point: ResumePoint | None, arrived: frozenset[str]) -> bool:
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
            async with self._questions.in_turn:
                if self._newest is None and resume_point is not None:
                    # Meanwhile the checkpoint was removed: only that is written now.
                    continue
                written = await self._transitions.insist(
                    self._owner, self._task, partial(self._event, resume_point, arrived)
                )
                self._arrived -= arrived
                if written is not None:
                    self._questions.arrived(arrived)
                self._note(resume_point, written)
            await asyncio.sleep(KEEP_EVERY.total_seconds())
        self._writing = False

    def _note(self, resume_point: ResumePoint | None, written: TaskRecord | None) -> None:
        # After a removal meanwhile, `set` has already reset both.
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


# --- a call between two rounds ----------------------------------------------------------------------------------------


class RoundCheckpointWriter:
    """The checkpoint of one wait between two rounds.

    `TaskInputs` creates one for each wait. The write of the last question has the checkpoint
    (`including`), so that a host sees no question of a call that could not be resumed. Then `write`
    runs once. When the answers are there, the upstream session awaits `leave`. That removes the
    checkpoint durably before the next round is sent, so that no other process sends the round a
    second time.

    `inputs` has, by the server's key of each question put to a host, a function. It returns the key
    of the input request. `_is_over` is whether `leave` was called. `_may_be_there` is whether a
    write of the checkpoint was tried, so that the record may have it.
    """

    __slots__ = (
        "_between",
        "_checkpoints",
        "_inputs",
        "_is_over",
        "_may_be_there",
        "_owner",
        "_task",
        "_transitions",
        "is_kept",
    )

    def __init__(
        self,
        owner: OwnerKey,
        task: TaskId,
        *,
        transitions: Transitions,
        checkpoints: CheckpointSeals,
        between: Between,
        inputs: Mapping[str, InputOf],
    ) -> None:
        self._owner = owner
        self._task = task
        self._transitions = transitions
        self._checkpoints = checkpoints
        self._between = between
        self._inputs = inputs
        self._is_over = False
        self._may_be_there = False
        self.is_kept = False
        """Whether another process could resume the call now: the record has the checkpoint."""

    def including(self, added: InputOf, input: str) -> SealedCheckpoint | None:
        """Return the checkpoint for the write that adds the input request `input`, of the question
        whose function is `added`. None if another question is still to be added, or as in `write`."""
        return self._checkpoint({key: input if of == added else of() for key, of in self._inputs.items()})

    def included(self) -> None:
        """Note that a write with the checkpoint was stored."""
        self.is_kept = not self._is_over

    async def write(self) -> None:
        """Write the checkpoint, unless it is in the record. Called once, after all questions of the
        round are there.

        Nothing is written if a question has neither an input request nor an answer, or the
        checkpoint is too large.
        """
        if not self.is_kept and await self._transitions.insist(self._owner, self._task, self._event) is not None:
            self.included()

    async def leave(self) -> bool:
        """Remove the checkpoint, and return whether the next round may be sent.

        Must be awaited once before that round. Returns False if the task has ended or another
        process has it. While the store is unavailable, this waits.
        """
        self._is_over, self.is_kept = True, False
        if not self._may_be_there:
            return True
        return await _mark_dispatched(self._transitions, self._owner, self._task)

    def _event(self, _: TaskRecord) -> CheckpointSaved | None:
        checkpoint = self._checkpoint({key: of() for key, of in self._inputs.items()})
        return None if checkpoint is None else CheckpointSaved(checkpoint=checkpoint)

    def _checkpoint(self, inputs: Mapping[str, str | None]) -> SealedCheckpoint | None:
        if self._is_over:
            # A write that began before `leave` does no harm: either its swap fails, because the
            # revision has changed, or `leave` removes what it wrote.
            return None
        state, asked, given = self._between
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
        return SealedCheckpoint(sealed=sealed, answers=answers)


async def _mark_dispatched(transitions: Transitions, owner: OwnerKey, task: TaskId) -> bool:
    """Store that the next round is about to be sent, which removes the checkpoint.

    Returns False if the task has ended or another process has it. Then the round must not be sent.
    """
    return await transitions.insist(owner, task, lambda _: RoundDispatched()) is not None


class RoundWaiter:
    """The wait of a call that was taken over, for the answers to the questions of `checkpoint`.

    The questions are in the record, and hosts store their answers there. `TaskRun` awaits
    `answers`, and then sends the next round. Right before that the upstream session awaits `leave`.
    Meanwhile `TaskListener` passes each changed record to `record_changed`.

    The questions have the usual time `wait`, counted from the moment when `answers` has read the
    record. Those without an answer by then are withdrawn.
    """

    __slots__ = ("_over", "_record", "_transitions", "_wait", "checkpoint", "is_kept")

    def __init__(
        self, record: TaskRecord, checkpoint: RoundCheckpoint, *, transitions: Transitions, wait: timedelta
    ) -> None:
        self.checkpoint = checkpoint
        self.is_kept = True
        """Whether another process could resume the call now: the record still has the checkpoint."""
        self._record = record
        self._transitions = transitions
        self._wait = wait
        self._over = asyncio.Event()

    def record_changed(self, record: TaskRecord) -> None:
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
        return {each.key: (Question(each.method, None), given.get(each.input)) for each in self.checkpoint.asked}

    async def leave(self) -> bool:
        """Remove the checkpoint, and return whether the next round may be sent.

        Returns False if the task has ended or another process has it.
        """
        self.is_kept = False
        return await _mark_dispatched(self._transitions, self._record.owner, self._record.id)

    async def _expire(self) -> None:
        for key in self._outstanding():
            await self._transitions.insist(self._record.owner, self._record.id, partial(_withdrawn, key))
        await self._look()

    async def _look(self) -> None:
        await self._transitions.insist(self._record.owner, self._record.id, self.record_changed)

    def _outstanding(self) -> list[str]:
        asked = {each.input for each in self.checkpoint.asked}
        return [request.key for request in self._record.inputs if request.key in asked]


def _withdrawn(key: str, _: TaskRecord) -> InputWithdrawn:
    return InputWithdrawn(key=key, resolution=InputResolution.EXPIRED)
