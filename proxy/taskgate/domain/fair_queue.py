"""The permits of one server with a fair queue: `FairQueue`.

A permit is the right of a context, which is one person here, to have one call at the server. The caller
of this module takes a permit with `acquire`, or queues an item with `enqueue` if there is none. It
returns each permit once with `release`, then calls `grant` until that returns None. An item leaves
the queue with its permit (`grant`), or without one (`withdraw`). Nothing here waits or calls back.

Invariants:

- No more permits are out than `limit`, but for those from before `adjust` lowered it.
- While a context without a permit waits, every other context gets at most one more.
- Reserved permits that are lent go back: as soon as another context calls, none is lent any more.
- Items of one context are granted in order of arrival.
- Every operation but `ahead`, `order`, `usage` and `adjust` takes constant time, even with 100,000 contexts.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

QUEUE_SHARE: Final = 8
"""A context may have at most this many times as many waiting items as there are free places.

So it leaves places to others, however many items it sends. It may fill a queue of eight or fewer.
"""
_RESERVE_ONE_OF: Final = 8


def reserved_permits(limit: int) -> int:
    """The permits for contexts without any: an eighth, none of fewer than eight."""
    return limit // _RESERVE_ONE_OF


class FairQueue(Generic[Item]):
    """At most `limit` permits, and at most `size` items that wait for one, each queued once.

    `reserved` of the permits are for contexts that have none. `lend` gives all but one of them to a
    context that calls alone, until another one calls. A context that has `share` permits gets another one only if
    no waiting context has fewer than its own share. `in_use` counts the permits that are out.
    """

    __slots__ = (
        "_caller", "_contexts", "_permits", "_queues", "_ranks", "changes", "in_use", "kept", "limit", "reserved",
        "share", "size",
    )  # fmt: skip

    def __init__(self, limit: int, size: int, *, share: int = 1, reserved: int = 0) -> None:
        self.in_use = 0
        self.limit = limit
        self.size = size
        self.share = share
        self.reserved = reserved
        self.kept = reserved
        """The reserved permits that are not lent."""
        self.changes = 0
        """How often another context called than the one before; 1 while only one ever did."""
        self._caller: str | None = None
        self._permits: dict[str, int] = {}
        self._queues: dict[str, _ContextQueue[Item]] = {}
        self._contexts: dict[Item, str] = {}
        # Waiting contexts in the order of their turns: those without a permit, those below their share, all others.
        # OrderedDict, because finding the first key of a plain dict slows down with every key removed before it.
        self._ranks = tuple(OrderedDict[str, None]() for _ in range(3))

    def __len__(self) -> int:
        return len(self._contexts)

    def __contains__(self, item: object) -> bool:
        return item in self._contexts

    def adjust(self, limit: int, size: int, *, share: int, reserved: int) -> None:
        """Set other bounds; permits in use and items in the queue stay."""
        self.limit, self.size, self.share, self.reserved = limit, size, share, reserved
        self.kept = reserved
        for context, queue in self._queues.items():
            self._rank(context, queue)

    def acquire(self, context: str) -> bool:
        """Take a permit at once; False, without effect, if none is free for the context.

        It does not look at the queue. As `grant` follows each release, a permit that is free while
        items wait is a reserved one.
        """
        if context != self._caller:
            self._caller, self.kept = context, self.reserved
            self.changes += 1
        permits = self._permits.get(context, 0)
        if self.in_use >= (self.limit - self.kept if permits else self.limit):
            return False
        self.in_use += 1
        self._permits[context] = permits + 1
        return True

    @property
    def can_lend(self) -> bool:
        """Whether `lend` would have an effect."""
        return self.kept > 1

    def lend(self) -> None:
        """Give the reserved permits but one to contexts that have some, until another context calls.

        With the last one, the next context to come is served at once, however long calls take.
        """
        self.kept = min(self.kept, 1)

    def enqueue(self, context: str, item: Item, *, share: int | None = None, must: bool = False) -> bool:
        """Add an item of a context to the queue; False, without effect, if it has no place.

        `share` is the context's own from now on; None means the general one. `must` ignores `size`, and
        leaves the share of a context that waits as it is.
        """
        queue = self._queues.get(context)
        if not must:
            room = self.size - len(self._contexts)
            if room <= 0 or (queue is not None and len(queue.items) >= QUEUE_SHARE * room):
                return False
        if queue is None:
            queue = self._queues[context] = _ContextQueue()
        if share is not None or not must:
            queue.share = share
        self._rank(context, queue)
        self._contexts[item] = context
        queue.items[item] = queue.arrivals
        queue.arrivals += 1
        return True

    def release(self, context: str) -> bool:
        """Take a permit back from a context; return whether any item waits for one."""
        self.in_use -= 1
        permits = self._permits[context] - 1
        if permits:
            self._permits[context] = permits
        else:
            del self._permits[context]
        if not self._contexts:
            return False
        queue = self._queues.get(context)
        if queue is not None:
            self._rank(context, queue)
        return True

    def grant(self) -> Item | None:
        """Give a free permit to the item whose turn it is, and return it.

        None if no permit is free for any.
        """
        without, below, others = self._ranks
        free = self.limit - self.in_use
        turns = without or (free > self.kept and (below or others))
        if free <= 0 or not turns:
            return None
        context = next(iter(turns))
        queue = self._queues[context]
        item, _ = queue.items.popitem(last=False)
        del self._contexts[item]
        self.in_use += 1
        self._permits[context] = self._permits.get(context, 0) + 1
        if queue.items:
            turns.move_to_end(context)
            self._rank(context, queue)
        else:
            self._drop(context, queue)
        return item

    def withdraw(self, item: Item) -> bool:
        """Remove an item from the queue; False if it was not in it."""
        context = self._contexts.pop(item, None)
        if context is None:
            return False
        queue = self._queues[context]
        del queue.items[item]
        if not queue.items:
            self._drop(context, queue)
        return True

    def ahead(self, item: Item) -> int:
        """The number of items before one in the queue; takes time for every waiting context.

        It agrees with `order`. It is too high if items of the same context were withdrawn between
        the first one and this one.
        """
        context = self._contexts[item]
        own = self._queues[context]
        rounds = min(own.items[item] - own.first, len(own.items) - 1)
        count, is_before = rounds, 1
        for other in chain.from_iterable(self._ranks):
            if other == context:
                is_before = 0
            else:
                count += min(len(self._queues[other].items), rounds + is_before)
        return count

    def order(self) -> Iterator[Item]:
        """The waiting items in the order of their turns, if all calls take the same time.

        Contexts with more permits come later, by the permits of now. Takes time for every item.
        """
        queues = deque(deque(self._queues[context].items) for context in chain.from_iterable(self._ranks))
        while queues:
            queue = queues.popleft()
            yield queue.popleft()
            if queue:
                queues.append(queue)

    def usage(self) -> dict[str, tuple[int, int]]:
        """How many permits and waiting items each context has. Takes time for every context."""
        found = {context: (permits, 0) for context, permits in self._permits.items()}
        for context, queue in self._queues.items():
            found[context] = self._permits.get(context, 0), len(queue.items)
        return found

    def _rank(self, context: str, queue: "_ContextQueue[Item]") -> None:
        """Move a waiting context to the rank of its permits; in a new rank it is last."""
        permits = self._permits.get(context, 0)
        share = self.share if queue.share is None else queue.share
        rank = self._ranks[0 if not permits else 1 if permits < share else 2]
        if rank is not queue.rank:
            if queue.rank is not None:
                del queue.rank[context]
            rank[context] = None
            queue.rank = rank

    def _drop(self, context: str, queue: "_ContextQueue[Item]") -> None:
        assert queue.rank is not None, "a waiting context has a rank"
        del queue.rank[context], self._queues[context]


class _ContextQueue(Generic[Item]):
    """The waiting items of one context, each with its number of arrival.

    `arrivals` is the next such number. `rank` is the one of `_ranks` that the context is in.
    `share` is the context's own, None for the general one.
    """

    __slots__ = ("arrivals", "items", "rank", "share")

    def __init__(self) -> None:
        self.arrivals = 0
        self.items: OrderedDict[Item, int] = OrderedDict()
        self.rank: OrderedDict[str, None] | None = None
        self.share: int | None = None

    @property
    def first(self) -> int:
        """The arrival number of the first item."""
        return next(iter(self.items.values()))
