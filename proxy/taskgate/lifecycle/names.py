"""Which question of a server is which input request of a task, by the names that the server has for its questions.

A process that takes the call over answers by them. Pure but for timers that whoever expects a question brings. What
must not live here: questions that are open here (`inputs`), and how names are kept (`checkpoint_writer`).
"""

from asyncio import TimerHandle
from typing import Final

from taskgate.domain.machine import MAX_CHECKPOINT_ANSWERS
from taskgate.lifecycle.checkpoints import AskedQuestion

MAX_NAME: Final = 1024
"""Characters: a server that has longer names for its questions is not gone on with."""


def is_name(key: str | None) -> bool:
    """Whether a question with that key of its server can be answered by another process."""
    return key is not None and len(key) <= MAX_NAME


class QuestionNames:
    """Of one task, the questions that are not open here: asked of an earlier process, or answered a moment ago."""

    __slots__ = ("_expected", "_given", "_known", "_size")

    def __init__(self) -> None:
        self._known: dict[str, AskedQuestion] = {}
        self._expected: dict[str, TimerHandle] = {}
        self._given: dict[str, tuple[AskedQuestion, int]] = {}
        self._size = 0

    @property
    def others(self) -> dict[str, AskedQuestion]:
        """All of them, by the keys of their input requests."""
        expected = {each.input or "": each for name, each in self._known.items() if name in self._expected}
        return {**expected, **{key: asked for key, (asked, _) in self._given.items()}}

    def expect(self, asked: AskedQuestion, timer: TimerHandle) -> None:
        """An earlier process was asked that; the timer is stopped once it is asked anew."""
        self._known[asked.key] = asked
        self._expected[asked.key] = timer

    def met(self, name: str | None) -> str | None:
        """The key of the input request that a question is which was expected; None for another."""
        known = None if name is None else self._known.get(name)
        if known is None or name is None:
            return None
        timer = self._expected.pop(name, None)
        if timer is not None:
            timer.cancel()
        return known.input

    def answered(self, asked: AskedQuestion, key: str, size: int) -> bool:
        """The server is given an answer of that size; False where too many wait to arrive to keep one more."""
        if self._size + size > MAX_CHECKPOINT_ANSWERS:
            return False
        self._size += size
        self._given[key] = asked, size
        return True

    @property
    def given(self) -> frozenset[str]:
        """The keys of the input requests whose answers the server was given."""
        return frozenset(self._given)

    def forget(self, keys: frozenset[str]) -> None:
        """What was answered under those keys is not told of again, wherever somebody goes on."""
        for key in keys.intersection(self._given):
            _, size = self._given.pop(key)
            self._size -= size

    def close(self) -> None:
        """Expect nothing any more."""
        for timer in self._expected.values():
            timer.cancel()
        self._expected.clear()
