"""Questions on streams of processes that are not heard of: whose are lost, and when that is sure."""

from dataclasses import replace

import pytest

from helpers.records import new_input, new_record
from taskgate.domain.record import TaskRecord, TaskStatus
from taskgate.lifecycle.leases import OrphanedClaim, OrphanedClaims

PATIENCE = 10.0
HERE, THERE = frozenset({"here"}), frozenset({"here", "there"})


def asking(claim: str | None) -> TaskRecord:
    """A task that waits with one question."""
    return new_record(status=TaskStatus.INPUT_REQUIRED, inputs=(new_input("input-1", claimed_by=claim),))


@pytest.fixture
def orphaned_claims() -> OrphanedClaims:
    return OrphanedClaims(PATIENCE)


def test_one_look_alone_finds_nothing(orphaned_claims: OrphanedClaims) -> None:
    """Its process may have come after it was found out who lives."""
    assert orphaned_claims.look([asking("there/1")], HERE, 100.0) == []


def test_what_was_missed_for_long_enough_is_lost(orphaned_claims: OrphanedClaims) -> None:
    record = asking("there/1")
    orphaned_claims.look([record], HERE, 100.0)
    assert orphaned_claims.look([record], HERE, 109.9) == []
    assert orphaned_claims.look([record], HERE, 110.0) == [OrphanedClaim(record.id, "input-1", "there/1")]


def test_what_lives_or_nobody_has_is_never_lost(orphaned_claims: OrphanedClaims) -> None:
    records = [asking("there/1"), asking("here/1"), asking(None)]
    for asked in (100.0, 200.0, 300.0):
        assert orphaned_claims.look(records, THERE, asked) == []


def test_what_is_heard_of_meanwhile_is_missed_anew(orphaned_claims: OrphanedClaims) -> None:
    record = asking("there/1")
    orphaned_claims.look([record], HERE, 100.0)
    orphaned_claims.look([record], THERE, 105.0)
    orphaned_claims.look([record], HERE, 109.0)
    assert orphaned_claims.look([record], HERE, 118.9) == []
    assert orphaned_claims.look([record], HERE, 119.0)


def test_what_was_claimed_by_another_meanwhile_is_missed_anew(orphaned_claims: OrphanedClaims) -> None:
    record = asking("there/1")
    orphaned_claims.look([record], HERE, 100.0)
    other = replace(record, inputs=(new_input("input-1", claimed_by="elsewhere/1"),))
    assert orphaned_claims.look([other], HERE, 110.0) == []


def test_nobody_is_missed_for_a_time_in_which_the_store_was_away(orphaned_claims: OrphanedClaims) -> None:
    record = asking("there/1")
    orphaned_claims.look([record], HERE, 100.0)
    orphaned_claims.forget()
    assert orphaned_claims.look([record], HERE, 110.0) == []


def test_what_is_lost_and_claimed_still_is_given_again_after_as_long_a_time(orphaned_claims: OrphanedClaims) -> None:
    record = asking("there/1")
    orphaned_claims.look([record], HERE, 100.0)
    assert orphaned_claims.look([record], HERE, 110.0)
    assert orphaned_claims.look([record], HERE, 115.0) == []
    assert orphaned_claims.look([record], HERE, 120.0)
