"""The counts that caps limit in a store of one process: `StoreUsage`.

It counts unfinished tasks of every scope, and stored bytes. `CapKeys` are the keys that one
record counts under. It belongs to one event loop, so checking a cap and adding a record are one
step. It knows keys, times and sizes, and no store.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable
from typing import Final, NamedTuple

from taskgate.domain.limits import Cap, CapScope
from taskgate.domain.record import Outcome, Succeeded, TaskRecord
from taskgate.domain.versions import Peer
from taskgate.errors import TooManyBytes, TooManyTasks
from taskgate.jsontext.large import LargeJson
from taskgate.jsontext.spans import RawJson
from taskgate.stores.codec import pack_peer, pack_text

ALL_RECORDS: Final = b""
"""The key of all records, for global caps."""
FREE_PEER_SIZE: Final = 1024
"""Bytes of a host's declaration that do not count; real hosts declare some hundreds."""
MOST_UNUSED: Final = 1024
"""The number of keys without an unfinished task that are kept, as they soon have one again."""


class CapKeys(NamedTuple):
    """The keys that a record counts under, one for each CapScope in order; None if it has none."""

    context: Hashable
    subject: Hashable | None
    tenant: Hashable | None
    tool: Hashable | None
    upstream: Hashable | None
    all_records: Hashable = ALL_RECORDS


class _Counts:
    """The expiry times of the unfinished tasks under each key of a record, sorted: by scope, None where
    it has no key, and without those. Records of other keys may share a list.
    """

    __slots__ = ("by_scope", "lists")

    def __init__(self, by_scope: tuple[list[int] | None, ...]) -> None:
        self.by_scope = by_scope
        self.lists = tuple([ends for ends in by_scope if ends is not None])


class StoreUsage:
    """The unfinished tasks and stored bytes of a store, by key. Times are microseconds since 1970."""

    def __init__(self) -> None:
        self._counts: dict[CapKeys, _Counts] = {}
        self._most = MOST_UNUSED
        # By scope and key: the same lists.
        self._lists: tuple[dict[Hashable, list[int]], ...] = tuple({} for _ in CapScope)
        self._bytes: dict[Hashable, int] = {}
        self._subject_bytes: dict[Hashable, int] = {}

    def refusal(self, keys: CapKeys, caps: tuple[Cap, ...], now: int) -> TooManyTasks | TooManyBytes | None:
        """The refusal of the first cap that has no room for one more at the time `now`."""
        by_scope = (self._counts.get(keys) or self._count(keys)).by_scope
        for cap in caps:
            limit = cap.limit
            if cap.bytes:
                counted, key = self._subject_bytes if cap.scope is CapScope.SUBJECT else self._bytes, keys[cap.place]
                if key is not None and counted.get(key, 0) >= limit:
                    return TooManyBytes(limit, scope=cap.scope.value)
                continue
            ends = by_scope[cap.place]
            # Usually there is room for all of them, expired or not.
            if ends is not None and len(ends) >= limit and (used := len(ends) - bisect_right(ends, now)) >= limit:
                return TooManyTasks(limit, scope=cap.scope.value, used=used)
        return None

    def add_task(self, keys: CapKeys, expires: int) -> None:
        """Count one more unfinished task."""
        for ends in (self._counts.get(keys) or self._count(keys)).lists:
            # A new one nearly always goes to the end.
            if not ends or ends[-1] <= expires:
                ends.append(expires)
            else:
                insort(ends, expires)

    def remove_task(self, keys: CapKeys, expires: int) -> None:
        """Count one unfinished task less; ignores a task that was not counted."""
        for ends in (self._counts.get(keys) or self._count(keys)).lists:
            place = bisect_left(ends, expires)
            if place < len(ends) and ends[place] == expires:
                del ends[place]

    def add_bytes(self, keys: CapKeys, size: int) -> None:
        """Count more stored bytes of a context and its person; fewer if `size` is negative."""
        kept = self._bytes
        for counted, key in ((kept, keys.context), (self._subject_bytes, keys.subject)):
            if key is not None:
                total = counted[key] = counted.get(key, 0) + size
                if not total:
                    # Only contexts with stored bytes take memory.
                    del counted[key]
        kept[ALL_RECORDS] = kept.get(ALL_RECORDS, 0) + size

    def _count(self, keys: CapKeys) -> _Counts:
        """Begin to count under keys that had no task lately."""
        if len(self._counts) >= self._most:
            self._forget_unused()
        by_scope = [
            None if key is None else lists.setdefault(key, []) for lists, key in zip(self._lists, keys, strict=True)
        ]
        counts = self._counts[keys] = _Counts(tuple(by_scope))
        return counts

    def _forget_unused(self) -> None:
        """Forget keys without a task: only others take memory for longer."""
        # A task is in each list of its keys.
        self._counts = {keys: counts for keys, counts in self._counts.items() if all(counts.lists)}
        self._most = 2 * len(self._counts) + MOST_UNUSED
        for lists in self._lists:
            for key in [key for key, ends in lists.items() if not ends]:
                del lists[key]


def record_size(record: TaskRecord) -> int:
    """The bytes of a new record that count: its bodies, and the host's declaration beyond
    FREE_PEER_SIZE.
    """
    peer = record.call.peer
    return stored_size(record.call.params, record.outcome) + (peer_size(peer) if peer.capabilities else 0)


def peer_size(peer: Peer) -> int:
    """The bytes of a host's declaration that count."""
    return max(0, len(pack_peer(peer)) - FREE_PEER_SIZE)


def stored_size(params: RawJson | None, outcome: Outcome | None) -> int:
    """The bytes of stored bodies."""
    size = 0 if params is None else _size(params)
    if outcome is not None:
        size += _size(outcome.result if isinstance(outcome, Succeeded) else outcome.error)
    return size


def _size(text: RawJson | LargeJson) -> int:
    return len(text) if isinstance(text, LargeJson) or text.isascii() else len(pack_text(text))
