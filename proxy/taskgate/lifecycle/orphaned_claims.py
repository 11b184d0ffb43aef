"""The claims of questions by processes that are gone: `OrphanedClaims`.

A question of a task may have been sent on a stream of another replica, whose claim is in the record
(`offers`). If that replica is gone, its claim would block the question forever. The process that
runs the task looks for such claims, because it has a copy of the record. `Leasing` calls `look` at
each heartbeat, and removes the claims that it returns. A process must be missing for a while before
that: a short gap must not ask a host twice (H-LEG-8).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.lifecycle.offers import carrier


class OrphanedClaim(NamedTuple):
    """A question of a task by its key, and the claim of a stream that is gone."""

    task: TaskId
    key: str
    claim: str


class OrphanedClaims:
    """The claims of missing processes. A claim is orphaned if its process stays missing for
    `patience` seconds. `_since` is when a claim's process was first missing.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[OrphanedClaim, float] = {}

    def look(self, records: Iterable[TaskRecord], alive: Collection[str], asked: float) -> list[OrphanedClaim]:
        """Return the claims in `records` that are orphaned by now.

        `alive` are the processes that lived at the time `asked`. A process that is missing for the
        first time may have started after `alive` was read, so one look is never enough. A claim is
        returned again after the same time if it still exists, because its removal may fail.
        """
        missing = [claim for record in records for claim in _claimed(record) if carrier(claim.claim) not in alive]
        self._since = {claim: self._since.get(claim, asked) for claim in missing}
        orphaned = [claim for claim, since in self._since.items() if asked - since >= self._patience]
        self._since.update(dict.fromkeys(orphaned, asked))
        return orphaned

    def forget(self) -> None:
        """Start again, because the store failed or lost data: a missing process proves nothing."""
        self._since.clear()


def _claimed(record: TaskRecord) -> Iterator[OrphanedClaim]:
    for request in record.inputs:
        if request.claimed_by is not None:
            yield OrphanedClaim(record.id, request.key, request.claimed_by)
