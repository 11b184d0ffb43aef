"""Objects that peers write again and again to the letter: how such a text reads is remembered.

A host of the modern era says who it is and what it can in every request. What holds: what is remembered is told by
the text alone, whoever sent it, and is bounded in number; in size by whoever reads. Knows nothing of messages.
"""

from typing import Any, Final

MOST: Final = 8
"""Texts that are remembered: each is compared to the next one, for nothing tells before where that ends."""

MOST_MET: Final = 256
"""Texts that are waited for a second time at once."""


class Known:
    """A text that is one whole object, and its members where it stood last, which was `at`."""

    __slots__ = ("at", "members", "size", "text")

    def __init__(self, text: str, members: dict[str, Any], at: int) -> None:
        self.text = text
        self.size = len(text)
        self.members = members
        self.at = at


class Familiar(dict[str, Any]):
    """A shape that opens nothing, for objects that begin with `lead`, a brace first; others are read as ever."""

    def __init__(self, lead: str) -> None:
        super().__init__()
        self.lead: Final = lead
        self._known: list[Known] = []
        self._met: set[int] = set()

    def find(self, text: str, at: int) -> Known | None:
        """The object that stands there, if it is known. No object is the beginning of another: it is that one."""
        for known in self._known:
            if text.startswith(known.text, at):
                return known
        return None

    def meet(self, known: Known) -> None:
        """Remember an object that was read in full, if it is met for the second time: most that vary never are."""
        mark = hash(known.text)
        if mark not in self._met:
            if len(self._met) >= MOST_MET:
                self._met.clear()
            self._met.add(mark)
            return
        self._known.insert(0, known)
        del self._known[MOST:]
