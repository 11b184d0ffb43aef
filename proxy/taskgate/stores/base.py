"""The seams between the engine and its stores, and what every store promises.

`now` always comes from the caller: no store reads a clock. No store knows a rule of the task machine. Whatever goes
wrong below a store leaves it as StoreUnavailable. `tests/contract/` holds every implementation to this page.

A record that cannot be read (damaged, or of another version) is StoreUnavailable to who asks for that one. Where many
are looked at it is left out, and never keeps the others from being found, taken over or removed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple, Protocol

from taskgate.domain.caps import Cap
from taskgate.domain.gcra import RateVerdict
from taskgate.domain.listing import Page, Position, TaskFilter, TaskOrder
from taskgate.domain.rates import Demand
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus
from taskgate.domain.versions import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWatch:
    """News of one task, once it is newer than `revision`."""

    id: TaskId
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerWatch:
    """News of all tasks of an owner, from a place in the store's sequence of changes; None starts now."""

    owner: OwnerKey
    since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderWatch:
    """News of all tasks whose call a process holds, as with an owner."""

    holder: str
    since: int | None = None


Watch = TaskWatch | OwnerWatch | HolderWatch


class RecordChange(NamedTuple):
    """A hint that a record is at `revision` now, or gone (-1)."""

    id: TaskId
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBatch:
    """Changes since a watch's place, and the place to watch from next. Nothing in it is truth: load the record.

    `complete` is False when the watch's place is not remembered, because the watcher came back too late or the place is
    of another process: then anything that is watched may have changed, and `changes` does not tell what.
    """

    changes: tuple[RecordChange, ...] = ()
    place: int
    complete: bool = True


class TaskStore(Protocol):
    """Task records, and the news of their changes."""

    async def insert(self, record: TaskRecord, *, caps: tuple[Cap, ...]) -> TaskId:
        """Keep a new record, durably, if every cap has room: all in one step, or TooManyTasks and nothing.

        The id is that of the record that stands for the call from now on: its own, or that of an unexpired one of the
        same owner with the same `repeat_key`, which is durable, too; then nothing is stored and no cap is asked. Of the
        caps that have no room the first one refuses; one of bytes does so with TooManyBytes. A record without a tenant
        takes no part in caps of tenants.
        """
        ...

    async def repeated(self, owner: OwnerKey, key: str, *, now: datetime) -> TaskId | None:
        """The unexpired, durable record of the owner with that `repeat_key`."""
        ...

    async def load(self, owner: OwnerKey, id: TaskId, *, now: datetime, bodies: bool = False) -> TaskRecord | None:
        """The record, as a head unless `bodies`. Unknown, expired and foreign are the same None."""
        ...

    async def owner_of(self, id: TaskId) -> OwnerKey | None:
        """Whose a record is, expired or not, as long as it is kept; None where there is none.

        For operators alone: no answer to a host may depend on it, nor wait for it.
        """
        ...

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        """Replace the head whose revision is `expected`, durably, and keep the outcome if the record has one.

        A record that has no `repeat_key` any more stands for that no longer, from this same step on.
        Exactly one of several racers wins; the others, and a swap of a record that is gone, get False. What is swapped
        of a record that had ended before is no news: nobody waits for it.
        """
        ...

    async def page(
        self,
        owner: OwnerKey,
        *,
        where: TaskFilter,
        order: TaskOrder,
        after: Position | None,
        limit: int,
        now: datetime,
    ) -> Page:
        """A page of the owner's unexpired records. A position stays stable under inserts and updates.

        Served by an index in either order, however many records do not meet `where` by state, id or the time that is
        ordered by; those that fail the bounds of the other time are passed over one by one.
        """
        ...

    async def changed(self, watch: Watch, *, timeout: timedelta) -> ChangeBatch:
        """Wait for news, at most `timeout`; at once if there is some already. May return early and empty.

        No change is lost that comes between the caller's look and this wait, or while the wait ends: it is told now or
        to who goes on from the place given. Where that cannot be had, the news says that it is not complete.
        """
        ...

    async def renew(self, holder: str, ids: frozenset[TaskId], until: datetime) -> None:
        """Extend the holder's own leases; touches no revision. Records held by others or gone are passed over."""
        ...

    async def lapsed(self, *, holder: str, until: datetime, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        """Take over unfinished, unexpired records whose lease has lapsed, oldest first.

        They are heads, but one that may go on has its parameters: it was never dispatched, may run again, or rests
        between two rounds. Each is given to one taker only: the lease is the taker's, until `until`, when this returns.
        Records that cannot be read are taken, too, so that they are not met again, and left out; they do not count:
        fewer than `limit` are returned only when no more are left. In a store that one process holds, every lease of an
        earlier process has lapsed when the store opens.
        """
        ...

    async def purge(self, *, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        """Remove expired records, at most `limit`, and return their heads.

        Records that cannot be read are removed, too, and count, but are left out of what is returned: an empty answer
        does not mean that nothing is left.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session of a host of the legacy era: what outlives the process that opened it."""

    id: str
    owner: OwnerKey
    peer: Peer
    expires_at: datetime


class SessionStore(Protocol):
    """Host sessions."""

    async def put(self, record: SessionRecord) -> None:
        """Keep a new session, durably."""
        ...

    async def find(self, owner: OwnerKey, id: str, *, now: datetime) -> SessionRecord | None:
        """The session; unknown, expired and foreign are the same None."""
        ...

    async def touch(self, ids: frozenset[str], *, until: datetime) -> None:
        """Move the expiry of sessions; those that are gone are passed over. Need not be durable."""
        ...

    async def drop(self, owner: OwnerKey, id: str) -> bool:
        """Forget a session, durably; whether there was one."""
        ...

    async def purge_sessions(self, *, now: datetime) -> int:
        """Forget expired sessions; how many."""
        ...


class RateStepMode(IntEnum):
    """What is done with the budgets of a step."""

    LOOK = 1
    """Nothing is charged; but where one that enforces has no room, nothing behind is, either."""
    TAKE = 2
    """All that enforce are charged, or none and nothing behind; a shadow is charged where it has room."""
    NOTE = 3
    """For what has happened already: each is charged that has room, whatever the others have. Nothing is refused."""


class RateStep(NamedTuple):
    """Some budgets, each once, and what is done with them."""

    way: RateStepMode
    demands: Sequence[Demand]


class RateJudgement(NamedTuple):
    """What a rate store said: verdicts for each demand of each step, up to the step that refused, if any did.

    `remaining` is what remains after it: of a step that refused, what there was. `told_as` is what a policy that had
    room counts as: see RateJudged.
    """

    verdicts: Sequence[tuple[RateVerdict, ...]]
    refused: int | None = None
    counted_as: str = "allowed"


class RateStore(Protocol):
    """What is left of the budgets of rates. `now` is in seconds that never go back, or the store's own time counts."""

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        """Do the steps one after the other, as one: nobody else takes in between. At most one round trip."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCensus:
    """What a store holds."""

    tasks: dict[TaskStatus, int] = field(default_factory=dict)
    size: int | None = None


class Store(TaskStore, SessionStore, Protocol):
    """A whole backend: both kinds of records behind one connection."""

    async def census(self) -> StoreCensus:
        """Count what is kept; `size` in bytes where the backend knows it. Raises StoreUnavailable when it is not."""
        ...

    async def check(self) -> None:
        """Write something, durably, and remove it: to find out that a fault is over. Raises StoreUnavailable."""
        ...

    async def verify(self) -> None:
        """See whether a restart would find what is written. Cheap: asked each second. Raises StoreUnavailable."""
        ...

    async def close(self) -> None:
        """Finish what was acknowledged and let go of everything; a second close does nothing."""
        ...
