"""The recent changes of records in one process, and the watches that wait for the next:
`ChangeFeed`.

A store adds each change to its feed; `TaskStore.changed` waits here. Changes of other processes are
in the feed only if the store is notified of them. An entry is a hint to load the record. Entries are
numbered; a *position* (`place`) is the number of the last entry that a watch has seen. Each waiter
has its own future, indexed by task, owner or holder; some wait for a change of any task. A change
wakes only its own waiters, and costs almost nothing without any. A feed belongs to one event loop,
so it has no locks.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from datetime import timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Final

from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.stores.base import ChangeBatch, HolderWatch, OwnerWatch, RecordChange, StoreWatch, TaskWatch, Watch

GONE: Final = -1
"""The revision of a removed record."""

REMEMBERED: Final = 8192
"""Changes that are stored for watches of owners and holders that pause for a moment."""

_ANY: Final = GONE - 1
"""Older than every revision: the known revision of a watch of more than one task."""


_Entry = tuple[TaskId, int, OwnerKey | None, str | None]
"""A change: the task, its revision, its owner, and the holder of its lease before."""


class ChangeFeed:
    """The recent changes in order, and the waiters for the next one."""

    def __init__(self, *, remembered: int = REMEMBERED) -> None:
        self._place = 0
        self._recent: deque[_Entry] = deque(maxlen=remembered)
        self.by_task: _Index = {}
        """The waiters for a change of one task, by its id."""
        self._by_owner: _Index = {}
        self._by_holder: _Index = {}
        self._of_all: _Index = {}
        """The waiters for a change of any task, under None."""
        self._closed = False

    @property
    def waiters(self) -> int:
        """The number of current waiters."""
        return sum(1 for _ in self._all_waiters())

    def add_committed(self, record: TaskRecord, *, held_by: str | None = None) -> None:
        """Add a committed record.

        `held_by` is the holder of its lease before, since the last change removes the lease.
        """
        if held_by is None and record.lease is not None:
            held_by = record.lease.holder
        self.add(record.id, record.revision, owner=record.owner, holder=held_by)

    def add_removed(self, id: TaskId, *, owner: OwnerKey | None, holder: str | None) -> None:
        """Add the removal of a record; `owner` is None if the record was unreadable."""
        self.add(id, GONE, owner=owner, holder=holder)

    def add(self, id: TaskId, revision: int, *, owner: OwnerKey | None, holder: str | None) -> None:
        """Add a reported change: a revision or GONE; `holder` is the holder of the lease before."""
        self._place += 1
        self._recent.append((id, revision, owner, holder))
        if (waiters := self.by_task.get(id)) is not None:
            self._wake(waiters, id, revision)
        if (waiters := self._by_owner.get(owner)) is not None:
            self._wake(waiters, id, revision)
        if (waiters := self._by_holder.get(holder)) is not None:
            self._wake(waiters, id, revision)
        if self._of_all:
            self._wake(self._of_all[None], id, revision)

    def reset(self) -> None:
        """Forget all positions and end all waits, because changes may have been missed."""
        self._place += 1
        self._recent.clear()
        for waiter in self._all_waiters():
            waiter.wake(self._place, None)

    async def changed(self, watch: Watch, *, timeout: timedelta, look: Callable[[TaskId], int]) -> ChangeBatch:
        """Wait as `TaskStore.changed` promises; `look` returns the current revision of a task, or
        GONE.

        A forgotten position returns at once with an empty, incomplete batch. Raises
        StoreUnavailable after `close`.
        """
        self._expect_open()
        index, key, known = self._index_of(watch)
        with _Waiter(index, key, known, watch.is_news if isinstance(watch, HolderWatch) else None) as waiter:
            batch = self._available(watch, look)
            if batch is None:
                await waiter.wait(timeout)
                batch = self._changes_of(watch, waiter)
        return batch or ChangeBatch(place=self._place)

    async def changed_remotely(
        self, watch: TaskWatch, *, timeout: timedelta, look: Callable[[TaskId], Awaitable[int]]
    ) -> ChangeBatch:
        """As `changed`, for a `look` that must be awaited while other processes change the record."""
        self._expect_open()
        index, key, known = self._index_of(watch)
        with _Waiter(index, key, known) as waiter:
            revision = await look(watch.id)
            if _is_newer(revision, known):
                return ChangeBatch(changes=(RecordChange(watch.id, revision),), place=self._place)
            # A change during the look has already ended the wait.
            await waiter.wait(timeout)
            batch = self._changes_of(watch, waiter)
        return batch or ChangeBatch(place=self._place)

    def close(self) -> None:
        """End every wait early without changes; no wait can begin any more."""
        self._closed = True
        for waiter in self._all_waiters():
            waiter.end()

    def _expect_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed")

    def _available(self, watch: Watch, look: Callable[[TaskId], int]) -> ChangeBatch | None:
        """Changes that need no wait; None if there are none."""
        if not isinstance(watch, TaskWatch):
            return None if watch.since is None else self._changes_since(watch, watch.since)
        revision = look(watch.id)
        if not _is_newer(revision, watch.revision):
            return None
        return ChangeBatch(changes=(RecordChange(watch.id, revision),), place=self._place)

    def _changes_of(self, watch: Watch, waiter: "_Waiter") -> ChangeBatch | None:
        """The changes for a waiter, from the one that woke it until now; None if none did."""
        if waiter.first is None:
            return None
        if waiter.revision is not None and isinstance(watch, TaskWatch):
            return ChangeBatch(changes=(RecordChange(watch.id, waiter.revision),), place=self._place)
        return self._changes_since(watch, waiter.first - 1)

    def _changes_since(self, watch: Watch, since: int) -> ChangeBatch | None:
        """The changes after a position, only the newest of each task; None if there were none."""
        count = self._place - since
        if not 0 <= count <= len(self._recent):
            return ChangeBatch(place=self._place, complete=False)
        newest: dict[TaskId, int] = {}
        for entry in islice(reversed(self._recent), count):
            if _matches(entry, watch):
                newest.setdefault(entry[0], entry[1])
        changes = tuple(RecordChange(id, revision) for id, revision in reversed(newest.items()))
        return ChangeBatch(changes=changes, place=self._place) if changes else None

    def _wake(self, waiters: "set[_Waiter]", id: TaskId, revision: int) -> None:
        for waiter in waiters:
            is_newer = revision > waiter.known or revision == GONE
            if is_newer and (waiter.is_news is None or waiter.is_news(id, revision)):
                waiter.wake(self._place, revision)

    def _index_of(self, watch: Watch) -> "tuple[_Index, Hashable, int]":
        if isinstance(watch, TaskWatch):
            return self.by_task, watch.id, watch.revision
        if isinstance(watch, OwnerWatch):
            return self._by_owner, watch.owner, _ANY
        if isinstance(watch, StoreWatch):
            return self._of_all, None, _ANY
        return self._by_holder, watch.holder, _ANY

    def _all_waiters(self) -> "Iterator[_Waiter]":
        return (waiter for index in self._indexes() for waiters in index.values() for waiter in waiters)

    def _indexes(self) -> "tuple[_Index, ...]":
        return self.by_task, self._by_owner, self._by_holder, self._of_all


class _Waiter:
    """One wait, in its index from entry to exit.

    `first` is the position of the first change that woke it, `revision` that of the last one; None if
    changes were missed. `is_news` is that of its watch.
    """

    __slots__ = ("_future", "_index", "_key", "first", "is_news", "known", "revision")

    def __init__(
        self, index: "_Index", key: Hashable, known: int, is_news: Callable[[TaskId, int], bool] | None = None
    ) -> None:
        self._index = index
        self._key = key
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.known = known
        self.is_news = is_news
        self.first: int | None = None
        self.revision: int | None = None

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

    def wake(self, place: int, revision: int | None) -> None:
        """Record the position of the first change and the revision of the last, and end the wait.

        Without a revision changes were missed.
        """
        if self.first is None:
            self.first, self.revision = place, revision
        elif self.revision is not None:
            self.revision = revision
        self.end()

    def end(self) -> None:
        """End the wait; only the first end counts."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout: timedelta) -> None:
        """Wait for the end, at most `timeout`."""
        timer = self._future.get_loop().call_later(timeout.total_seconds(), self.end)
        try:
            await self._future
        finally:
            timer.cancel()


_Index = dict[Any, set[_Waiter]]


def _is_newer(revision: int, known: int) -> bool:
    return revision > known or revision == GONE


def _matches(entry: _Entry, watch: Watch) -> bool:
    id, revision, owner, holder = entry
    if isinstance(watch, TaskWatch):
        return id == watch.id and _is_newer(revision, watch.revision)
    if isinstance(watch, OwnerWatch):
        return owner == watch.owner
    if isinstance(watch, StoreWatch):
        return True
    return holder == watch.holder and (watch.is_news is None or watch.is_news(id, revision))
