"""The questions of one task that wait at once, each in its place, until it has its last answer or none will come.

What must not live here: how they get into the record and back (`inputs`).
"""

import asyncio
from collections.abc import Iterator

from taskgate.lifecycle.checkpoints import AskedQuestion
from taskgate.lifecycle.names import is_name
from taskgate.upstream.call_listener import ServerQuestion


class QuestionSlot:
    """A question's place; `timer` ends its time."""

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

    def asked(self, key: str) -> AskedQuestion:
        """What it is called by its server, and in the record."""
        return AskedQuestion(self.question.key or "", self.question.question.method, key)


class Slots:
    """All of them."""

    def __init__(self) -> None:
        self._slots: dict[ServerQuestion, QuestionSlot] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[QuestionSlot]:
        return iter(tuple(self._slots.values()))

    @property
    def size(self) -> int:
        """Of the parameters of all of them, in characters."""
        return sum(each.size for each in self._slots.values())

    @property
    def are_named(self) -> bool:
        """Whether another process could answer all that wait."""
        return all(is_name(each.question.key) or not each.question.is_open for each in self._slots.values())

    @property
    def asked(self) -> dict[str, AskedQuestion]:
        """What they are called by their server, by the keys that they have in the record, or may have."""
        return {each.key: each.asked(each.key) for each in self._slots.values() if each.key is not None}

    def take(self, question: ServerQuestion, timer: asyncio.TimerHandle) -> QuestionSlot:
        """A place for one more."""
        slot = self._slots[question] = QuestionSlot(question, timer)
        return slot

    def at(self, question: ServerQuestion) -> QuestionSlot | None:
        """The place of a question."""
        return self._slots.get(question)

    def under(self, key: str) -> QuestionSlot | None:
        """The place of the one under a key of the record."""
        return next((slot for slot in self._slots.values() if slot.key == key), None)

    def free(self, slot: QuestionSlot) -> None:
        """It needs none any more."""
        slot.timer.cancel()
        self._slots.pop(slot.question, None)
