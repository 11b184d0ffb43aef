"""The news of one process: which records changed lately, and who waits to hear of it.

What other processes change is here if somebody tells of it. Nothing here is truth: an entry is a hint to look at the
record. Every waiter has a future of its own, found by the task, owner or holder it waits for, so a change wakes those
it concerns and costs next to nothing when there are none. All of it belongs to one event loop; there are no locks.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from datetime import timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Final, NamedTuple

from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import ChangeBatch, HolderWatch, OwnerWatch, RecordChange, TaskWatch, Watch

GONE: Final = -1
"""The revision of a record that is no more."""

REMEMBERED: Final = 8192
"""How many changes are kept for those who watch an owner or a holder and are away for a moment."""

_ANY: Final = GONE - 1
"""Older than every revision: what is known by those who watch more than one task."""


class _Entry(NamedTuple):
    id: TaskId
    revision: int
    owner: OwnerKey | None
    holder: str | None


class ChangeFeed:
    """Recent changes in the order they were made, and those who wait for the next."""

    def __init__(self, *, remembered: int = REMEMBERED) -> None:
        self._place = 0
        self._recent: deque[_Entry] = deque(maxlen=remembered)
        self._by_task: _Index = {}
        self._by_owner: _Index = {}
        self._by_holder: _Index = {}
        self._closed = False

    @property
    def waiters(self) -> int:
        """How many wait right now."""
        return sum(1 for _ in self._all_waiters())

    def add_committed(self, record: TaskRecord, *, held_by: str | None = None) -> None:
        """A record was committed. `held_by` is who held its lease before: the last change takes the lease away."""
        if held_by is None and record.lease is not None:
            held_by = record.lease.holder
        self._add(_Entry(record.id, record.revision, record.owner, held_by))

    def add_removed(self, id: TaskId, *, owner: OwnerKey | None, holder: str | None) -> None:
        """A record was removed; `owner` is None where it could not be read any more."""
        self._add(_Entry(id, GONE, owner, holder))

    def add(self, id: TaskId, revision: int, *, owner: OwnerKey | None, holder: str | None) -> None:
        """A record is told to be at a revision, or GONE; `holder` is who held its lease before."""
        self._add(_Entry(id, revision, owner, holder))

    def reset(self) -> None:
        """Changes may have been missed: every place until now is forgotten, and every wait ends."""
        self._place += 1
        self._recent.clear()
        for waiter in self._all_waiters():
            waiter.wake(self._place)

    async def changed(self, watch: Watch, *, timeout: timedelta, look: Callable[[TaskId], int]) -> ChangeBatch:
        """What `TaskStore.changed` promises; `look` tells the revision a task is at now, or GONE.

        A place that is not remembered gives early, empty news that are not complete. Raises StoreUnavailable once
        closed.
        """
        self._expect_open()
        index, key, known = self._where(watch)
        with _Waiter(index, key, known) as waiter:
            news = self._at_once(watch, look)
            if news is None:
                await waiter.wait(timeout)
                # Whatever ended the wait: a change that came after its end and before this line counts as well.
                news = None if waiter.first is None else self._recall(watch, waiter.first - 1)
        return news or ChangeBatch(place=self._place)

    async def changed_remotely(
        self, watch: TaskWatch, *, timeout: timedelta, look: Callable[[TaskId], Awaitable[int]]
    ) -> ChangeBatch:
        """As `changed`, where a look takes time, and others change what is looked at."""
        self._expect_open()
        index, key, known = self._where(watch)
        with _Waiter(index, key, known) as waiter:
            revision = await look(watch.id)
            if _is_newer(revision, known):
                return ChangeBatch(changes=(RecordChange(watch.id, revision),), place=self._place)
            # What was heard during the look has ended the wait already.
            await waiter.wait(timeout)
            news = None if waiter.first is None else self._recall(watch, waiter.first - 1)
        return news or ChangeBatch(place=self._place)

    def close(self) -> None:
        """End every wait, early and without news; nobody can wait any more."""
        self._closed = True
        for waiter in self._all_waiters():
            waiter.end()

    def _expect_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed")

    def _add(self, entry: _Entry) -> None:
        self._place += 1
        self._recent.append(entry)
        for index, key in (
            (self._by_task, entry.id),
            (self._by_owner, entry.owner),
            (self._by_holder, entry.holder),
        ):
            for waiter in index.get(key, ()):
                if _is_newer(entry.revision, waiter.known):
                    waiter.wake(self._place)

    def _at_once(self, watch: Watch, look: Callable[[TaskId], int]) -> ChangeBatch | None:
        """News that need no waiting."""
        if not isinstance(watch, TaskWatch):
            return None if watch.since is None else self._recall(watch, watch.since)
        revision = look(watch.id)
        if not _is_newer(revision, watch.revision):
            return None
        return ChangeBatch(changes=(RecordChange(watch.id, revision),), place=self._place)

    def _recall(self, watch: Watch, since: int) -> ChangeBatch | None:
        """The changes after a place, each task's newest only; None if there were none."""
        missed = self._place - since
        if not 0 <= missed <= len(self._recent):
            return ChangeBatch(place=self._place, complete=False)
        newest: dict[TaskId, int] = {}
        for entry in islice(reversed(self._recent), missed):
            if _concerns(entry, watch):
                newest.setdefault(entry.id, entry.revision)
        changes = tuple(RecordChange(id, revision) for id, revision in reversed(newest.items()))
        return ChangeBatch(changes=changes, place=self._place) if changes else None

    def _where(self, watch: Watch) -> "tuple[_Index, Hashable, int]":
        if isinstance(watch, TaskWatch):
            return self._by_task, watch.id, watch.revision
        if isinstance(watch, OwnerWatch):
            return self._by_owner, watch.owner, _ANY
        return self._by_holder, watch.holder, _ANY

    def _all_waiters(self) -> "Iterator[_Waiter]":
        return (waiter for index in self._indexes() for waiters in index.values() for waiter in waiters)

    def _indexes(self) -> "tuple[_Index, ...]":
        return self._by_task, self._by_owner, self._by_holder


class _Waiter:
    """One wait: found in its index from entry to exit, however the wait ends. `first` is the first change it heard."""

    __slots__ = ("_future", "_index", "_key", "first", "known")

    def __init__(self, index: "_Index", key: Hashable, known: int) -> None:
        self._index = index
        self._key = key
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.known = known
        self.first: int | None = None

    def __enter__(self) -> "_Waiter":
        self._index.setdefault(self._key, set()).add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        waiters = self._index[self._key]
        waiters.discard(self)
        if not waiters:
            del self._index[self._key]

    def wake(self, place: int) -> None:
        """There was a change at that place: remembered from the first one on, and the end of the wait."""
        if self.first is None:
            self.first = place
        self.end()

    def end(self) -> None:
        """End the wait; only the first end counts."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout: timedelta) -> None:
        """Until the end, or the end of the time."""
        timer = self._future.get_loop().call_later(timeout.total_seconds(), self.end)
        try:
            await self._future
        finally:
            timer.cancel()


_Index = dict[Any, set[_Waiter]]


def _is_newer(revision: int, known: int) -> bool:
    return revision > known or revision == GONE


def _concerns(entry: _Entry, watch: Watch) -> bool:
    if isinstance(watch, TaskWatch):
        return entry.id == watch.id and _is_newer(entry.revision, watch.revision)
    if isinstance(watch, OwnerWatch):
        return entry.owner == watch.owner
    assert isinstance(watch, HolderWatch)
    return entry.holder == watch.holder
