"""Numbers of words, by which one that comes again is known: `Numbering` gives them, `Replays` judges them (T25).

A number is the time in microseconds, and larger than the one before. Of a process that was heard, only what has a
larger number is new. Of one that was not, only what it has just said. So a word that is written again is heard once.
"""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from taskgate.clock import Entropy

NUMBERED: Final = "a11e"
"""The end of the name of each process that numbers its words: one without a number is not its word."""

FRESH: Final = timedelta(seconds=60)
"""How old the first word of a process may be that is heard of it."""

MOST: Final = 1024
"""Processes of which the last number is remembered."""

_MICROSECOND: Final = timedelta(microseconds=1)
_START: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

Now = Callable[[], datetime]
"""The time that all processes share."""


def name_of_numbered(entropy: Entropy) -> str:
    """A name for a process that numbers its words: 16 hexadecimal digits, of which 12 cannot be guessed."""
    return entropy.token(6).hex() + NUMBERED


class Numbering:
    """Numbers for the words of one process."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._last = 0

    def next(self) -> int:
        """A number that is larger than all before."""
        self._last = max(self._last + 1, _number(self._now()))
        return self._last


class Replays:
    """What one process has heard of the others."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._last: OrderedDict[str, int] = OrderedDict()

    def is_new(self, sender: str, number: int | None) -> bool:
        """Whether a word with that number was not heard before; it counts as heard from now on.

        Without a number, it is new where its sender numbers none: a gateway of a version before.
        """
        if number is None:
            return not sender.endswith(NUMBERED)
        last = self._last.get(sender)
        if last is None:
            last = _number(self._now() - FRESH)
        if number <= last:
            return False
        self._last[sender] = number
        self._last.move_to_end(sender)
        if len(self._last) > MOST:
            self._last.popitem(last=False)
        return True


def _number(moment: datetime) -> int:
    return (moment - _START) // _MICROSECOND
