"""Copies of tasks that have ended: how many of them are kept, by their bytes."""

from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.records import after, new_record
from helpers.shared_memory import LeasesInMemory
from taskgate.domain.events import CallSucceeded
from taskgate.domain.record import TaskRecord
from taskgate.lifecycle.recovery import MAX_ENDED, RecordCopies
from taskgate.stores.codec import as_head, with_bodies
from taskgate.stores.memory import MemoryStore

PARAMS = '{"name":"build_report","arguments":{}}'


def copies() -> RecordCopies:
    clock = ManualClock()
    leases = LeasesInMemory(MemoryStore(), clock)
    return RecordCopies(leases, holder="here", length=timedelta(seconds=15), patience=1.0, clock=clock)


def ended(kept: RecordCopies, size: int) -> TaskRecord:
    """A task of so many bytes that ran and has ended: its end was written from its head, as running calls do."""
    record = new_record(params=PARAMS)
    kept.begin(record)
    end = after(record, CallSucceeded(result=(size - len(PARAMS)) * "x", tool_error=False))
    kept.put(with_bodies(as_head(end), None, end.outcome))
    kept.end(record.id)
    return end


def found(kept: RecordCopies, record: TaskRecord) -> None:
    """A heartbeat finds the end in the store for long enough."""
    kept.found({record.id: record.revision}, asked=1.0)


@pytest.mark.parametrize(("size", "is_kept"), [(MAX_ENDED, True), (MAX_ENDED + 1, False)])
def test_the_call_of_an_end_counts_as_it_is_kept_with_it(size: int, is_kept: bool) -> None:
    kept = copies()
    end = ended(kept, size)
    assert (kept.revision(end.id) == end.revision) is is_kept


def test_ends_that_were_dropped_leave_room_for_as_many_others() -> None:
    kept = copies()
    for _ in range(3):
        first, second, third = (ended(kept, MAX_ENDED // 2) for _ in range(3))
        assert [each.id for each in kept.records()] == [first.id, second.id]
        assert kept.revision(third.id) is None
        found(kept, first)
        found(kept, second)
        assert list(kept.records()) == []
