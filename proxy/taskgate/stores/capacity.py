"""What caps are held against, in a store that one process holds: unfinished tasks by every scope, and kept bytes."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from taskgate.domain.caps import Cap, CapScope
from taskgate.domain.record import Outcome, Succeeded, TaskRecord
from taskgate.errors import TooManyBytes, TooManyTasks
from taskgate.jsontext.large import LargeJson
from taskgate.jsontext.spans import RawJson
from taskgate.stores.codec import pack_peer, pack_text


class UnfinishedCounter:
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


EVERYBODY: Final = b""
"""What all records share."""
USUAL_PEER: Final = 1024
"""Bytes that a host may say of itself before they count: those of hosts have some hundreds."""
TOO_MANY: Final = {
    CapScope.CONTEXT: "unfinished tasks",
    CapScope.TENANT: "unfinished tasks of the tenant",
    CapScope.TOOL: "unfinished tasks of the tool, whoever made them",
    CapScope.UPSTREAM: "unfinished tasks of the server, whoever made them",
    CapScope.GLOBAL: "unfinished tasks of all callers",
}
"""What there are too many of."""


class CapKeys(NamedTuple):
    """What a record has in common with others, one key for each CapScope, in their order; None where it has nothing."""

    context: Hashable
    tenant: Hashable | None
    tool: Hashable | None
    upstream: Hashable | None
    everybody: Hashable = EVERYBODY


class StoreUsage:
    """How much of it is taken."""

    def __init__(self) -> None:
        self._unfinished = tuple(UnfinishedCounter() for _ in CapScope)
        self._bytes: Counter[Hashable] = Counter()

    def refusal(self, shares: CapKeys, caps: tuple[Cap, ...], now: int) -> TooManyTasks | TooManyBytes | None:
        """What the first of the caps that has no room for one more says at `now`, in microseconds since 1970."""
        for cap in caps:
            place, limit = cap.place, cap.limit
            key = shares[place]
            if cap.bytes:
                if self._bytes[key] >= limit:
                    return TooManyBytes(limit, scope=cap.scope.value)
            elif key is not None and self._unfinished[place].count(key, now) >= limit:
                return TooManyTasks(limit, TOO_MANY[cap.scope], scope=cap.scope.value)
        return None

    def add_task(self, shares: CapKeys, expires: int) -> None:
        """There is one more unfinished task."""
        for unfinished, key in zip(self._unfinished, shares, strict=True):
            if key is not None:
                unfinished.add(key, expires)

    def remove_task(self, shares: CapKeys, expires: int) -> None:
        """One is unfinished no more; one that never began is passed over."""
        for unfinished, key in zip(self._unfinished, shares, strict=True):
            if key is not None:
                unfinished.remove(key, expires)

    def add_bytes(self, context: Hashable, size: int) -> None:
        """So many more bytes of a context are kept; fewer where `size` is below 0."""
        kept = self._bytes[context] = self._bytes[context] + size
        if not kept:
            # As many contexts are remembered as have anything.
            del self._bytes[context]
        self._bytes[EVERYBODY] += size


def record_size(record: TaskRecord) -> int:
    """The bytes that count of a record when it is made: its bodies, and what its host declared beyond what is usual."""
    size, peer = stored_size(record.call.params, record.outcome), record.call.peer
    return size + max(0, len(pack_peer(peer)) - USUAL_PEER) if peer.capabilities else size


def stored_size(params: RawJson | None, outcome: Outcome | None) -> int:
    """The bytes that bodies take as they are stored."""
    size = 0 if params is None else _size(params)
    if outcome is not None:
        size += _size(outcome.result if isinstance(outcome, Succeeded) else outcome.error)
    return size


def _size(text: RawJson | LargeJson) -> int:
    return len(text) if isinstance(text, LargeJson) or text.isascii() else len(pack_text(text))
