"""How many unfinished tasks there are of each context, tenant, tool or upstream, in a store that one process holds.

Belongs to one event loop, so that looking and counting one more are one step. Knows keys and times; no store.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterable


class Unfinished:
    """When the unfinished tasks of each key expire, in microseconds since 1970."""

    def __init__(self, kept: Iterable[tuple[Hashable, int]] = ()) -> None:
        # In order, and nearly always added at the end.
        self._ends: dict[Hashable, list[int]] = {}
        for key, expires in kept:
            self.add(key, expires)

    def count(self, key: Hashable, now: int) -> int:
        """How many of the key have not expired."""
        ends = self._ends.get(key)
        return 0 if ends is None else len(ends) - bisect_right(ends, now)

    def add(self, key: Hashable, expires: int) -> None:
        """There is one more."""
        ends = self._ends.get(key)
        if ends is None:
            self._ends[key] = [expires]
        elif ends[-1] <= expires:
            ends.append(expires)
        else:
            insort(ends, expires)

    def remove(self, key: Hashable, expires: int) -> None:
        """One that expires then is unfinished no more; one that was never added is passed over."""
        ends = self._ends.get(key)
        if ends is None:
            return
        place = bisect_left(ends, expires)
        if place < len(ends) and ends[place] == expires:
            del ends[place]
            if not ends:
                del self._ends[key]
