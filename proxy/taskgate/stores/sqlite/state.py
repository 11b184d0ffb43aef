"""The state of a SQLite store in memory: `StoreState`, what is known without a look into the file.

These are cached rows, the counts for caps, the number of records in each status, and the watches. So
are the idempotency keys of records on their way into the file. Only this process writes the file, so
they stay true. They change when a write commits; only counts for caps and keys of a new record are
noted when its write begins. It belongs to one event loop.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.stores.capacity import CapKeys, StoreUsage
from taskgate.stores.change_feed import ChangeFeed

SEEN: Final = 4096
"""The limit of cached heads: of tasks that run here, and of unchanged tasks that hosts poll."""


class PendingKeys:
    """The idempotency keys of records that are on their way into the file.

    A second call with the same key waits until it is known whether the first was stored. The keys
    are digests (`statements.repeat_digest`).
    """

    def __init__(self) -> None:
        self._pending: dict[bytes, asyncio.Future[None]] = {}

    def begin(self, name: bytes) -> None:
        """Note that a record with that key is being written."""
        self._pending[name] = asyncio.get_running_loop().create_future()

    def end(self, name: bytes) -> None:
        """Note that the write has ended, with success or not; the waiters continue."""
        self._pending.pop(name).set_result(None)

    async def wait(self, name: bytes) -> None:
        """Wait until no record with that key is being written.

        Nothing else runs between that moment and the return.
        """
        while (pending := self._pending.get(name)) is not None:
            # Others wait for it too.
            await asyncio.shield(pending)


class KnownRow:
    """A row that is known without a look into the file: a head, the number of its row, its keys, and
    its creation and expiry.

    `seq` is 0 if only the head is known.
    """

    __slots__ = ("created", "expires", "head", "keys", "seq")

    def __init__(
        self, head: TaskRecord, seq: int = 0, keys: CapKeys | None = None, created: int = 0, expires: int = 0
    ) -> None:
        self.head = head
        self.seq = seq
        self.keys = keys
        self.created = created
        self.expires = expires


class StoreState:
    """The cached rows, by id, each valid until its record changes, and the rest (see above)."""

    def __init__(self, usage: StoreUsage, statuses: Counter[str], number_of: Callable[[TaskId], int]) -> None:
        """`number_of` returns the number of the reference of an id."""
        self.number_of = number_of
        self.rows: dict[TaskId, KnownRow] = {}
        self.usage = usage
        self.statuses = statuses
        self.changes = ChangeFeed()
        self.pending_keys = PendingKeys()

    def cache(self, id: TaskId, row: KnownRow) -> None:
        """Cache a row; the one that was cached first makes room for it."""
        rows = self.rows
        if len(rows) >= SEEN and id not in rows:
            del rows[next(iter(rows))]
        rows[id] = row

    def forget(self, ids: Iterable[TaskId]) -> None:
        """Forget the rows of records that were changed or removed."""
        for id in ids:
            self.rows.pop(id, None)
