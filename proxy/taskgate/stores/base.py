"""The protocols of a store and what every store promises: `TaskStore`, `SessionStore`, `RateStore`,
and `Store`.

A task record has a *head* and *bodies*. The bodies are the parameters of the call and the outcome,
which may be large. The head is all the rest; without bodies, their fields are None. The *owner* is
the auth context and the mount. The *holder* is the name of the process that has the lease.

`now` always comes from the caller: no store reads a clock. No store knows a rule of the task state
machine. Every failure inside a store is raised as StoreUnavailable. `tests/contract/` checks every
implementation against this module.

A record can be unreadable: damaged, or written by another version. A request for that record raises
StoreUnavailable. An operation over many records omits it, and still finds, takes over or removes
the others.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from math import inf
from typing import Final, NamedTuple, Protocol

from taskgate.domain.limits import Cap
from taskgate.domain.listing import Page, Position, TaskFilter, TaskOrder
from taskgate.domain.rates import Demand, RateVerdict
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus, Transition
from taskgate.domain.versions import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWatch:
    """A watch of one task, for a revision newer than `revision`."""

    id: TaskId
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerWatch:
    """A watch of all tasks of an owner, from the position `since` in the store's sequence of changes;
    None starts now.
    """

    owner: OwnerKey
    since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderWatch:
    """A watch of all tasks whose lease `holder` has; `since` as in OwnerWatch.

    `is_news`, if given, tells by task and revision which changes count. For the others the watch
    does not return: a holder makes most changes of its tasks itself.
    """

    holder: str
    since: int | None = None
    is_news: Callable[[TaskId, int], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWatch:
    """A watch of all tasks of the store; `since` as in OwnerWatch. Only for operators."""

    since: int | None = None


Watch = TaskWatch | OwnerWatch | HolderWatch | StoreWatch


class RecordChange(NamedTuple):
    """A hint that a record is now at `revision`, or was removed (-1)."""

    id: TaskId
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBatch:
    """Changes since the position of a watch, and the position to watch from next (`place`).

    The changes are hints: load the record to know its state. `complete` is False when the store no
    longer remembers the position, because the watcher came back too late or the position belongs to
    another process. Then any watched record may have changed, and `changes` does not list them.
    """

    changes: tuple[RecordChange, ...] = ()
    place: int
    complete: bool = True


MOST_SCANNED: Final = 10_000
"""Records that a store looks at for one page of a list."""


class Scan(NamedTuple):
    """Heads of records of all owners, and where the next part starts; `next` is None only after the last one.

    `in_order` is False if the store has more records than it sorts.
    """

    heads: tuple[TaskRecord, ...]
    next: str | None
    in_order: bool = True


class TaskStore(Protocol):
    """Task records, and notifications of their changes."""

    async def insert(self, record: TaskRecord, *, caps: tuple[Cap, ...], subject: str | None = None) -> TaskId:
        """Store a new record durably if every cap has room, in one atomic step. Otherwise store
        nothing. The record counts for the person `subject` (`AuthContext.subject`), if it is known.

        Returns the id of the record that stands for the call. If an unexpired, durable record of
        the same owner has the same `idempotency_digest`, that is its id. Then nothing is stored and no cap
        is checked. The first cap without room raises TooManyTasks, or TooManyBytes if it limits
        bytes. Caps of subjects and tenants ignore a record without one.
        """
        ...

    async def repeated(self, owner: OwnerKey, key: str, *, now: datetime) -> TaskId | None:
        """The id of the owner's unexpired, durable record with the `idempotency_digest` `key`.

        None if there is none.
        """
        ...

    async def load(self, owner: OwnerKey, id: TaskId, *, now: datetime, bodies: bool = False) -> TaskRecord | None:
        """The record; without `bodies` only its head.

        None if it is unknown, expired or owned by another owner.
        """
        ...

    def recall(self, owner: OwnerKey, id: TaskId, *, now: datetime) -> TaskRecord | None:
        """The head of a record, as `load` returns it, if no wait is needed for it; None if `load` has to tell."""
        ...

    async def owner_of(self, id: TaskId) -> OwnerKey | None:
        """The owner of a stored record, expired or not; None if there is no record.

        Only for operators: no answer to a host may depend on it or wait for it.
        """
        ...

    async def referred(self, reference: str) -> TaskId | None:
        """The id of a stored record, expired or not, by its public reference; None if there is none.

        Only for operators, as are `transitions` and `scan`.
        """
        ...

    async def transitions(self, id: TaskId) -> tuple[Transition, ...]:
        """The statuses that a stored record had, oldest first; empty if there is no record.

        The first one is that of the creation, the last one that of the record. Of more than
        MAX_TRANSITIONS the first and the newest are kept. Some may be missing of a record that an earlier
        version stored, or that was put back after a loss of data.
        """
        ...

    async def scan(
        self,
        *,
        unfinished: bool,
        wants: Callable[[TaskRecord], bool],
        after: str | None,
        limit: int,
        now: datetime,
        texts: Collection[bytes] = (),
    ) -> Scan:
        """Find unexpired records of all owners, the newest first.

        With `unfinished` only those that have not ended are found, by an index and in its order. A store may
        sort the newest MOST_SCANNED records apart from older ones, and tells so.

        Records that `wants` rejects are skipped one by one. It is a pure function, and may run on another
        thread. It rejects each record without one of `texts`, which are of `codec.text_in_head`, or ends of
        these: such a record need not be decoded. A part looks at MOST_SCANNED records at most, so it may be
        short or empty, and still have a next one. That starts at `after`, the `next` of the part before. A
        text that cannot be one finds nothing. A `next` may have the id of a task in it, so it is not for
        logs. A record that is there all the time is found once, or twice if it ends meanwhile.
        """
        ...

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        """Replace the head at revision `expected` durably, and store the outcome if the record has
        one.

        If the record has no `idempotency_digest` any more, the same step releases the key. Exactly one of
        several concurrent swaps wins. The others, and a swap of a removed record, return False. A
        swap of a record that had already ended notifies no watch: no caller waits for it.
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
        """A page of the owner's unexpired records. A position stays stable under inserts and
        updates.

        An index serves either order: records that fail `where` by id or the ordering time cost
        nothing. Records that fail it by the other time, by state or as fetched may be skipped one by one,
        at most MOST_SCANNED for a page. Then the page may be short or empty, and still have a next one.
        """
        ...

    async def changed(self, watch: Watch, *, timeout: timedelta) -> ChangeBatch:
        """Wait for changes, at most `timeout`; return at once if there are some. May return early
        and empty.

        No change is lost between the caller's last load and this wait, or while the wait ends. It
        is in this batch or in that of the next watch from `place`. If the store cannot promise
        that, `complete` is False.
        """
        ...

    async def renew(self, holder: str, ids: frozenset[TaskId], until: datetime) -> None:
        """Extend the holder's own leases; changes no revision.

        Skips removed records and those of other holders.
        """
        ...

    async def lapsed(
        self, *, holder: str, until: datetime, now: datetime, limit: int, heard: datetime | None = None
    ) -> tuple[TaskRecord, ...]:
        """Take over unfinished, unexpired records whose lease has lapsed, oldest first.

        Each gets the lease of `holder` until `until`, and goes to one caller only. No revision
        changes. Returns heads. A record that may go on also has its parameters: it was never
        dispatched, may run again, or has a checkpoint.

        Unreadable records are taken over too, so that no later call meets them, but not returned.
        They are not counted: fewer than `limit` means that no more are left. A record without a
        lease counts as lapsed. In a store of one process, every lease of an earlier process has
        lapsed when the store opens.

        `heard` is the time until which `holder` counts as alive by its last heartbeat. A store of
        several processes takes nothing over if it knows another one. It may have an older state
        again, of which no heartbeat has told yet.
        """
        ...

    async def purge(self, *, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        """Remove expired records, at most `limit`, and return their heads.

        Unreadable records are removed and counted but not returned: an empty result does not mean
        that nothing is left.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A host session of the legacy era: the part that outlives the process that opened it."""

    id: str
    owner: OwnerKey
    peer: Peer
    expires_at: datetime


class SessionStore(Protocol):
    """Host sessions of the legacy era."""

    async def put(self, record: SessionRecord) -> None:
        """Store a new session durably."""
        ...

    async def find(self, owner: OwnerKey, id: str, *, now: datetime) -> SessionRecord | None:
        """The session; None if it is unknown, expired or owned by another owner."""
        ...

    async def touch(self, ids: frozenset[str], *, until: datetime) -> None:
        """Move the expiry of sessions; skips removed ones. Need not be durable."""
        ...

    async def drop(self, owner: OwnerKey, id: str) -> bool:
        """Remove a session durably; whether there was one."""
        ...

    async def purge_sessions(self, *, now: datetime) -> int:
        """Remove expired sessions; returns their number."""
        ...


class RateStepMode(IntEnum):
    """The mode of a step: what it does with its budgets."""

    LOOK = 1
    """Charges nothing. If an enforcing budget has no room, the later steps are not done."""
    TAKE = 2
    """Charges all enforcing budgets, or none; then the later steps are not done.

    A shadow is charged if it has room.
    """
    NOTE = 3
    """For an event in the past: charges each budget that has room, independently of the others.

    Refuses nothing.
    """


class RateStep(NamedTuple):
    """Some budgets, each at most once, and what to do with them."""

    way: RateStepMode
    demands: Sequence[Demand]


class RateBudget:
    """The budget `key` in memory. It owes something until `tat`; while no store has it, that is infinite."""

    __slots__ = ("key", "tat")

    def __init__(self, key: str, tat: float = inf) -> None:
        self.key = key
        self.tat = tat


class RateCheck:
    """The budgets of one kind of request, prepared once for all requests of that kind.

    Each budget is in it once. `most` is how many seconds may be owed while there is room; -inf for
    a demand that never has room. `charge` is how many seconds are charged.

    - `looked`: the key and `most` of budgets that are only looked at
    - `taken`: those that are charged, each with its `most` and `charge`. A store puts its own budget
      in the place of one that it does not have.
    """

    __slots__ = ("looked", "taken")

    def __init__(self, steps: Sequence[RateStep]) -> None:
        # The steps themselves are not kept: many checks are remembered, and these are nothing but texts and numbers.
        self.looked = tuple(
            [(each.key, _most(each)) for way, demands in steps if way is RateStepMode.LOOK for each in demands]
        )
        self.taken = tuple(
            [
                (RateBudget(each.key), _most(each), each.cost * each.limit.every)
                for way, demands in steps
                if way is RateStepMode.TAKE
                for each in demands
            ]
        )


def _most(demand: Demand) -> float:
    _, limit, cost, _ = demand
    return (limit.burst - cost) * limit.every if cost <= limit.burst else -inf


class RateJudgement(NamedTuple):
    """The verdicts of a rate store, for each demand of each step, up to the step that refused.

    `refused` is the index of that step. A verdict's `remaining` is the rest after the step; if the
    step refused, the rest before it. `counted_as` is the result that metrics count for a policy
    that had room: see RateLimitChecked.
    """

    verdicts: Sequence[tuple[RateVerdict, ...]]
    refused: int | None = None
    counted_as: str = "allowed"


class RateStore(Protocol):
    """The budgets of rate limits.

    `now` is in monotonic seconds; a store with a clock of its own ignores it.
    """

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        """Do the steps in order, as one atomic operation, in at most one round trip."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCensus:
    """The number of tasks in each status, and the size of the store in bytes where known."""

    tasks: dict[TaskStatus, int] = field(default_factory=dict)
    size: int | None = None


class Store(TaskStore, SessionStore, Protocol):
    """A whole backend: tasks and sessions in one store."""

    async def census(self) -> StoreCensus:
        """Count the stored tasks. Raises StoreUnavailable."""
        ...

    async def check(self) -> None:
        """Write and remove a value durably, to find out that a fault is over.

        Raises StoreUnavailable.
        """
        ...

    async def verify(self) -> None:
        """Check that a restart would find the stored data.

        Cheap: called each second. Raises StoreUnavailable.
        """
        ...

    async def close(self) -> None:
        """Finish acknowledged writes and release everything; a second close does nothing."""
        ...
