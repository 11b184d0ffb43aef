"""Questions of tasks that run here, on their way to hosts on streams of processes that are not heard of any more.

Only who runs a task judges that: there it is known which of its questions are claimed. What must not live here: who is
alive (`leasing`), and giving a question back (`inputs`). What holds: a process that was not heard of for a moment keeps
what its streams carry, so that no host is asked twice (H-LEG-8).
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from taskgate.domain.record import TaskId, TaskRecord
from taskgate.lifecycle.offers import carrier


class OrphanedClaim(NamedTuple):
    """A question, and the stream that it was claimed for."""

    task: TaskId
    key: str
    claim: str


class OrphanedClaims:
    """Since when strays are known. A question is given up for lost `patience` seconds after its process was missed."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[OrphanedClaim, float] = {}

    def look(self, records: Iterable[TaskRecord], alive: Collection[str], asked: float) -> list[OrphanedClaim]:
        """What is lost by now, of what was claimed, as far as is known; `alive` are those that lived after `asked`.

        It is given again after as long a time, should it be claimed still. Who is missed for the first time may have
        come, and claimed, after `alive` was found out: so one look alone finds nothing.
        """
        missed = [stray for record in records for stray in _claimed(record) if carrier(stray.claim) not in alive]
        self._since = {stray: self._since.get(stray, asked) for stray in missed}
        lost = [stray for stray, since in self._since.items() if asked - since >= self._patience]
        self._since.update(dict.fromkeys(lost, asked))
        return lost

    def forget(self) -> None:
        """Nobody can be missed for now: the store was away."""
        self._since.clear()


def _claimed(record: TaskRecord) -> Iterator[OrphanedClaim]:
    for request in record.inputs:
        if request.claimed_by is not None:
            yield OrphanedClaim(record.id, request.key, request.claimed_by)
