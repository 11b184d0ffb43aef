"""Finding tasks for a caller: its own and no other's, as far as the rules go, and not for who only tries ids.

What must not live here: what is done with a task. What holds: whatever is not the caller's is not found in the same
words, after the same steps, whether it is somebody else's, was never there, or is gone.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from taskgate.admission.access import Access
from taskgate.admission.denials import Missed
from taskgate.admission.misses import Misses
from taskgate.admission.outcomes import Outcomes
from taskgate.admission.polls import Polls
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.cursors import Cursors
from taskgate.domain.listing import ListedTask, Position, TaskFilter, TaskOrder, fingerprint, merge_pages
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import InvalidParams, RateLimited, TaskNotFound
from taskgate.protocol.vocabulary import TASKS_GET
from taskgate.stores.base import TaskStore
from taskgate.streams.exchange import Exchange
from taskgate.telemetry.span_annotations import annotate_task

PAGE: Final = 100
"""Tasks of one page of a list."""


class Lookups:
    """Reads of tasks by callers. `misses` hears of what was not found, `met` of what was, `polls` of each poll."""

    def __init__(
        self,
        *,
        store: TaskStore,
        outcomes: Outcomes,
        access: Access,
        cursors: Cursors,
        misses: Misses,
        polls: Polls,
        clock: Clock,
        met: Callable[[TaskId], None] = lambda _: None,
    ) -> None:
        self._store = store
        self.outcomes = outcomes
        """What came of those that are found here."""
        self._access = access
        self._cursors = cursors
        self._misses = misses
        self._polls = polls
        self._clock = clock
        self._met = met

    async def find(self, exchange: Exchange, caller: AuthContext, mount: str, task: TaskId, method: str) -> TaskRecord:
        """The head of a task of the caller's; for `tasks/get`, which is a poll, with the interval to advise now.

        Raises TaskNotFound; Penalized while the caller is in the penalty box; Forbidden or InsufficientScope where the
        rules do not let it do `method` with the tool that the task runs; RateLimited where it polls far too often.
        """
        record = await self.see(exchange, caller, mount, task, method)
        if method != TASKS_GET:
            return record
        try:
            self._polls.looked(record)
        except RateLimited:
            self._misses.polled_too_often(caller, mount)
            raise
        return self._polls.advised(record)

    async def see(self, exchange: Exchange, caller: AuthContext, mount: str, task: TaskId, method: str) -> TaskRecord:
        """The same, but no poll, whatever the method: the caller is about to be told of the task unasked."""
        self._misses.expect_no_penalty(caller)
        for owner in caller.owners(mount):
            record = await self._store.load(owner, task, now=self._clock.now())
            if record is not None:
                self._access.check(caller, mount, method, record.call.tool)
                self._met(task)
                annotate_task(record)
                return record
        await self._misses.missed(exchange, caller, Missed(mount, method, task, self._store.owner_of))
        raise TaskNotFound

    async def again(self, record: TaskRecord) -> TaskRecord:
        """The head of a task that was found before, as it is now: whoever waits for it was let through once.

        Raises TaskNotFound when it is gone.
        """
        found = await self._store.load(record.owner, record.id, now=self._clock.now())
        if found is None:
            raise TaskNotFound
        return found

    async def page(
        self, caller: AuthContext, mount: str, cursor: str | None, where: TaskFilter, order: TaskOrder
    ) -> tuple[tuple[ListedTask, ...], str | None]:
        """A page of those of the caller's tasks that `where` lets through, and the cursor of the next if there is one.

        Raises InvalidParams for a cursor that is not the caller's for this mount, filter and order, and Penalized.
        """
        self._misses.expect_no_penalty(caller)
        owners, listing, now = caller.owners(mount), fingerprint(where, order), self._clock.now()
        after = None if cursor is None else self._opened(cursor, owners, listing)
        pages = [
            await self._store.page(owner, where=where, order=order, after=after, limit=PAGE, now=now)
            for owner in owners
        ]
        found = merge_pages(pages, order, PAGE)
        tools = {task.tool for task in found.tasks}
        shown = {tool for tool in tools if self._access.permits(caller, mount, TASKS_GET, tool)}
        seen = found.tasks if shown == tools else tuple(task for task in found.tasks if task.tool in shown)
        tasks = self._polls.listed(mount, seen)
        if found.next is None:
            return tasks, None
        return tasks, self._cursors.seal(found.next, context=owners[0].context, mount=mount, listing=listing)

    async def close(self) -> None:
        """Tell of what was not found and is not told of yet. The store is still needed."""
        await self._misses.close()

    def _opened(self, cursor: str, owners: tuple[OwnerKey, ...], listing: str) -> Position:
        """Where the cursor stands; one that was sealed for the caller's earlier key is as good."""
        *others, last = (owner.context for owner in owners)
        for context in others:
            with suppress(InvalidParams):
                return self._cursors.open(cursor, context=context, mount=owners[0].mount, listing=listing)
        return self._cursors.open(cursor, context=last, mount=owners[0].mount, listing=listing)
