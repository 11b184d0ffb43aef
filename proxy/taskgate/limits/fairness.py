"""A queue that is fair between contexts: whose turn it is goes round, so many that wait for one hold up no other.

What must not live here: what is waited for, and for how long. What holds: items of one context leave in the order they
came; between two of them every other context that waits has one turn at most; and every operation but `ahead` and
`order` takes as long whether one context waits or a hundred thousand.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

SHARE: Final = 8
"""How many times as many as there is room for yet may wait of one context: however many it sends, some room is left to
others. Of a queue for no more than eight, one context may have all.
"""


class FairQueue(Generic[Item]):
    """At most `limit` items that wait, which are told apart by their hash; each is in it once."""

    __slots__ = ("_lines", "_places", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # In the order of their turns: a context goes to the end when it had one, and leaves when nothing of it waits.
        # To find the first of a plain dict takes the longer, the more were taken from before it.
        self._lines: OrderedDict[str, _Line[Item]] = OrderedDict()
        self._places: dict[Item, str] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, item: object) -> bool:
        return item in self._places

    def put(self, context: str, item: Item, *, must: bool = False) -> bool:
        """Let an item of a context wait; False, and nothing is done, where no more may. `must`: however many do."""
        line = self._lines.get(context)
        if not must:
            room = self.limit - len(self._places)
            if room <= 0 or (line is not None and len(line.items) >= SHARE * room):
                return False
        if line is None:
            line = self._lines[context] = _Line()
        self._places[item] = context
        line.items[item] = line.came
        line.came += 1
        return True

    def take(self) -> Item | None:
        """The item whose turn it is, which waits no more; None where none does."""
        if not self._lines:
            return None
        context, line = next(iter(self._lines.items()))
        item, _ = line.items.popitem(last=False)
        del self._places[item]
        if line.items:
            self._lines.move_to_end(context)
        else:
            del self._lines[context]
        return item

    def remove(self, item: Item) -> bool:
        """Let an item wait no more, wherever it is; False where it did not."""
        context = self._places.pop(item, None)
        if context is None:
            return False
        line = self._lines[context]
        del line.items[item]
        if not line.items:
            del self._lines[context]
        return True

    def ahead(self, item: Item) -> int:
        """How many of those that wait have their turn before an item that does. Takes as long as contexts wait.

        Never too few; too many only where others of its own context have gone from between the first and it.
        """
        context = self._places[item]
        own = self._lines[context]
        rounds = min(own.items[item] - own.first, len(own.items) - 1)
        count, is_before = rounds, 1
        for other, line in self._lines.items():
            if other == context:
                is_before = 0
            else:
                count += min(len(line.items), rounds + is_before)
        return count

    def order(self) -> Iterator[Item]:
        """All that wait, in the order of their turns as it is now. Takes as long as items wait, for all of them."""
        lines = deque(deque(line.items) for line in self._lines.values())
        while lines:
            line = lines.popleft()
            yield line.popleft()
            if line:
                lines.append(line)


class _Line(Generic[Item]):
    """What waits of one context, by the number under which it came."""

    __slots__ = ("came", "items")

    def __init__(self) -> None:
        self.came = 0
        self.items: OrderedDict[Item, int] = OrderedDict()

    @property
    def first(self) -> int:
        """The number of the first that waits."""
        return next(iter(self.items.values()))
