"""The names that a server gives its questions, for one task: `QuestionNames`.

A server that supports resumption names each question, with a key unique in its call. After a
takeover it asks its questions again, and the name tells which input request of the record each one
is. `slots` has the questions that are open in this process. This module has two other kinds:

- *expected*: asked of an earlier process, and not asked again yet;
- *given*: answered by this process, while the server may not have received the answer yet.

A process that takes the task over needs both, so checkpoints contain them. `TaskInputs` is the only
user. No code here waits or writes; the timers come from the caller.
"""

from asyncio import TimerHandle
from typing import Final

from taskgate.domain.machine import MAX_CHECKPOINT_ANSWERS
from taskgate.lifecycle.checkpoints import AskedQuestion

MAX_NAME: Final = 1024
"""Characters of a name. A call whose questions have longer names is not resumed."""


def is_name(key: str | None) -> bool:
    """Return whether a question with that name of the server can be answered by another process."""
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
        """The expected and the given questions, by the keys of their input requests."""
        expected = {each.input or "": each for name, each in self._known.items() if name in self._expected}
        return {**expected, **{key: asked for key, (asked, _) in self._given.items()}}

    def expect(self, asked: AskedQuestion, timer: TimerHandle) -> None:
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
