"""Look-ups of tasks by callers: `Lookups` finds a caller's own tasks, `ResultReader` reads their
results.

The handlers of requests about tasks use both. A record is found as its head: without the large
parameters and result of its call, which are its bodies. A task that is not the caller's is answered
like one that does not exist, with the same words after the same steps. `lookup_guard` handles those
failures.
"""

import asyncio
from collections.abc import Container
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, NoReturn, Protocol

from taskgate.admission.access import AccessControl
from taskgate.admission.lookup_guard import LookupGuard, Miss
from taskgate.admission.memory_pressure import MemoryPressure
from taskgate.admission.polls import PollLimiter
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.cursors import CursorKeys
from taskgate.domain.listing import (
    STATES,
    ListedTask,
    OrderBy,
    Page,
    Position,
    TaskFilter,
    TaskOrder,
    fingerprint,
    merge_pages,
    with_grown_ttls,
)
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord, TaskStatus, outcome_text, with_grown_ttl
from taskgate.errors import InvalidParams, Overloaded, RateLimited, StoreUnavailable, TaskNotFound
from taskgate.jsontext.large import LargeJson
from taskgate.protocol.faults import RETRY_AFTER
from taskgate.protocol.vocabulary import TASKS_GET
from taskgate.stores.base import TaskStore
from taskgate.streams.bytes_in_flight import SMALL, BytesInFlight
from taskgate.streams.exchange import Exchange
from taskgate.system.offload import in_thread
from taskgate.telemetry.request_context import current
from taskgate.telemetry.span_annotations import annotate_task

PAGE: Final = 100
"""Tasks in one page of a list."""
_UNFETCHED: Final = TaskFilter(
    states=frozenset(state for state in STATES if state.status is not TaskStatus.CANCELLED), unfetched=True
)
"""Tasks that run, or whose result no host has got. A cancelled task has none."""
_NEWEST_CALLS: Final = TaskOrder(by=OrderBy.CREATED)
READS_AT_ONCE: Final = 2
"""Results that are read at the same time: only a read shows how large a result is."""


class HeldQuestions(Protocol):
    """The questions of tasks that are held back until the host knows the task; implemented by
    `lifecycle.status_notifications`.
    """

    @property
    def held(self) -> Container[TaskId]:
        """The tasks that have such questions."""
        ...

    def met(self, task: TaskId) -> None:
        """Send those of a task that its host knows now."""
        ...


class Lookups:
    """The look-ups of callers' tasks. A task that is found is known to its host."""

    def __init__(
        self,
        *,
        store: TaskStore,
        results: "ResultReader",
        access: AccessControl,
        cursors: CursorKeys,
        guard: LookupGuard,
        polls: PollLimiter,
        clock: Clock,
        held_questions: HeldQuestions | None = None,
    ) -> None:
        self._store = store
        self.results = results
        """Reads the results of tasks that were found."""
        self._access = access
        self._cursors = cursors
        self._guard = guard
        self._polls = polls
        self._clock = clock
        self._held_questions = held_questions

    def recall(self, caller: AuthContext, mount: str, task: TaskId, method: str) -> TaskRecord | None:
        """The head of a task of the caller, as it is shown, if no wait is needed; None if `find` has to tell.

        None too for a new task whose end a poll waits for (`poll_wait`).

        Raises Forbidden, InsufficientScope or StoreUnavailable as `find` does.
        """
        now = self._clock.now()
        record = self._store.recall(caller.owners(mount)[0], task, now=now)
        if record is not None:
            age = now - record.created_at
            if record.handed_to is not None or (
                age < self._access.live.current.polling.grace and record.status is TaskStatus.WORKING
            ):
                return None
            self._on_found(caller, mount, method, record)
            # Before that, no time to live grows: see `grown_ttl`.
            if age * 4 > record.ttl * 3:
                return with_grown_ttl(record, now)
        return record

    def poll_wait(self, record: TaskRecord) -> timedelta:
        """How long a poll of a task that was found waits for its end; zero unless it is new and running."""
        grace = self._access.live.current.polling.grace
        if not grace or record.status is not TaskStatus.WORKING:
            return timedelta()
        # At another replica, the clock may be behind.
        return min(max(record.created_at + grace - self._clock.now(), timedelta()), grace)

    def shown(self, record: TaskRecord) -> TaskRecord:
        """A record that was found, as hosts are shown it now; not to be stored."""
        return with_grown_ttl(record, self._clock.now())

    async def find(
        self,
        exchange: Exchange,
        caller: AuthContext,
        mount: str,
        task: TaskId,
        method: str,
        *,
        is_of_tool: bool = False,
    ) -> TaskRecord:
        """The head of a task of the caller. `method` is the one whose access rules apply.

        `is_of_tool`: a call of a tool of the gateway asks for it. Raises
        - TaskNotFound; Penalized instead while the caller is in the penalty box
        - Forbidden or InsufficientScope if the rules forbid `method` with the task's tool
        """
        for owner in caller.owners(mount):
            record = await self._store.load(owner, task, now=self._clock.now())
            # Without tokens that id is a secret of one host, which its tools prove to the gateway.
            if record is not None and (is_of_tool or record.handed_to is None):
                self._on_found(caller, mount, method, record)
                return record
        await self._guard.on_miss(exchange, caller, Miss(mount, method, task, self._store.owner_of, is_of_tool))
        raise TaskNotFound

    async def refuse(self, exchange: Exchange, caller: AuthContext, record: TaskRecord, method: str) -> NoReturn:
        """Handle that another host asked for a call that was handed off, as `find` handles an unknown task."""
        miss = Miss(record.owner.mount, method, record.id, self._store.owner_of, is_of_tool=True, is_of_other_host=True)
        await self._guard.on_miss(exchange, caller, miss)
        raise TaskNotFound

    def _on_found(self, caller: AuthContext, mount: str, method: str, record: TaskRecord) -> None:
        """Apply the access rules to a task that was found, and note that its host knows it."""
        if not self._access.live.current.access.allows_all:
            self._access.check(caller, mount, method, record.call.tool)
        if self._held_questions is not None and record.id in self._held_questions.held:
            self._held_questions.met(record.id)
        request_context = current()
        if request_context is not None and request_context.span is not None:
            annotate_task(request_context.span, record)

    def poll(self, caller: AuthContext, record: TaskRecord, now: float | None = None) -> int:
        """Count a poll of a task that was found; return the interval to tell its host, in milliseconds.

        `now` is the monotonic time; None reads the clock. Raises RateLimited if the caller polls far too often.
        """
        try:
            return self._polls.on_poll(record, now)
        except RateLimited:
            self._guard.on_excessive_polling(caller, record.owner.mount)
            raise

    async def reload(self, record: TaskRecord) -> TaskRecord:
        """The present head of a task that was found before, without another check of the caller.

        Raises TaskNotFound if it is gone.
        """
        found = await self._store.load(record.owner, record.id, now=self._clock.now())
        if found is None:
            raise TaskNotFound
        return found

    async def page(
        self, caller: AuthContext, mount: str, cursor: str | None, where: TaskFilter, order: TaskOrder
    ) -> tuple[tuple[ListedTask, ...], str | None]:
        """A page of the caller's tasks that match `where`, and the cursor of the next page, if any.

        Tasks of tools that the access rules forbid to read are left out.

        Raises InvalidParams for a cursor of another caller, mount, filter or order.
        """
        owners, listing, now = caller.owners(mount), fingerprint(where, order), self._clock.now()
        after = None if cursor is None else self._open_cursor(cursor, owners, listing)
        found = await self._read(caller, mount, where, order, after, now)
        tasks = with_grown_ttls(self._polls.advise_page(mount, found.tasks), now)
        if found.next is None:
            return tasks, None
        return tasks, self._cursors.seal(found.next, context=owners[0].context, mount=mount, listing=listing)

    async def unfetched(self, caller: AuthContext, mount: str) -> Page:
        """The newest page of the caller's tasks that run, or whose result no host has got.

        Tasks of tools that the access rules forbid to read are left out.
        """
        return await self._read(caller, mount, _UNFETCHED, _NEWEST_CALLS, None, self._clock.now())

    async def _read(
        self,
        caller: AuthContext,
        mount: str,
        where: TaskFilter,
        order: TaskOrder,
        after: Position | None,
        now: datetime,
    ) -> Page:
        """A page of the caller's tasks, without those that the access rules forbid to read."""
        pages = [
            await self._store.page(owner, where=where, order=order, after=after, limit=PAGE, now=now)
            for owner in caller.owners(mount)
        ]
        found = merge_pages(pages, order, PAGE)
        tools = {task.tool for task in found.tasks}
        allowed = {tool for tool in tools if self._access.is_allowed(caller, mount, TASKS_GET, tool)}
        if allowed == tools:
            return found
        return Page(tasks=tuple(task for task in found.tasks if task.tool in allowed), next=found.next)

    async def close(self) -> None:
        """Report the failed look-ups that are still pending. Needs the store."""
        await self._guard.close()

    def _open_cursor(self, cursor: str, owners: tuple[OwnerKey, ...], listing: str) -> Position:
        """The position of a cursor, which may be sealed for an earlier key of the caller."""
        *others, last = (owner.context for owner in owners)
        for context in others:
            with suppress(InvalidParams):
                return self._cursors.open(cursor, context=context, mount=owners[0].mount, listing=listing)
        return self._cursors.open(cursor, context=last, mount=owners[0].mount, listing=listing)


# --- results ----------------------------------------------------------------------------------------------------------


class ResultReader:
    """The reader of results of tasks in the store. A large one is read when the limit of bytes in flight
    has room for it.
    """

    def __init__(self, *, store: TaskStore, clock: Clock, in_flight: BytesInFlight, pressure: MemoryPressure) -> None:
        self._store = store
        self._clock = clock
        self._in_flight = in_flight
        self._pressure = pressure
        self._read_turns = asyncio.Semaphore(READS_AT_ONCE)

    async def load(self, record: TaskRecord, caller: AuthContext) -> TaskRecord | None:
        """The record with its bodies; None if it is gone.

        It counts as in flight only while this runs, and the sender of the result counts it again. Raises
        StoreUnavailable and, for a large result while memory is short, Overloaded.
        """
        found = await self._read(record)
        outcome = None if found is None else found.outcome
        if outcome is None or (size := len(outcome_text(outcome))) <= SMALL:
            return found
        if self._pressure.level > 1:
            raise Overloaded(RETRY_AFTER)
        if self._in_flight.refusal(caller, size) is not None:
            # Dropped during the wait, and read again: it must be nowhere but in the store.
            found = outcome = None
            await self._in_flight.wait_for_room(caller, size)
        self._in_flight.add(caller, size)
        try:
            return await with_parsed_outcome(found or await self._read(record))
        finally:
            self._in_flight.release(caller, size)

    async def _read(self, record: TaskRecord) -> TaskRecord | None:
        async with self._read_turns:
            return await self._store.load(record.owner, record.id, now=self._clock.now(), bodies=True)


async def with_parsed_outcome(record: TaskRecord | None) -> TaskRecord | None:
    """The record, after a large outcome was parsed in another thread. Raises StoreUnavailable if it
    is invalid.
    """
    outcome = None if record is None else record.outcome
    text = None if outcome is None else outcome_text(outcome)
    if isinstance(text, LargeJson):
        try:
            await in_thread(lambda: text.members)
        except ValueError as error:
            raise StoreUnavailable("A stored record cannot be read") from error
    return record
