"""Copies of tasks that have ended: how many of them are kept, by their bytes."""

import pytest

from helpers.records import after, new_record
from taskgate.domain.events import CallSucceeded
from taskgate.domain.record import TaskRecord
from taskgate.lifecycle import holdings
from taskgate.lifecycle.holdings import Holdings
from taskgate.stores.codec import as_head, with_bodies

RESULT = '{"content":[]}'
PARAMS = '{"name":"build_report","arguments":{}}'
WHOLE = len(RESULT) + len(PARAMS)


def ended(kept: Holdings) -> TaskRecord:
    """A task that ran and has ended: its end was written from its head, as running calls do."""
    record = new_record(params=PARAMS)
    kept.begin(record)
    end = after(record, CallSucceeded(result=RESULT, tool_error=False))
    kept.put(with_bodies(as_head(end), None, end.outcome), at=0.0)
    kept.end(record.id)
    return end


def found(kept: Holdings, record: TaskRecord) -> None:
    """A heartbeat finds the end in the store for long enough."""
    kept.found({record.id: record.revision}, asked=1.0)


@pytest.mark.parametrize(("most", "is_kept"), [(WHOLE, True), (WHOLE - 1, False)])
def test_the_call_of_an_end_counts_as_it_is_kept_with_it(
    monkeypatch: pytest.MonkeyPatch, most: int, is_kept: bool
) -> None:
    monkeypatch.setattr(holdings, "MAX_ENDED", most)
    kept = Holdings(patience=1.0)
    end = ended(kept)
    assert (kept.revision(end.id) == end.revision) is is_kept


def test_ends_that_were_dropped_leave_room_for_as_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MAX_ENDED", 2 * WHOLE)
    kept = Holdings(patience=1.0)
    for _ in range(3):
        first, second, third = ended(kept), ended(kept), ended(kept)
        assert [each.id for each in kept.records()] == [first.id, second.id]
        assert kept.revision(third.id) is None
        found(kept, first)
        found(kept, second)
        assert list(kept.records()) == []
