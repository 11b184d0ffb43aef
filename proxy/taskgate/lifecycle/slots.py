"""The open questions of one task: `Slots`, with a `QuestionSlot` for each.

`TaskInputs` takes a slot for each question of the server and frees it after the answer, the
refusal, or the end of its time.
"""

import asyncio
from collections.abc import Iterator

from taskgate.lifecycle.checkpoints import AskedQuestion
from taskgate.lifecycle.names import is_name
from taskgate.upstream.call_listener import ServerQuestion


class QuestionSlot:
    """An open question, its key in the record, and the timer that ends it. `is_there` is whether
    the record has it.
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
        """Return the key of the input request, if it was stored."""
        return self.key if self.is_there else None

    def asked(self, key: str) -> AskedQuestion:
        """Return the question with its two keys, for a checkpoint."""
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
        """The characters of all parameters."""
        return sum(each.size for each in self._slots.values())

    @property
    def are_named(self) -> bool:
        """Whether another process could answer all of them."""
        return all(is_name(each.question.key) or not each.question.is_open for each in self._slots.values())

    @property
    def asked(self) -> dict[str, AskedQuestion]:
        """The questions for a checkpoint, by the keys that they have, or may have, in the record."""
        return {each.key: each.asked(each.key) for each in self._slots.values() if each.key is not None}

    def take(self, question: ServerQuestion, timer: asyncio.TimerHandle) -> QuestionSlot:
        """Add a question."""
        slot = self._slots[question] = QuestionSlot(question, timer)
        return slot

    def at(self, question: ServerQuestion) -> QuestionSlot | None:
        """Return the slot of a question."""
        return self._slots.get(question)

    def under(self, key: str) -> QuestionSlot | None:
        """Return the slot with that key of an input request."""
        return next((slot for slot in self._slots.values() if slot.key == key), None)

    def free(self, slot: QuestionSlot) -> None:
        """Remove a slot, and stop its timer."""
        slot.timer.cancel()
        self._slots.pop(slot.question, None)
