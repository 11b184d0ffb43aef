"""Look-ups over a store, and two callers."""

from datetime import timedelta
from typing import Any

from helpers.manual_clock import EPOCH, ManualClock
from helpers.records import new_call, new_record
from taskgate.auth.authorization import AccessRule
from taskgate.auth.context import AuthContext
from taskgate.domain.listing import ALL_TASKS, NEWEST_FIRST, ListedTask, TaskFilter, TaskOrder
from taskgate.domain.record import OwnerKey, TaskRecord
from taskgate.stores.base import Store
from taskgate.telemetry.events import Event
from unit.auth.identities import identity
from unit.lifecycle.asked import Asked
from unit.lifecycle.guarding import CURSORS, Guard
from unit.lifecycle.recorded_events import RecordedEvents

ALICE = AuthContext(key="alice", identity=identity("read"))
BOB = AuthContext(key="bob", identity=identity("read"))
ROTATED = AuthContext(key="alice-new", previous_key="alice", identity=identity("read"))
ADMIN_ONLY = AccessRule(name="r", tool="delete_*", require_scopes=frozenset({"admin"}))


class Desk:
    """Lookups over a store, and what they report."""

    def __init__(
        self,
        store: Store,
        *rules: AccessRule,
        threshold: int | None = None,
        cursors: Any = CURSORS,
        **changes: Any,
    ) -> None:
        self.store, self.clock, self.emitted = store, ManualClock(), RecordedEvents()
        guard = Guard(store, self.clock, self.emitted, *rules, threshold=threshold, cursors=cursors, **changes)
        self.lookups, self.limiter, self.polled = guard.lookups, guard.limiter, guard.polled

    async def add(self, context: str, count: int = 1, mount: str = "reports", tool: str = "build") -> list[TaskRecord]:
        """Tasks of a context, each a second older than the one before."""
        made = []
        for number in range(count):
            at = EPOCH - timedelta(seconds=number)
            made.append(
                new_record(
                    owner=OwnerKey(context, mount), call=new_call()._replace(tool=tool), created_at=at, updated_at=at
                )
            )
            await self.store.insert(made[-1], caps=())
        return made

    async def find(self, caller: AuthContext, task: str, mount: str = "reports") -> str:
        return (await self.lookups.find(Asked(), caller, mount, task, "tasks/get")).id

    async def poll(self, caller: AuthContext, task: str) -> int:
        """The milliseconds that a `tasks/get` of the caller is told."""
        record = await self.lookups.find(Asked(), caller, "reports", task, "tasks/get")
        return self.lookups.poll(caller, record)

    async def told(self) -> list[Event]:
        """What is reported, with why tasks were not found."""
        await self.lookups.close()
        return self.emitted.all

    async def page(
        self,
        caller: AuthContext,
        cursor: str | None = None,
        mount: str = "reports",
        where: TaskFilter = ALL_TASKS,
        order: TaskOrder = NEWEST_FIRST,
    ) -> tuple[tuple[ListedTask, ...], str | None]:
        return await self.lookups.page(caller, mount, cursor, where, order)

    async def pages(
        self,
        caller: AuthContext,
        mount: str = "reports",
        where: TaskFilter = ALL_TASKS,
        order: TaskOrder = NEWEST_FIRST,
    ) -> list[list[str]]:
        found, cursor = [], None
        while True:
            tasks, cursor = await self.page(caller, cursor, mount, where, order)
            found.append([task.id for task in tasks])
            if cursor is None:
                return found
            assert len(found) < 10


def ids(records: list[TaskRecord]) -> list[str]:
    return [record.id for record in records]
