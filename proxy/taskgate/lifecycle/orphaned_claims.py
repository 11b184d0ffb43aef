"""The claims of questions by processes that are gone: `OrphanedClaims`.

A question of a task may have been sent on a stream of another replica (`offers`). If that replica
stops, its claim would block the question. Only the process that runs the task decides this, because
it has the record. `Leasing` passes the live processes at each heartbeat, and releases what is
found. A process must be missing for a while: a short gap must not ask a host twice (H-LEG-8).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.lifecycle.offers import carrier


class OrphanedClaim(NamedTuple):
    """A question, and the claim of its stream."""

    task: TaskId
    key: str
    claim: str


class OrphanedClaims:
    """The claims of missing processes. A claim is orphaned `patience` seconds after it was first
    missed.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[OrphanedClaim, float] = {}

    def look(self, records: Iterable[TaskRecord], alive: Collection[str], asked: float) -> list[OrphanedClaim]:
        """Return the claims that are orphaned by now; `alive` are processes that lived at the time
        `asked`.

        A claim is returned again after the same time if it still exists. A process that is missing
        for the first time may have started after `alive` was read, so one look is never enough.
        """
        missed = [stray for record in records for stray in _claimed(record) if carrier(stray.claim) not in alive]
        self._since = {stray: self._since.get(stray, asked) for stray in missed}
        lost = [stray for stray, since in self._since.items() if asked - since >= self._patience]
        self._since.update(dict.fromkeys(lost, asked))
        return lost

    def forget(self) -> None:
        """Start again, because the store was unavailable: a missing process proves nothing for now."""
        self._since.clear()


def _claimed(record: TaskRecord) -> Iterator[OrphanedClaim]:
    for request in record.inputs:
        if request.claimed_by is not None:
            yield OrphanedClaim(record.id, request.key, request.claimed_by)
