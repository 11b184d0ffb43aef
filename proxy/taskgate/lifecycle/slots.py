"""The open questions of one task: `Slots`, with a `QuestionSlot` for each.

A question has two keys. The *server's key* is the server's own name for it (`ServerQuestion.key`,
None without a name). The *input key* names the input request that the question becomes in the
task's record.

`TaskInputs` takes a slot when the server asks, before anything is stored. It sets `key` right
before the write of the input request, and `is_there` after that write succeeded. If the store fails
in between, the record may or may not have the input request. `TaskInputs` frees the slot when the
question is answered, refused or withdrawn, and when its time is over. It keeps the slot of a
question that the host answered with a task of its own, until that task has ended.
"""

import asyncio
from collections.abc import Iterator

from taskgate.lifecycle.checkpoints import AskedQuestion
from taskgate.lifecycle.names import is_name
from taskgate.upstream.call_listener import ServerQuestion


class QuestionSlot:
    """One question of the server.

    - `key`: the input key; None until the first attempt to write the input request.
    - `is_there`: whether the input request is known to be in the record.
    - `size`: the characters of the question's parameters.
    - `timer`: refuses the question at the end of its time; `Slots.free` cancels it.
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


class Slots:
    """All open questions of one task."""

    def __init__(self) -> None:
        self._slots: dict[ServerQuestion, QuestionSlot] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[QuestionSlot]:
        return iter(tuple(self._slots.values()))

    @property
    def size(self) -> int:
        """The characters of all questions' parameters."""
        return sum(each.size for each in self._slots.values())

    @property
    def are_named(self) -> bool:
        """Whether another process could continue with these questions.

        It could if each has a usable name of the server. One that is no longer open needs none:
        the server has its answer.
        """
        return all(is_name(each.question.key) or not each.question.is_open for each in self._slots.values())

    @property
    def asked(self) -> dict[str, AskedQuestion]:
        """The questions for a checkpoint, by input key.

        A question whose write has begun is included, although the record may not have it.
        """
        return {each.key: each.asked(each.key) for each in self._slots.values() if each.key is not None}

    def take(self, question: ServerQuestion, timer: asyncio.TimerHandle) -> QuestionSlot:
        """Add a question; its slot has no input key yet."""
        slot = self._slots[question] = QuestionSlot(question, timer)
        return slot

    def at(self, question: ServerQuestion) -> QuestionSlot | None:
        """Return the slot of a question; None if it was freed."""
        return self._slots.get(question)

    def under(self, key: str) -> QuestionSlot | None:
        """Return the slot with that input key; None if there is none."""
        return next((slot for slot in self._slots.values() if slot.key == key), None)

    def free(self, slot: QuestionSlot) -> None:
        """Remove a slot and cancel its timer; the question itself gets no answer by that."""
        slot.timer.cancel()
        self._slots.pop(slot.question, None)
