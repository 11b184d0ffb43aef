"""Heads out of rows: unpacked once for as long as they do not change, and apart where they cannot be read.

What must not live here: where rows come from.
"""

import logging
from typing import Final

from taskgate.domain.record import Lease, TaskId, TaskRecord, altered
from taskgate.errors import StoreUnavailable
from taskgate.stores.codec import unpack_head, unpack_text, with_bodies

SEEN: Final = 4096
"""How many are kept: of tasks that run here, and for who polls a task that does not change."""

log = logging.getLogger("taskgate.stores")


class Heads:
    """Heads as they were seen last. They are never taken for the truth: what was read is compared with them."""

    def __init__(self) -> None:
        self._seen: dict[TaskId, tuple[bytes, TaskRecord]] = {}

    def unpack(self, id: TaskId, head: bytes, lease: Lease | None) -> TaskRecord:
        """The record whose head was read. Raises StoreUnavailable where it cannot be."""
        seen = self._seen.get(id)
        if seen is None or seen[0] != head:
            return self.see(id, head, unpack_head(head, lease))
        record = seen[1]
        return record if record.lease == lease else self.see(id, head, altered(record, lease=lease))

    def see(self, id: TaskId, head: bytes, record: TaskRecord) -> TaskRecord:
        """Remember a record as a head."""
        if id not in self._seen and len(self._seen) >= SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[id] = (head, record)
        return record

    def forget(self, id: TaskId) -> None:
        """It will hardly be asked for again."""
        self._seen.pop(id, None)

    def clear(self) -> None:
        """Forget all."""
        self._seen.clear()


def read(head: bytes | None, lease: Lease | None, params: bytes | None = None) -> TaskRecord | None:
    """A record that is one of many; None where it cannot be read, which must not hide the others."""
    try:
        record = None if head is None else unpack_head(head, lease)
        return record if record is None or params is None else with_bodies(record, unpack_text(params), None)
    except StoreUnavailable:
        return None


def readable(records: list[TaskRecord | None], done: str) -> list[TaskRecord]:
    """Those that could be read; the operator is told of the others, with what was done to them."""
    found = [record for record in records if record is not None]
    if len(found) < len(records):
        log.warning("%d stored tasks that cannot be read were %s", len(records) - len(found), done)
    return found
