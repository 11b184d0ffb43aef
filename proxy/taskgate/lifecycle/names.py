"""The server's keys for the questions of one task: `QuestionNames`. It maps each to the key of its
input request.

A server that supports resumption names its questions. After a takeover it asks them again, and the
names tell which input request each is. `TaskInputs` uses this for questions that are not open here:
those asked of an earlier process, and those answered a moment ago. Pure but for the timers that
callers pass.
"""

from asyncio import TimerHandle
from typing import Final

from taskgate.domain.machine import MAX_CHECKPOINT_ANSWERS
from taskgate.lifecycle.checkpoints import AskedQuestion

MAX_NAME: Final = 1024
"""Characters of a name. A call whose questions have longer names is not resumed."""


def is_name(key: str | None) -> bool:
    """Return whether a question with that key can be answered by another process."""
    return key is not None and len(key) <= MAX_NAME


class QuestionNames:
    """The named questions of one task that are not open in this process."""

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
        """Add a question that an earlier process was asked. The timer is cancelled when it is asked
        again.
        """
        self._known[asked.key] = asked
        self._expected[asked.key] = timer

    def met(self, name: str | None) -> str | None:
        """Return the key of the input request if the question was expected; else None."""
        known = None if name is None else self._known.get(name)
        if known is None or name is None:
            return None
        timer = self._expected.pop(name, None)
        if timer is not None:
            timer.cancel()
        return known.input

    def answered(self, asked: AskedQuestion, key: str, size: int) -> bool:
        """Add an answer that was sent to the server; return False if too many wait to arrive."""
        if self._size + size > MAX_CHECKPOINT_ANSWERS:
            return False
        self._size += size
        self._given[key] = asked, size
        return True

    @property
    def given(self) -> frozenset[str]:
        """The keys of the input requests whose answers were sent."""
        return frozenset(self._given)

    def forget(self, keys: frozenset[str]) -> None:
        """Remove answers that arrived and need not be repeated after a takeover."""
        for key in keys.intersection(self._given):
            _, size = self._given.pop(key)
            self._size -= size

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._expected.values():
            timer.cancel()
        self._expected.clear()
