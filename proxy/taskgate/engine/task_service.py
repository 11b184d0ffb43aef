"""What hosts may do with tasks: create, read, cancel. Each starts from the caller, so none sees another's.

What must not live here: how a task is waited for, and how its questions are answered (`following`).
"""

from base64 import urlsafe_b64encode
from datetime import timedelta
from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.dialects.base import CallTool
from taskgate.engine.guard.lookups import Lookups
from taskgate.engine.messages import Exchange
from taskgate.engine.places import Place, Underway
from taskgate.engine.runner import Runner
from taskgate.errors import InvalidParams, StoreUnavailable, TaskAlreadyFinished, TaskSupportMismatch
from taskgate.stores.base import Cap, CapScope, TaskStore
from taskgate.tasks.events import CancelRequested
from taskgate.tasks.machine import advance
from taskgate.tasks.policy import Mode, Policy, TaskSupport
from taskgate.tasks.record import Lease, OwnerKey, TaskId, TaskRecord, TaskStatus, ToolCall
from taskgate.telemetry.audit import Audit, TaskCancelAsked, TaskCreated, TaskDispatched, TaskFinished, TaskMoved

ID_BYTES: Final = 24


class TaskService:
    """The tasks of all hosts."""

    def __init__(
        self,
        *,
        store: TaskStore,
        lookups: Lookups,
        runner: Runner,
        policy: Policy,
        audit: Audit,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._store = store
        self._lookups = lookups
        self._runner = runner
        self._policy = policy
        self._audit = audit
        self._clock = clock
        self._entropy = entropy

    def insists(self, place: Place, tool: str) -> bool:
        """Whether the operator lets hosts that have tasks call the tool only as one."""
        return self._policy.mode(place.mount.name, tool) is Mode.REQUIRED

    def immediate_response(self, place: Place, tool: str) -> str | None:
        """What a model may be told for now of a call that became a task; None where the operator wants nothing told."""
        return self._policy.immediate_response(place.mount.name, tool)

    async def create(self, caller: AuthContext, place: Place, intent: CallTool) -> TaskRecord:
        """A new task of the caller, durable and about to run (decisions 3).

        Raises InvalidParams for a tool the server does not list, TaskSupportMismatch for one that cannot be a task,
        TooManyTasks, StoreUnavailable, or UpstreamFailed where the catalogue cannot be read; nothing is stored then.
        """
        with self._runner.expecting(place):
            record = await self._insert(caller, place, intent, dispatched=False)
            self._runner.start(record, place, caller)
        return record

    async def promote(self, caller: AuthContext, place: Place, intent: CallTool, underway: Underway) -> TaskRecord:
        """A new task of the caller that is durable, and whose call left before; raises as `create` does.

        Where it raises, nothing has happened to the call.
        """
        with self._runner.expecting(place):
            record = await self._insert(caller, place, intent, dispatched=True)
            self._audit.record(TaskDispatched(place.mount.name, timedelta()))
            self._runner.adopt(record, underway, place)
        return record

    def abandon(self, owner: OwnerKey, task: TaskId) -> None:
        """Cancel a task in the background, whose host left without knowing of it."""
        self._runner.cancel(owner, task)

    async def get(self, exchange: Exchange, caller: AuthContext, mount: str, task: TaskId, method: str) -> TaskRecord:
        """The head of a task. Raises TaskNotFound for whatever is not the caller's, or not any more; see Lookups."""
        return await self._lookups.find(exchange, caller, mount, task, method)

    async def cancel(
        self, exchange: Exchange, caller: AuthContext, mount: str, task: TaskId, method: str
    ) -> TaskRecord:
        """The task, cancelled. Raises TaskNotFound, or TaskAlreadyFinished for one that ended before (L-CANCEL-1)."""
        while True:
            record = await self.get(exchange, caller, mount, task, method)
            if record.status.is_terminal:
                self._audit.record(TaskCancelAsked(mount, "already_terminal"))
                raise TaskAlreadyFinished("The task has already ended")
            now = self._clock.now()
            cancelled = advance(record, CancelRequested(), now)
            if await self._store.swap(cancelled, expected=record.revision):
                break
        self._audit.record(TaskCancelAsked(mount, "propagated"))
        self._audit.record(TaskMoved(mount, record.status, cancelled.status))
        age = now - record.created_at
        self._audit.record(TaskFinished(mount, TaskStatus.CANCELLED, "client", age, None))
        return cancelled

    async def _insert(self, caller: AuthContext, place: Place, intent: CallTool, *, dispatched: bool) -> TaskRecord:
        mount = place.mount.name
        catalogue = await place.upstream.tools()
        if intent.tool not in catalogue:
            raise InvalidParams("Unknown tool")
        if self._policy.support(mount, intent.tool, catalogue[intent.tool].support) is TaskSupport.FORBIDDEN:
            raise TaskSupportMismatch("The tool cannot run as a task")
        record = self._new_record(caller.owner(mount), place, intent, dispatched=dispatched)
        cap = Cap(scope=CapScope.CONTEXT, limit=self._policy.tasks_per_context)
        try:
            await self._store.insert(record, caps=(cap,))
        except StoreUnavailable:
            # It may be there all the same.
            self._runner.disown(record.owner, record.id, dispatched=dispatched)
            raise
        self._audit.record(TaskCreated(mount, record.ttl, _adjustment(intent.ttl, record.ttl)))
        return record

    def _new_record(self, owner: OwnerKey, place: Place, intent: CallTool, *, dispatched: bool) -> TaskRecord:
        now = self._clock.now()
        ttl = self._policy.clamp_ttl(intent.ttl)
        return TaskRecord(
            id=urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode(),
            owner=owner,
            call=ToolCall(
                tool=intent.tool,
                peer=place.peer,
                host_session=place.host_session,
                # Without a session there is no stream that could still carry progress under it.
                progress_token=None if place.host_session is None else intent.progress_token,
                params=intent.kept,
            ),
            status=TaskStatus.WORKING,
            created_at=now,
            updated_at=now,
            ttl=ttl,
            poll_interval=self._policy.poll_interval,
            dispatched=dispatched,
            lease=Lease(holder=self._runner.holder, until=now + ttl),
        )


def _adjustment(asked: timedelta | None, granted: timedelta) -> str | None:
    if asked is None:
        return "defaulted"
    if asked == granted:
        return None
    return "clamped_max" if asked > granted else "raised_min"
