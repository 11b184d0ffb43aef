"""How many unfinished tasks every context has: what caps are held against, in a store that one process holds.

Belongs to one event loop, so that looking and counting one more are one step. Knows digests and times; no store.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable


class Unfinished:
    """When the unfinished tasks of each context expire, in microseconds since 1970."""

    def __init__(self, kept: Iterable[tuple[bytes, int]] = ()) -> None:
        # In order, and nearly always added at the end.
        self._ends: dict[bytes, list[int]] = {}
        for context, expires in kept:
            self.add(context, expires)

    def count(self, context: bytes, now: int) -> int:
        """How many of the context have not expired."""
        ends = self._ends.get(context)
        return 0 if ends is None else len(ends) - bisect_right(ends, now)

    def add(self, context: bytes, expires: int) -> None:
        """There is one more."""
        insort(self._ends.setdefault(context, []), expires)

    def remove(self, context: bytes, expires: int) -> None:
        """One that expires then is unfinished no more; one that was never added is passed over."""
        ends = self._ends.get(context, [])
        place = bisect_left(ends, expires)
        if ends[place : place + 1] == [expires]:
            del ends[place]
            if not ends:
                del self._ends[context]
