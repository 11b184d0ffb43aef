"""Copies of tasks that have ended: how many of them are kept, by their bytes."""

from datetime import timedelta

import pytest

from helpers.manual_clock import ManualClock
from helpers.records import after, new_record
from helpers.shared_memory import LeasesInMemory
from taskgate.domain.events import CallSucceeded
from taskgate.domain.record import TaskRecord
from taskgate.lifecycle import recovery
from taskgate.lifecycle.recovery import RecordCopies
from taskgate.stores.codec import as_head, with_bodies
from taskgate.stores.memory import MemoryStore

RESULT = '{"content":[]}'
PARAMS = '{"name":"build_report","arguments":{}}'
WHOLE = len(RESULT) + len(PARAMS)


def copies() -> RecordCopies:
    clock = ManualClock()
    leases = LeasesInMemory(MemoryStore(), clock)
    return RecordCopies(leases, holder="here", length=timedelta(seconds=15), patience=1.0, clock=clock)


def ended(kept: RecordCopies) -> TaskRecord:
    """A task that ran and has ended: its end was written from its head, as running calls do."""
    record = new_record(params=PARAMS)
    kept.begin(record)
    end = after(record, CallSucceeded(result=RESULT, tool_error=False))
    kept.put(with_bodies(as_head(end), None, end.outcome))
    kept.end(record.id)
    return end


def found(kept: RecordCopies, record: TaskRecord) -> None:
    """A heartbeat finds the end in the store for long enough."""
    kept.found({record.id: record.revision}, asked=1.0)


@pytest.mark.parametrize(("most", "is_kept"), [(WHOLE, True), (WHOLE - 1, False)])
def test_the_call_of_an_end_counts_as_it_is_kept_with_it(
    monkeypatch: pytest.MonkeyPatch, most: int, is_kept: bool
) -> None:
    monkeypatch.setattr(recovery, "MAX_ENDED", most)
    kept = copies()
    end = ended(kept)
    assert (kept.revision(end.id) == end.revision) is is_kept


def test_ends_that_were_dropped_leave_room_for_as_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "MAX_ENDED", 2 * WHOLE)
    kept = copies()
    for _ in range(3):
        first, second, third = ended(kept), ended(kept), ended(kept)
        assert [each.id for each in kept.records()] == [first.id, second.id]
        assert kept.revision(third.id) is None
        found(kept, first)
        found(kept, second)
        assert list(kept.records()) == []
