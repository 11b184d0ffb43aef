"""The execution of one call of a task, from dispatch to the stored end: `TaskExecutor`.

`Runner` decides which calls run, and starts one of the four public methods as an asyncio task:

- `run`: a call that is to be sent;
- `see_through`: a call that was already sent by this process;
- `go_on`: a call taken over that waits between two rounds;
- `stand`: a call taken over that its server works on.

An execution has three steps. *Dispatch* waits for the permit, and marks the record as dispatched. The
mark says that the call may have been sent. It is stored before the first byte, so that no crash can
lead to a second sending. For a call that became a task after it was sent, the new record says it. A
call is sent again only if its process was lost and the operator allows it.

*Await* maps what comes of the call to the event that ends the task. *Settle* (`completions`) writes that
event. Each execution ends with a stored final state, or writes none because another process has the
task or resumes the call.

A call may take until its task expires, and no longer than its own deadline if it has one. The
deadline counts from the moment that the call is sent or resumed. At either limit the call is
cancelled and fails with UpstreamFailed. The limit on a server's silence belongs to `upstream`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from logging import getLogger
from typing import Any, Final, NamedTuple

from taskgate.admission.concurrency import Permit, queue_status
from taskgate.clock import Clock
from taskgate.domain.events import CallFaulted, CallSucceeded, Dispatched, Progressed
from taskgate.domain.machine import advance
from taskgate.domain.record import FaultReason, TaskRecord
from taskgate.errors import QueueFull, StoreUnavailable, UpstreamFailed, UpstreamReason
from taskgate.lifecycle.checkpoints import CallCheckpoint, RoundCheckpoint
from taskgate.lifecycle.completions import Completions
from taskgate.lifecycle.leases import Leasing
from taskgate.lifecycle.recovery import Takeovers
from taskgate.lifecycle.reports import report
from taskgate.lifecycle.task_runs import TaskRun
from taskgate.lifecycle.transitions import Changes
from taskgate.protocol.faults import CUT_OFF, call_ended, call_failed
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.stores.base import TaskStore
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.telemetry.events import CallsRunning, EventSink, TaskDispatched
from taskgate.upstream import failures
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import UpstreamCall
from taskgate.upstream.principal import Principal
from taskgate.upstream.resume_points import NextRound, Resumed

SHUT_DOWN_UNSENT: Final = "The gateway shut down before the call was sent"
NO_STORE: Final = "The call was not sent: the task store was not available"
UNFORESEEN: Final = "The gateway failed while the call was running; it may or may not have completed"
DEADLINE: Final = "The call took longer than its deadline"

Call = Callable[[], Awaitable[Response]]
"""Makes a call, and returns the server's response. Raises UpstreamFailed."""

Outcome = Callable[[Response], CallSucceeded | CallFaulted]
"""Maps a response to the event that ends a task. Raises UpstreamFailed if it is no valid response."""

log = getLogger("taskgate.runner")


class CallRoute(NamedTuple):
    """The route of a call to its server: the upstream session, the principal, the permit.

    `principal_source` is the caller of a new task. It is None for a task that was taken over, whose
    session knows the principal. `ticket` may not be granted yet.
    """

    upstream: UpstreamSession
    principal_source: Principal | None
    ticket: Permit


class TaskExecutor:
    """The executor of calls of tasks. `leasing` is given if replicas share the store."""

    def __init__(
        self,
        *,
        store: TaskStore,
        changes: Changes,
        completions: Completions,
        takeovers: Takeovers,
        event_sink: EventSink,
        clock: Clock,
        leasing: Leasing | None,
    ) -> None:
        self._store = store
        self._changes = changes
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
            dispatched = await self._dispatch(run, record, route.ticket)
        except ScopeCancelled:
            # The task was ended, or another process has it: nothing is sent or written.
            return
        if isinstance(dispatched, CallFaulted):
            route.ticket.release()
            await self._completions.settle(run.owner, run.id, dispatched, run=run)
            return
        now = self._clock.now()
        self._event_sink.emit(TaskDispatched(dispatched, now - record.created_at))
        left = _time_left(record, now)
        # As the caller of the task, not the last user of the session: their token may be valid for
        # longer.
        asked = UpstreamCall(
            TOOLS_CALL,
            Params(record.call.params),
            record.call.tool,
            route.principal_source,
            as_task=True,
            within=left,
        )
        call: Call = partial(route.upstream.call, asked, run.listener)
        if record.deadline is not None and record.deadline < left:
            call = partial(_within, call, record.deadline, _past_deadline)
        # A running call holds little memory: its record is in the store.
        del record, dispatched
        await self.see_through(run, call, route.upstream.outcome, route.ticket)

    def go_on(
        self, run: TaskRun, record: TaskRecord, rest: RoundCheckpoint, route: CallRoute
    ) -> Coroutine[Any, Any, None]:
        """Resume a call of an earlier process that waits between two rounds.

        It waits for the host's answers, and then sends the next round. The server gets no message
        before that, so the wait for the permit begins after the answers.
        """
        # Not awaited: the listener has the round at once, so that a shutdown right after leaves the call.
        params, tool, ends = record.call.params, record.call.tool, record.expires_at
        assert params is not None, "a recovered record has its bodies"
        waiter = run.listener.awaits(record, rest)

        async def call() -> Response:
            answers = await waiter.answers()
            left = max(ends - self._clock.now(), timedelta())
            if not route.ticket.is_granted:
                await route.ticket.wait(min(route.ticket.max_wait, left))
            next_round = NextRound(rest.state, answers, waiter.leave)
            asked = UpstreamCall(
                TOOLS_CALL,
                Params(params),
                tool,
                run.listener.principal,
                as_task=True,
                within=left,
                resumes=next_round,
            )
            return await route.upstream.call(asked, run.listener)

        limited = wholly_bounded(call, record, self._clock.now())
        return self.see_through(run, limited, route.upstream.outcome, route.ticket)

    async def stand(
        self,
        run: TaskRun,
        record: TaskRecord,
        call_checkpoint: CallCheckpoint,
        route: CallRoute,
        anew: Callable[[], tuple[CallRoute, Callable[[], None]]],
    ) -> None:
        """Resume a call of an earlier process at its server: reopen its stream, or poll its task.

        It does not wait for the permit, because the server works on the call already. If the server
        no longer has the call and it may be sent again, it is sent over a new route. `anew` makes
        that route, and returns it with the function that closes it.
        """
        assert record.call.params is not None, "a recovered record has its bodies"
        run.may_be_made_again = record.is_dispatchable
        # Whether no other task uses the upstream session; asked when the call is over.
        is_last = partial(self._takeovers.is_last_in, record, call_checkpoint.resume_point.session)
        asked, now = run.listener.stands(record, call_checkpoint), self._clock.now()
        resumed = UpstreamCall(
            TOOLS_CALL,
            Params(record.call.params),
            record.call.tool,
            as_task=True,
            within=_time_left(record, now),
            resumes=Resumed(call_checkpoint.resume_point, asked, is_last, record.owner.context),
        )
        call = partial(route.upstream.call, resumed, run.listener)
        try:
            await self.see_through(run, wholly_bounded(call, record, now), route.upstream.outcome, route.ticket)
        except failures.Gone:
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
            event = await _event_of(run, call, outcome, ticket)
        finally:
            self._count(run.owner.mount, -1)
        if event is None and run.is_left:
            # Another replica resumes it after its lease has lapsed, or the next process that starts
            # here.
            return
        # Before the final state is written: no notification of a task follows it.
        run.listener.close()
        is_ours = event is not None and await self._completions.settle(run.owner, run.id, event, run=run)
        # The task ended by another hand: by a host, or by a process that took it over.
        if self._leasing is not None and not is_ours and await self._takeovers.was_taken(run):
            self._leasing.lose(run)

    def _count(self, mount: str, change: int) -> None:
        self._counts[mount] += change
        self._event_sink.emit(CallsRunning(mount, self._counts[mount]))

    # --- dispatch -----------------------------------------------------------------------------------------------------

    async def _dispatch(self, run: TaskRun, record: TaskRecord, ticket: Permit) -> TaskRecord | CallFaulted:
        """Wait for the permit and store the mark; return the marked record if the call may be sent.

        Otherwise returns the failure that ends the task unsent. Raises ScopeCancelled if nothing is
        to be sent or written: the task was ended, or another process has it or will send it. The
        permit stays with the caller in any case.
        """
        # A call that is sent again may have run before.
        unsent = partial(call_ended, dispatched=record.dispatched)
        try:
            if not ticket.is_granted:
                await self._wait(run, record, ticket)
            if run.is_shut_down:
                if self._leasing is not None and not record.dispatched:
                    # Another replica sends it, after its lease has lapsed.
                    raise ScopeCancelled
                return unsent(FaultReason.SHUTDOWN, SHUT_DOWN_UNSENT)
            since, marked = self._clock.elapsed(), None
            # Usually the record is unchanged since it was created, and need not be loaded. A
            # position in the queue may have been written, or another process have changed it.
            if run.revision == record.revision:
                marked = await self._mark(run, record)
            if marked is None:
                marked = await self._load_and_mark(run)
        except QueueFull as full:
            return unsent(FaultReason.QUEUE, str(full), retry_after=full.retry_after)
        except StoreUnavailable:
            return unsent(FaultReason.INTERNAL, NO_STORE)
        if self._leasing is not None and self._leasing.overslept(since):
            # The process was suspended for longer than a lease. Another may have read the mark and
            # declared the call lost, so it must not be sent.
            raise ScopeCancelled
        return marked

    async def _mark(self, run: TaskRun, record: TaskRecord) -> TaskRecord | None:
        """Mark a record as dispatched; return None if it has changed in the store."""
        event = Dispatched()
        marked = advance(record, event, self._clock.now())
        # Before the write, because the change notification may arrive first.
        run.revision = marked.revision
        if not await self._store.swap(marked, expected=record.revision):
            return None
        if self._leasing is not None:
            self._leasing.wrote(marked)
        report(self._event_sink, record, event, marked)
        return marked

    async def _load_and_mark(self, run: TaskRun) -> TaskRecord:
        """Load the record and mark it as dispatched. Raises ScopeCancelled if that is not possible."""

        def dispatched_event(found: TaskRecord) -> Dispatched:
            run.revision = found.revision + 1
            return Dispatched()

        # The record has changed since: its position was written, a host answered a question of an
        # earlier run, or it was ended. Only the last one prevents the mark.
        marked = await self._changes.make(run.owner, run.id, dispatched_event)
        if marked is None:
            raise ScopeCancelled
        return marked

    async def _wait(self, run: TaskRun, record: TaskRecord, ticket: Permit) -> None:
        """Wait for the permit. Returns early at a shutdown; raises ScopeCancelled at another stop."""
        left = _time_left(record, self._clock.now())
        try:
            with run.scope:
                if run.stopped:
                    raise ScopeCancelled
                if record.status_message != queue_status(ticket.ahead):
                    # The message is of an earlier process, or the call moved up while the record
                    # was created.
                    await self._tell(run, ticket.ahead)
                await ticket.wait(min(ticket.max_wait, left), partial(self._tell, run))
        except ScopeCancelled:
            if not run.is_shut_down:
                raise

    async def _tell(self, run: TaskRun, ahead: int) -> None:
        """Write the number of calls ahead into the record. If the store fails, a later position is
        written.

        Raises ScopeCancelled if the task was ended. `RecordWatcher` may not notice that end: it can
        have the revision that was announced here, and then counts as this process's own.
        """

        def place(record: TaskRecord) -> Progressed:
            run.revision = record.revision + 1
            return Progressed(message=queue_status(ahead))

        with suppress(StoreUnavailable):
            if await self._changes.make(run.owner, run.id, place) is None:
                raise ScopeCancelled


# --- await ------------------------------------------------------------------------------------------------------------


async def _event_of(
    run: TaskRun, call: Call, outcome: Outcome, ticket: Permit | None
) -> CallSucceeded | CallFaulted | None:
    """Await a call, and return the event that ends its task.

    `call` makes the call, and `outcome` maps its response. If the run is stopped, the call is
    cancelled. Then the result depends on why. It is None if the task was ended elsewhere, or another
    process has it or continues the call. It is a failure if the gateway shuts down and no process
    continues the call.

    `ticket` is the permit of the call; None if the caller of this function has none to release. It
    is released here on every path, once the call is over: the time to store the event does not
    occupy the server.

    Raises Gone if a resumed call no longer exists at its server and may be sent again
    (`run.may_be_made_again`). Every other Exception becomes a failure.
    """
    try:
        # A stop before the scope was entered has cancelled nothing, so it is checked here. Then the
        # call is not made.
        with run.scope:
            if not run.stopped:
                return outcome(await call())
    except failures.Gone as gone:
        if run.may_be_made_again:
            raise
        return call_ended(FaultReason.CALL_LOST, str(gone), dispatched=True)
    except UpstreamFailed as failure:
        return call_failed(failure, ran=run.ran)
    except QueueFull as full:
        # Two kinds of calls wait for their permit here. One was joined with equal calls before it
        # became a task. The other was taken over between two rounds. `ran`: an earlier process may
        # have sent it.
        return call_ended(FaultReason.QUEUE, str(full), dispatched=run.ran, retry_after=full.retry_after)
    except ScopeCancelled:
        # The run was stopped: why is decided below.
        pass
    except Exception as error:
        # Whatever the error is, the task must not stay unfinished.
        log.error("Unexpected error in a call", exc_info=error)
        return call_ended(FaultReason.INTERNAL, UNFORESEEN, dispatched=True)
    finally:
        if ticket is not None:
            ticket.release()
    if run.is_left or not run.is_shut_down:
        return None
    # The record says that the call was sent, even if the stop came right before that.
    return call_ended(FaultReason.SHUTDOWN, CUT_OFF, dispatched=True)


# --- time limits ------------------------------------------------------------------------------------------------------


def wholly_bounded(call: Call, record: TaskRecord, now: datetime) -> Call:
    """Limit a call by deadline and lifetime, both from now on.

    For a call that was sent before it had a task, or by an earlier process.
    """
    left = _time_left(record, now)
    living: Call = partial(_within, call, left, partial(failures.too_late, dispatched=True))
    if record.deadline is None or record.deadline >= left:
        return living
    return partial(_within, living, record.deadline, _past_deadline)


def _time_left(record: TaskRecord, now: datetime) -> timedelta:
    return max(record.expires_at - now, timedelta())


async def _within(call: Call, span: timedelta, late: Callable[[], UpstreamFailed]) -> Response:
    try:
        async with asyncio.timeout(span.total_seconds()):
            return await call()
    except TimeoutError:
        raise late() from None


def _past_deadline() -> UpstreamFailed:
    return UpstreamFailed(UpstreamReason.TIMEOUT, DEADLINE, dispatched=True)
