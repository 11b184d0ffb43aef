"""The execution of one call of a task, from dispatch to the stored end: `TaskExecutor`.

A call is sent at most once. Before its first byte the record says durably that it was dispatched
(`dispatch`). For a call that became a task after it was sent, the new record says it. A call is
sent again only if its process was lost and the operator allows it.

`Runner` decides which calls run, and starts one of the four public methods as an asyncio task:

- `run`: a call that is to be sent;
- `see_through`: a call that was already sent by this process;
- `go_on`: a call taken over that waits between two rounds;
- `stand`: a call taken over that its server works on.

Each ends with a stored final state (`completions`), or writes none because another process has the
task or resumes the call.
"""

from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from taskgate.admission.concurrency import Permit
from taskgate.clock import Clock
from taskgate.domain.events import CallFaulted, CallSucceeded
from taskgate.domain.record import TaskRecord
from taskgate.lifecycle.calling import Outcome, come_of
from taskgate.lifecycle.checkpoints import CallCheckpoint, RoundCheckpoint
from taskgate.lifecycle.completions import Completions
from taskgate.lifecycle.continuing import CallRoute, going_on, standing
from taskgate.lifecycle.deadlines import Call, bounded, time_left
from taskgate.lifecycle.dispatch import Dispatcher
from taskgate.lifecycle.leasing import Leasing
from taskgate.lifecycle.takeovers import Takeovers
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.telemetry.events import CallsRunning, EventSink
from taskgate.upstream.failures import Gone


class TaskExecutor:
    """The executor of calls of tasks. `leasing` is given if replicas share the store."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        completions: Completions,
        takeovers: Takeovers,
        event_sink: EventSink,
        clock: Clock,
        leasing: Leasing | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._completions = completions
        self._takeovers = takeovers
        self._event_sink = event_sink
        self._clock = clock
        self._leasing = leasing
        self._counts: Counter[str] = Counter()

    async def run(self, run: TaskRun, record: TaskRecord, route: CallRoute) -> None:
        """Wait for the permit, dispatch a call, send it, and store its result."""
        assert record.call.params is not None, "a new or recovered record has its bodies"
        try:
            unsent = await self._dispatcher.leave(run, record, route.ticket)
        except ScopeCancelled:
            # The task was ended, or another process has it: nothing is sent or written.
            return
        if unsent is not None:
            route.ticket.release()
            await self._settle(run, unsent)
            return
        # As the caller of the task, not the last user of the session: their token may be valid for
        # longer.
        now = self._clock.now()
        call = partial(
            route.upstream.run,
            record.call.tool,
            record.call.params,
            within=time_left(record, now),
            listener=run.listener,
            principal=route.principal_source,
        )
        limited = bounded(call, record, now)
        # A running call holds little memory: its record is in the store.
        del record
        await self.see_through(run, limited, route.upstream.outcome, route.ticket)

    def go_on(
        self, run: TaskRun, record: TaskRecord, rest: RoundCheckpoint, route: CallRoute
    ) -> Coroutine[Any, Any, None]:
        """Resume a call of an earlier process that waits between two rounds."""
        call = going_on(run, record, rest, route, self._clock)
        return self.see_through(run, call, route.upstream.outcome, route.ticket)

    async def stand(
        self,
        run: TaskRun,
        record: TaskRecord,
        call_checkpoint: CallCheckpoint,
        route: CallRoute,
        anew: Callable[[], tuple[CallRoute, Callable[[], None]]],
    ) -> None:
        """Resume a call of an earlier process at its server.

        If the server no longer has the call and it may be sent again, it is sent over a new route.
        `anew` makes that route, and returns it with the function that closes it.
        """
        run.may_be_made_again = record.is_dispatchable
        is_last = partial(self._takeovers.is_last_in, record, call_checkpoint.resume_point.session)
        call = standing(run, record, call_checkpoint, route, self._clock, is_last)
        try:
            await self.see_through(run, call, route.upstream.outcome, route.ticket)
        except Gone:
            run.may_be_made_again = False
            run.listener.sinks()
            other, close = anew()
            try:
                await self.run(run, record, other)
            finally:
                close()

    async def see_through(self, run: TaskRun, call: Call, outcome: Outcome, ticket: Permit | None = None) -> None:
        """Await a call that counts as sent, and store its final state.

        No state is stored if another process continues the call. `ticket` is released when the call
        is over. Raises Gone if a resumed call no longer exists at its server and may be sent again.
        """
        self._count(run.owner.mount, 1)
        try:
            event = await come_of(run, call, outcome, ticket)
        finally:
            self._count(run.owner.mount, -1)
        if event is None and run.is_left:
            # Another replica resumes it after its lease has lapsed, or the next process that starts
            # here.
            return
        # Before the final state is written: no notification of a task follows it.
        run.listener.close()
        is_ours = event is not None and await self._settle(run, event)
        # The task ended by another hand: by a host, or by a process that took it over.
        if self._leasing is not None and not is_ours and await self._takeovers.was_taken(run):
            self._leasing.lose(run)

    async def _settle(self, run: TaskRun, event: CallSucceeded | CallFaulted) -> bool:
        return await self._completions.settle(run.owner, run.id, event, written=run.wrote)

    def _count(self, mount: str, change: int) -> None:
        self._counts[mount] += change
        self._event_sink.emit(CallsRunning(mount, self._counts[mount]))
