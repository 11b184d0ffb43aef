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
from taskgate.errors import TooManyBytes, TooManyTasks
from taskgate.jsontext.large import LargeJson
from taskgate.jsontext.spans import RawJson
from taskgate.stores.codec import pack_peer, pack_text

ALL_RECORDS: Final = b""
"""The key of all records, for global caps."""
FREE_PEER_SIZE: Final = 1024
"""Bytes of a host's declaration that do not count; real hosts declare some hundreds."""
TOO_MANY: Final = {
    CapScope.CONTEXT: "unfinished tasks",
    CapScope.TENANT: "unfinished tasks of the tenant",
    CapScope.TOOL: "unfinished tasks of the tool, from all callers",
    CapScope.UPSTREAM: "unfinished tasks of the server, from all callers",
    CapScope.GLOBAL: "unfinished tasks of all callers",
}
"""What a refusal names, by scope."""


class CapKeys(NamedTuple):
    """The keys that a record counts under, one for each CapScope in order; None if it has none."""

    context: Hashable
    tenant: Hashable | None
    tool: Hashable | None
    upstream: Hashable | None
    all_records: Hashable = ALL_RECORDS


class StoreUsage:
    """The unfinished tasks and stored bytes of a store, by key. Times are microseconds since 1970."""

    def __init__(self) -> None:
        # By scope and key: the expiry times, sorted. A new one nearly always goes to the end.
        self._unfinished: tuple[dict[Hashable, list[int]], ...] = tuple({} for _ in CapScope)
        self._bytes: dict[Hashable, int] = {}

    def refusal(self, keys: CapKeys, caps: tuple[Cap, ...], now: int) -> TooManyTasks | TooManyBytes | None:
        """The refusal of the first cap that has no room for one more at the time `now`."""
        for cap in caps:
            place, limit = cap.place, cap.limit
            key = keys[place]
            if cap.bytes:
                if self._bytes.get(key, 0) >= limit:
                    return TooManyBytes(limit, scope=cap.scope.value)
            elif key is not None:
                ends = self._unfinished[place].get(key, ())
                # Usually there is room for all of them, expired or not.
                if len(ends) >= limit and len(ends) - bisect_right(ends, now) >= limit:
                    return TooManyTasks(limit, TOO_MANY[cap.scope], scope=cap.scope.value)
        return None

    def add_task(self, keys: CapKeys, expires: int) -> None:
        """Count one more unfinished task."""
        for unfinished, key in zip(self._unfinished, keys, strict=True):
            if key is None:
                continue
            ends = unfinished.get(key)
            if ends is None:
                unfinished[key] = [expires]
            elif ends[-1] <= expires:
                ends.append(expires)
            else:
                insort(ends, expires)

    def remove_task(self, keys: CapKeys, expires: int) -> None:
        """Count one unfinished task less; ignores a task that was not counted."""
        for unfinished, key in zip(self._unfinished, keys, strict=True):
            ends = unfinished.get(key)
            if ends is None:
                continue
            place = bisect_left(ends, expires)
            if place < len(ends) and ends[place] == expires:
                del ends[place]
                if not ends:
                    del unfinished[key]

    def add_bytes(self, context: Hashable, size: int) -> None:
        """Count more stored bytes of a context; fewer if `size` is negative."""
        kept = self._bytes
        total = kept[context] = kept.get(context, 0) + size
        if not total:
            # Only contexts with stored bytes take memory.
            del kept[context]
        kept[ALL_RECORDS] = kept.get(ALL_RECORDS, 0) + size


def record_size(record: TaskRecord) -> int:
    """The bytes of a new record that count: its bodies, and the host's declaration beyond
    FREE_PEER_SIZE.
    """
    size, peer = stored_size(record.call.params, record.outcome), record.call.peer
    return size + max(0, len(pack_peer(peer)) - FREE_PEER_SIZE) if peer.capabilities else size


def stored_size(params: RawJson | None, outcome: Outcome | None) -> int:
    """The bytes of stored bodies."""
    size = 0 if params is None else _size(params)
    if outcome is not None:
        size += _size(outcome.result if isinstance(outcome, Succeeded) else outcome.error)
    return size


def _size(text: RawJson | LargeJson) -> int:
    return len(text) if isinstance(text, LargeJson) or text.isascii() else len(pack_text(text))
