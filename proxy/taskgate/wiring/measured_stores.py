"""The store with metrics: `MeasuredStore`, and `MeasuredRates` and `MeasuredLeases` for a shared
store. `StoreHealth` remembers a fault of the store until a check finds that it is over.

Each of the first three wraps an object of the same protocol and emits an event with the duration and
the success of each operation. Messages and streams of a shared store are not measured: hosts do not
wait for them. `app` wraps the task store, `build` the others.

`MeasuredStore` tells the health of each failed operation. While `wants_check`, its periodic check (from
the sweeper) writes a test value, and a success ends the fault. The log says once what is wrong and what
to do, and once that it is over.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from logging import getLogger
from typing import Any, Final, TypeVar

from taskgate.clock import Clock
from taskgate.domain.limits import Cap
from taskgate.domain.listing import Page, Position, TaskFilter, TaskOrder
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, Transition
from taskgate.errors import StoreFault, StoreUnavailable
from taskgate.stores.base import (
    ChangeBatch,
    RateJudgement,
    RateStep,
    RateStore,
    Scan,
    SessionRecord,
    Store,
    StoreCensus,
    Watch,
)
from taskgate.stores.references import ReferenceOf, plain_reference
from taskgate.stores.shared import HeartbeatReply, LeaseStore
from taskgate.system.log_throttle import ThrottledLog
from taskgate.telemetry.events import EventSink, StoreFaulted, StoreUsed

CALM: Final = 6.0
"""Seconds without a failure before the store is checked. Longer than the pause between two attempts
to write a final state."""
QUIET: Final = 60.0
"""Seconds in which a returning fault is not logged again."""

_TOLD: Final = {
    StoreFault.DISK_FULL: "the disk is full; free some space",
    StoreFault.SIZE_LIMIT: "its file has reached store.sqlite.max_size; raise that, or shorten the lifetime of tasks",
    StoreFault.READ_ONLY: "its file is not writable; mount the file system writable, or restore the file's permissions",
    StoreFault.IO_ERROR: "the disk reports I/O errors; see the system log",
    StoreFault.DAMAGED: "its file is damaged; stop the gateway and put a backup in its place",
    StoreFault.LOCKED: "another program has locked its file; stop that program",
    StoreFault.FILE_GONE: "its file was removed or replaced; put it back, or stop the gateway and restore a backup",
}

log = getLogger("taskgate.stores")


class StoreHealth:
    """The known fault of one store. For one thread."""

    def __init__(self, *, event_sink: EventSink, clock: Clock) -> None:
        self._event_sink = event_sink
        self._clock = clock
        self._failed_at = 0.0
        self._logged: dict[StoreFault, float] = {}
        self.fault: StoreFault | None = None
        """The present fault; None if none is known."""

    @property
    def wants_check(self) -> bool:
        """Whether there was a fault, and nothing failed lately."""
        return self.fault is not None and self._clock.elapsed() - self._failed_at >= CALM

    def failed(self, error: StoreUnavailable) -> None:
        """Handle a failed operation. An error without a `fault` says nothing about the whole store."""
        fault, now = error.fault, self._clock.elapsed()
        if fault is None:
            return
        self._failed_at = now
        if fault is self.fault:
            return
        self._set(fault)
        if now - self._logged.get(fault, -QUIET) >= QUIET:
            code = getattr(error.__cause__, "sqlite_errorname", "")
            told = {"fault": fault.value, "error": code}
            log.error("The task store does not work and no task can be created: %s", _TOLD[fault], extra=told)
            self._logged[fault] = now

    def recovered(self) -> None:
        """Handle that a check succeeded."""
        if self.fault is not None:
            fault = self.fault.value
            self._set(None)
            log.warning("The task store works again", extra={"fault": fault})

    def _set(self, fault: StoreFault | None) -> None:
        self.fault = fault
        self._event_sink.emit(StoreFaulted(fault))


# --- the stores ------------------------------------------------------------------------------------------------------


T = TypeVar("T")


class MeasuredStore:
    """A `Store` that measures `inner`. The wait for changes is not measured.

    A task that is loaded and cannot be read is logged by its reference, which `reference_of` makes.
    """

    def __init__(
        self, inner: Store, *, event_sink: EventSink, clock: Clock, reference_of: ReferenceOf = plain_reference
    ) -> None:
        self._inner = inner
        self._reference_of = reference_of
        self._unreadable_log = ThrottledLog(log, "A stored task cannot be read: requests for it get code 503")
        self._emit = event_sink.emit
        self._elapsed = clock.elapsed
        self._health = StoreHealth(event_sink=event_sink, clock=clock)

    @property
    def fault(self) -> StoreFault | None:
        """The known fault of the store, if any."""
        return self._health.fault

    # The operations of every task are measured in place: another coroutine would cost each of them.

    async def insert(self, record: TaskRecord, *, caps: tuple[Cap, ...], subject: str | None = None) -> TaskId:
        begun = self._elapsed()
        try:
            stored_id = await self._inner.insert(record, caps=caps, subject=subject)
        except StoreUnavailable as error:
            self._failed("insert", begun, error)
            raise
        self._emit(StoreUsed("insert", self._elapsed() - begun, True))
        return stored_id

    async def load(self, owner: OwnerKey, id: TaskId, *, now: datetime, bodies: bool = False) -> TaskRecord | None:
        begun = self._elapsed()
        try:
            found = await self._inner.load(owner, id, now=now, bodies=bodies)
        except StoreUnavailable as error:
            self._failed("load", begun, error, id)
            raise
        self._emit(StoreUsed("load", self._elapsed() - begun, True))
        return found

    def recall(self, owner: OwnerKey, id: TaskId, *, now: datetime) -> TaskRecord | None:
        begun = self._elapsed()
        try:
            found = self._inner.recall(owner, id, now=now)
        except StoreUnavailable as error:
            self._failed("load", begun, error, id)
            raise
        # Otherwise `load` follows.
        if found is not None:
            self._emit(StoreUsed("load", self._elapsed() - begun, True))
        return found

    async def swap(self, record: TaskRecord, *, expected: int) -> bool:
        begun = self._elapsed()
        try:
            was_swapped = await self._inner.swap(record, expected=expected)
        except StoreUnavailable as error:
            self._failed("swap", begun, error)
            raise
        self._emit(StoreUsed("swap", self._elapsed() - begun, True))
        return was_swapped

    # The rest is rare.

    async def repeated(self, owner: OwnerKey, key: str, *, now: datetime) -> TaskId | None:
        return await self._timed("repeated", self._inner.repeated(owner, key, now=now))

    async def owner_of(self, id: TaskId) -> OwnerKey | None:
        return await self._timed("owner_of", self._inner.owner_of(id))

    # What operators ask counts as what hosts ask: each more operation has thirteen series.

    async def referred(self, reference: str) -> TaskId | None:
        return await self._timed("load", self._inner.referred(reference))

    async def transitions(self, id: TaskId) -> tuple[Transition, ...]:
        return await self._timed("load", self._inner.transitions(id))

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
        found = self._inner.scan(unfinished=unfinished, wants=wants, after=after, limit=limit, now=now, texts=texts)
        return await self._timed("page", found)

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
        found = self._inner.page(owner, where=where, order=order, after=after, limit=limit, now=now)
        return await self._timed("page", found)

    def changed(self, watch: Watch, *, timeout: timedelta) -> Coroutine[Any, Any, ChangeBatch]:
        # Returns the inner coroutine itself: many tasks wait here, and each would have one more
        # frame.
        return self._inner.changed(watch, timeout=timeout)

    async def renew(self, holder: str, ids: frozenset[TaskId], until: datetime) -> None:
        await self._timed("renew", self._inner.renew(holder, ids, until))

    async def lapsed(
        self, *, holder: str, until: datetime, now: datetime, limit: int, heard: datetime | None = None
    ) -> tuple[TaskRecord, ...]:
        return await self._timed(
            "lapsed", self._inner.lapsed(holder=holder, until=until, now=now, limit=limit, heard=heard)
        )

    async def purge(self, *, now: datetime, limit: int) -> tuple[TaskRecord, ...]:
        return await self._timed("purge", self._inner.purge(now=now, limit=limit))

    async def put(self, record: SessionRecord) -> None:
        await self._timed("put", self._inner.put(record))

    async def find(self, owner: OwnerKey, id: str, *, now: datetime) -> SessionRecord | None:
        return await self._timed("find", self._inner.find(owner, id, now=now))

    async def touch(self, ids: frozenset[str], *, until: datetime) -> None:
        await self._timed("touch", self._inner.touch(ids, until=until))

    async def drop(self, owner: OwnerKey, id: str) -> bool:
        return await self._timed("drop", self._inner.drop(owner, id))

    async def purge_sessions(self, *, now: datetime) -> int:
        return await self._timed("purge_sessions", self._inner.purge_sessions(now=now))

    async def census(self) -> StoreCensus:
        return await self._timed("census", self._inner.census())

    async def check(self) -> None:
        """Write a test value if there was a fault and nothing failed lately; else only `verify`.

        A test value that could be written ends the known fault.
        """
        if self._health.wants_check:
            await self._timed("check", self._inner.check())
            self._health.recovered()
            return
        await self.verify()

    async def verify(self) -> None:
        """Verify that the store is there; only a failure is counted, as `check`."""
        begun = self._elapsed()
        try:
            await self._inner.verify()
        except StoreUnavailable as error:
            self._failed("check", begun, error)
            raise

    async def close(self) -> None:
        await self._inner.close()

    async def _timed(self, operation: str, work: Awaitable[T]) -> T:
        begun = self._elapsed()
        try:
            done = await work
        except StoreUnavailable as error:
            self._failed(operation, begun, error)
            raise
        self._emit(StoreUsed(operation, self._elapsed() - begun, True))
        return done

    def _failed(self, operation: str, begun: float, error: StoreUnavailable, id: TaskId | None = None) -> None:
        self._emit(StoreUsed(operation, self._elapsed() - begun, False))
        self._health.failed(error)
        if id is not None and error.unreadable:
            self._unreadable_log.emit({"task": self._reference_of(id)})


class MeasuredRates:
    """A `RateStore` that measures `inner`."""

    def __init__(self, inner: RateStore, *, event_sink: EventSink, clock: Clock) -> None:
        self._inner = inner
        self._event_sink = event_sink
        self._clock = clock

    async def judge(self, steps: Sequence[RateStep], *, now: float) -> RateJudgement:
        return await _timed("judge", self._inner.judge(steps, now=now), self._event_sink, self._clock)


class MeasuredLeases:
    """A `LeaseStore` that measures `inner`, for the main loop only. The heartbeat thread has its
    own store.
    """

    def __init__(self, inner: LeaseStore, *, event_sink: EventSink, clock: Clock) -> None:
        self._inner = inner
        self._event_sink = event_sink
        self._clock = clock

    async def beat(self, holder: str, held: Mapping[TaskId, int], *, lease: timedelta) -> HeartbeatReply:
        return await _timed("beat", self._inner.beat(holder, held, lease=lease), self._event_sink, self._clock)

    async def restore(self, record: TaskRecord) -> bool:
        return await _timed("restore", self._inner.restore(record), self._event_sink, self._clock)

    async def part(self, holder: str) -> None:
        await self._inner.part(holder)


async def _timed(operation: str, work: Awaitable[T], event_sink: EventSink, clock: Clock) -> T:
    begun = clock.elapsed()
    try:
        done = await work
    except StoreUnavailable:
        event_sink.emit(StoreUsed(operation, clock.elapsed() - begun, False))
        raise
    event_sink.emit(StoreUsed(operation, clock.elapsed() - begun, True))
    return done


_: type[Store] = MeasuredStore
__: type[RateStore] = MeasuredRates
___: type[LeaseStore] = MeasuredLeases
