"""One call behind a task, from dispatch to the end of its record, or to where another process takes it up.

At most once: the mark that the call left is durable before its first byte is (`dispatch`), or, for a call that became
a task on its way, with the record (decisions 2, 3); a call is sent again only when its process was lost and the
operator wants it so. What must not live here: which calls there are (`runner`).
"""

from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from taskgate.admission.bulkhead import Ticket
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
from taskgate.system.interruption import Interrupted
from taskgate.telemetry.events import CallsRunning, EventSink
from taskgate.upstream.failures import Gone


class TaskExecutor:
    """Sees calls of tasks through."""

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

    async def run(self, run: TaskRun, record: TaskRecord, way: CallRoute) -> None:
        """Have a call leave in its turn, which its record says before, and see it through."""
        assert record.call.params is not None, "a new or recovered record has its bodies"
        try:
            unsent = await self._dispatcher.leave(run, record, way.ticket)
        except Interrupted:
            return
        if unsent is not None:
            way.ticket.close()
            await self._settle(run, unsent)
            return
        # For whoever asked, and not for whom the session was last used by: their token may be good for more.
        now = self._clock.now()
        call = partial(
            way.upstream.run,
            record.call.tool,
            record.call.params,
            within=time_left(record, now),
            listener=run.listener,
            principal=way.principal_source,
        )
        has_bound = bounded(call, record, now)
        # A held call keeps as little as it can: the record is in the store.
        del record
        await self.see_through(run, has_bound, way.upstream.outcome, way.ticket)

    def go_on(
        self, run: TaskRun, record: TaskRecord, rest: RoundCheckpoint, way: CallRoute
    ) -> Coroutine[Any, Any, None]:
        """See a call through that an earlier process had, and that rested between two rounds."""
        call = going_on(run, record, rest, way, self._clock)
        return self.see_through(run, call, way.upstream.outcome, way.ticket)

    async def stand(
        self,
        run: TaskRun,
        record: TaskRecord,
        call_checkpoint: CallCheckpoint,
        way: CallRoute,
        anew: Callable[[], tuple[CallRoute, Callable[[], None]]],
    ) -> None:
        """See a call through that an earlier process had, and that is at its server.

        Where it is not any more, and may be made again, it is, over a way that `anew` gives.
        """
        run.may_be_made_again = record.is_dispatchable
        is_last = partial(self._takeovers.is_last_in, record, call_checkpoint.resume_point.session)
        call = standing(run, record, call_checkpoint, way, self._clock, is_last)
        try:
            await self.see_through(run, call, way.upstream.outcome, way.ticket)
        except Gone:
            run.may_be_made_again = False
            run.listener.sinks()
            other, part = anew()
            try:
                await self.run(run, record, other)
            finally:
                part()

    async def see_through(self, run: TaskRun, call: Call, outcome: Outcome, ticket: Ticket | None = None) -> None:
        """See a call through that has left, and write how it ended, unless another process goes on with it.

        Raises Gone for one that was to be gone on with, and may be made again.
        """
        self._count(run.owner.mount, 1)
        try:
            event = await come_of(run, call, outcome, ticket)
        finally:
            self._count(run.owner.mount, -1)
        if event is None and run.is_left:
            # Another process goes on with it, once its lease has lapsed, or the next one that starts here.
            return
        # Before the end is written: nothing is told of a task after it.
        run.listener.close()
        stands = event is not None and await self._settle(run, event)
        if self._leasing is not None and not stands and await self._takeovers.was_taken(run):
            self._leasing.lose(run)

    async def _settle(self, run: TaskRun, event: CallSucceeded | CallFaulted) -> bool:
        return await self._completions.settle(run.owner, run.id, event, written=run.wrote)

    def _count(self, mount: str, change: int) -> None:
        self._counts[mount] += change
        self._event_sink.emit(CallsRunning(mount, self._counts[mount]))
