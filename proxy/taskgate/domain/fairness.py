"""Permits of one server, shared among contexts: how many are out, who has them, and a fair queue for those to come.

What must not live here: what is waited for, and for how long. What holds: there are never more permits out than
`limit`; while a context without one waits, each other context gets one more at most; items of one context leave in the
order they came; and every operation but `ahead`, `order` and `adjust` takes as long whether one context waits or a
hundred thousand.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

SHARE: Final = 8
"""How many times as many as there is room for yet may wait of one context: however many it sends, some room is left to
others. Of a queue for no more than eight, one context may have all.
"""
_KEPT: Final = 8
"""Of so many permits one is for contexts that have none."""


def kept_of(limit: int) -> int:
    """How many permits are for contexts that have none: one of every eight, and one of fewer; of a single one none."""
    return max(limit // _KEPT, 1) if limit > 1 else 0


class FairPermits(Generic[Item]):
    """At most `limit` permits, and at most `size` items that wait for one, each of which is in the queue once.

    `kept` of the permits are for contexts that have none. A context that has `share` of them gets another one only
    where no context waits that has fewer than its own share.
    """

    __slots__ = ("_held", "_lines", "_places", "_ranks", "in_use", "kept", "limit", "share", "size")

    def __init__(self, limit: int, size: int, *, share: int = 1, kept: int = 0) -> None:
        self.in_use = 0
        self.limit = limit
        self.size = size
        self.share = share
        self.kept = kept
        self._held: defaultdict[str, int] = defaultdict(int)
        self._lines: dict[str, _Line[Item]] = {}
        self._places: dict[Item, str] = {}
        # Contexts that wait, in the order of their turns: those that have no permit, those that have less than their
        # share, all others. To find the first of a plain dict takes the longer, the more were taken from before it.
        self._ranks = tuple(OrderedDict[str, None]() for _ in range(3))

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, item: object) -> bool:
        return item in self._places

    def adjust(self, limit: int, size: int, *, share: int, kept: int) -> None:
        """Have other bounds from now on; no permit is taken away, nor a place in the queue."""
        self.limit, self.size, self.share, self.kept = limit, size, share, kept
        for context, line in self._lines.items():
            self._rank(context, line)

    def acquire(self, context: str) -> bool:
        """A permit for a context; False where there is none that it may have."""
        if self.in_use >= (self.limit - self.kept if context in self._held else self.limit):
            return False
        self.in_use += 1
        self._held[context] += 1
        return True

    def enqueue(self, context: str, item: Item, *, share: int | None = None, must: bool = False) -> bool:
        """Let an item of a context wait; False, and nothing is done, where no more may. `must`: however many do.

        `share` is the context's own from now on; None means that of all.
        """
        line = self._lines.get(context)
        if not must:
            room = self.size - len(self._places)
            if room <= 0 or (line is not None and len(line.items) >= SHARE * room):
                return False
        if line is None:
            line = self._lines[context] = _Line()
        line.share = share
        self._rank(context, line)
        self._places[item] = context
        line.items[item] = line.came
        line.came += 1
        return True

    def release(self, context: str) -> bool:
        """A context gives a permit back; whether anything waits for one."""
        self.in_use -= 1
        self._held[context] -= 1
        if not self._held[context]:
            del self._held[context]
        line = self._lines.get(context)
        if line is not None:
            self._rank(context, line)
        return bool(self._places)

    def grant(self) -> Item | None:
        """The item whose turn it is, which has a permit and waits no more; None where no permit is free for any."""
        none, some, many = self._ranks
        free = self.limit - self.in_use
        turns = none or (free > self.kept and (some or many))
        if free <= 0 or not turns:
            return None
        context = next(iter(turns))
        line = self._lines[context]
        item, _ = line.items.popitem(last=False)
        del self._places[item]
        self.in_use += 1
        self._held[context] += 1
        if line.items:
            turns.move_to_end(context)
            self._rank(context, line)
        else:
            self._forget(context, line)
        return item

    def withdraw(self, item: Item) -> bool:
        """Let an item wait no more, wherever it is; False where it did not."""
        context = self._places.pop(item, None)
        if context is None:
            return False
        line = self._lines[context]
        del line.items[item]
        if not line.items:
            self._forget(context, line)
        return True

    def ahead(self, item: Item) -> int:
        """How many of those that wait have their turn before an item that does. Takes as long as contexts wait.

        As `order` has it; too many where others of its own context have gone from between the first and it.
        """
        context = self._places[item]
        own = self._lines[context]
        rounds = min(own.items[item] - own.first, len(own.items) - 1)
        count, is_before = rounds, 1
        for other in chain.from_iterable(self._ranks):
            if other == context:
                is_before = 0
            else:
                count += min(len(self._lines[other].items), rounds + is_before)
        return count

    def order(self) -> Iterator[Item]:
        """All that wait, in the order of their turns if calls take as long as each other.

        Those who have more permits have later turns, as it is now. Takes as long as items wait, for all of them.
        """
        lines = deque(deque(self._lines[context].items) for context in chain.from_iterable(self._ranks))
        while lines:
            line = lines.popleft()
            yield line.popleft()
            if line:
                lines.append(line)

    def _rank(self, context: str, line: "_Line[Item]") -> None:
        """Have a context that waits among those that have as much as it; where it is newly there, it is the last."""
        held = self._held.get(context, 0)
        share = self.share if line.share is None else line.share
        rank = self._ranks[0 if not held else 1 if held < share else 2]
        if rank is not line.rank:
            if line.rank is not None:
                del line.rank[context]
            rank[context] = None
            line.rank = rank

    def _forget(self, context: str, line: "_Line[Item]") -> None:
        assert line.rank is not None, "it waited"
        del line.rank[context], self._lines[context]


class _Line(Generic[Item]):
    """What waits of one context, by the number under which it came; `rank` is among whom it has its turns."""

    __slots__ = ("came", "items", "rank", "share")

    def __init__(self) -> None:
        self.came = 0
        self.items: OrderedDict[Item, int] = OrderedDict()
        self.rank: OrderedDict[str, None] | None = None
        self.share: int | None = None

    @property
    def first(self) -> int:
        """The number of the first that waits."""
        return next(iter(self.items.values()))
