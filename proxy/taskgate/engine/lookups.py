"""Finding tasks for a caller: its own and no other's, as far as the rules go, and not for who only tries ids.

What must not live here: what is done with a task. What holds: whatever is not the caller's is not found in the same
words, after the same steps, whether it is somebody else's, was never there, or is gone.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.engine.access import Access
from taskgate.engine.penalties import Penalties
from taskgate.errors import InvalidParams, Penalized, TaskNotFound
from taskgate.mcp.vocabulary import TASKS_GET
from taskgate.stores.base import Page, Position, TaskFilter, TaskOrder, TaskStore
from taskgate.tasks.cursors import CursorKeys
from taskgate.tasks.record import OwnerKey, TaskId, TaskRecord
from taskgate.telemetry.audit import Audit, EnumerationSuspected, TaskDenied

PAGE: Final = 50
"""Tasks of one page of a list."""


class Lookups:
    """Reads of tasks by callers. `penalties` is None where callers cannot be told apart."""

    def __init__(
        self,
        *,
        store: TaskStore,
        access: Access,
        cursors: CursorKeys,
        penalties: Penalties | None,
        audit: Audit,
        clock: Clock,
    ) -> None:
        self._store = store
        self._access = access
        self._cursors = cursors
        self._penalties = penalties
        self._audit = audit
        self._clock = clock

    async def find(self, caller: AuthContext, mount: str, task: TaskId, method: str) -> TaskRecord:
        """The head of a task of the caller's.

        Raises TaskNotFound; Penalized while the caller is in the penalty box; Forbidden or InsufficientScope where the
        rules do not let it do `method` with the tool that the task runs.
        """
        self._expect_no_penalty(caller)
        for owner in caller.owners(mount):
            record = await self._store.load(owner, task, now=self._clock.now())
            if record is not None:
                self._access.check(caller, mount, method, record.call.tool)
                return record
        self.missed(caller, mount, method)
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
        self, caller: AuthContext, mount: str, cursor: str | None
    ) -> tuple[tuple[TaskRecord, ...], str | None]:
        """A page of the caller's tasks, newest news first, and the cursor of the next page if there is one.

        Raises InvalidParams for a cursor that is not the caller's for this mount, and Penalized.
        """
        self._expect_no_penalty(caller)
        owners = list(caller.owners(mount))
        after = None
        if cursor is not None:
            owner, after = self._opened(cursor, owners)
            del owners[: owners.index(owner)]
        found: list[TaskRecord] = []
        while owners and len(found) < PAGE:
            page = await self._read(owners[0], after, PAGE - len(found))
            found += page.records
            after = page.next
            if after is None:
                del owners[0]
        shown = tuple(each for each in found if self._access.permits(caller, mount, TASKS_GET, each.call.tool))
        return shown, self._sealed(owners[0], after) if owners else None

    def missed(self, caller: AuthContext, mount: str, method: str) -> None:
        """Count a look-up that found nothing."""
        self._audit.record(TaskDenied(mount, method))
        if self._penalties is not None and self._penalties.failed(caller.key, self._clock.elapsed()):
            self._audit.record(EnumerationSuspected(mount))

    def _expect_no_penalty(self, caller: AuthContext) -> None:
        if self._penalties is not None:
            left = self._penalties.left(caller.key, self._clock.elapsed())
            if left > 0:
                raise Penalized(timedelta(seconds=left))

    async def _read(self, owner: OwnerKey, after: Position | None, limit: int) -> Page:
        now = self._clock.now()
        return await self._store.page(owner, where=EVERY, order=NEWEST_FIRST, after=after, limit=limit, now=now)

    def _opened(self, cursor: str, owners: list[OwnerKey]) -> tuple[OwnerKey, Position]:
        """Whose list the cursor is of, and where it stands."""
        *others, last = owners
        for owner in others:
            try:
                return owner, Position(*self._cursors.open(cursor, context=owner.context, mount=owner.mount))
            except InvalidParams:
                continue
        return last, Position(*self._cursors.open(cursor, context=last.context, mount=last.mount))

    def _sealed(self, owner: OwnerKey, after: Position | None) -> str:
        return self._cursors.seal(after or BEGINNING, context=owner.context, mount=owner.mount)


EVERY: Final = TaskFilter()
NEWEST_FIRST: Final = TaskOrder()
BEGINNING: Final = Position(datetime.max.replace(tzinfo=UTC), "")
"""Before everything, in the order of the list."""
