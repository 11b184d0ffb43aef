"""The run of a task: its call in this process, from dispatch to the stored end: `TaskRun`.

`Runner` decides which calls run. It makes a `TaskRun` for each, and starts one of four methods as an
asyncio task:

- `send`: for a call that is to be sent;
- `finish`: for a call that was already sent by this process;
- `send_next_round`: for a call taken over that waits between two rounds;
- `resume`: for a call taken over that its server works on.

A run has three steps. *Dispatch* waits for the permit, and marks the record as dispatched. The mark
says that the call may have been sent. It is stored before the first byte, so that no crash can lead
to a second sending. The new record has the mark of a call that need not wait, and of one that was
sent before it became a task. A call that may have run is sent again only if its process was lost and
the operator allows it. A call that did not reach its server loses the mark, and is tried again.

*Await* maps what comes of the call to the event that ends the task. *Settle* writes that event
(`Transitions.settle`). Each run ends with a stored final state, or writes none because another
process has the task or resumes the call.

A call may take until its task is as old as `tasks.ttl.max` allows, and no longer than its own deadline
if it has one. The deadline counts from the moment that the call is sent or resumed. At either limit the call is
cancelled and fails with UpstreamFailed. The limit on a server's silence belongs to `upstream`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from logging import getLogger
from typing import Any, Final

from taskgate.admission.concurrency import Permit, queue_status
from taskgate.clock import Clock
from taskgate.domain.events import CallFaulted, CallSucceeded, Dispatched, DispatchWithdrawn, Progressed, TakenOver
from taskgate.domain.record import FaultReason, Lease, OwnerKey, TaskId, TaskRecord
from taskgate.errors import QueueFull, StoreUnavailable, UpstreamFailed, UpstreamReason
from taskgate.lifecycle.checkpoints import CallCheckpoint, RoundCheckpoint
from taskgate.lifecycle.recovery import Takeovers
from taskgate.lifecycle.task_listener import TaskListener
from taskgate.lifecycle.transitions import Hold, Transitions
from taskgate.protocol.faults import CUT_OFF, call_ended, call_failed
from taskgate.protocol.messages import Params, Response
from taskgate.protocol.vocabulary import TOOLS_CALL
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled
from taskgate.telemetry.events import EventSink, TaskDispatched
from taskgate.upstream import failures
from taskgate.upstream.base import UpstreamSession
from taskgate.upstream.calls import NextRound, Principal, Resumed, UpstreamCall
from taskgate.upstream.pauses import share

SHUT_DOWN_UNSENT: Final = "The gateway shut down before the call was sent"
NO_STORE: Final = "The call was not sent: the task store was not available"
UNFORESEEN: Final = "The gateway failed while the call was running; it may or may not have completed"
DEADLINE: Final = "The call took longer than its deadline"

WAIT_FIRST: Final = 0.5
WAIT_MOST: Final = 30.0
"""Seconds between attempts to reach a server, from the first to the longest pause; a share of each is taken."""
LAST_ATTEMPT: Final = 5.0
"""Seconds before the end of a wait for the last attempt, where the server asks for a longer pause."""
_DOUBLINGS: Final = 8

Call = Callable[[], Awaitable[Response]]
"""Makes a call, and returns the server's response. Raises UpstreamFailed."""

Outcome = Callable[[Response], CallSucceeded | CallFaulted]
"""Maps a response to the event that ends a task. Raises UpstreamFailed if it is no valid response."""

log = getLogger("taskgate.runner")


@dataclass(slots=True)
class CallRoute:
    """The route of a call to its server: the upstream session, the principal, the permit.

    `principal_source` is the caller of a new task. It is None for a task that was taken over, whose
    session knows the principal. `ticket` may not be granted yet.
    """

    upstream: UpstreamSession
    principal_source: Principal | None
    ticket: Permit


@dataclass(slots=True, kw_only=True)
class RunServices:
    """The objects that all runs share. `hold` is given if replicas share the store.

    `counts` are the calls that run now, by mount.
    """

    transitions: Transitions
    takeovers: Takeovers
    event_sink: EventSink
    clock: Clock
    hold: Hold | None = None
    counts: Counter[str] = field(default_factory=Counter)


class TaskRun(CancelScope):
    """One call of a task in this process, and the block in which the call is awaited.

    It is stopped early in three ways:

    - `stop`: the task was ended elsewhere, for example by a host's cancellation;
    - `shut_down`: the gateway ends;
    - `lose`: another process has taken the task over.

    Its attributes:

    - `revision`: the revision of the run's own last write: creation, queue position, dispatch, end.
      It is set before the write, and `Runner` ignores the notification of it.
    - `_ran`: whether an earlier process may have sent the call.
    - `_stopped`: whether the run was stopped in any way. It is checked before the block is entered.
    - `is_shut_down`: whether it was stopped because the gateway ends.
    - `is_left`: whether another process will resume the call. It goes on at its server, and this
      process writes no final state. `shut_down` sets it.
    - `is_lost`: whether another process has taken the task over; this one writes nothing more.
    - `task`: the asyncio task of the run, None until `Runner` has started it.
    - `begun`: the start, in seconds of the monotonic clock; set if replicas share the store.
    - `_may_be_sent_again`: whether it is sent again if its server no longer has it.
    """

    __slots__ = (
        "_may_be_sent_again",
        "_ran",
        "_services",
        "_stopped",
        "begun",
        "created_at",
        "id",
        "is_left",
        "is_lost",
        "is_shut_down",
        "listener",
        "owner",
        "revision",
        "task",
    )

    def __init__(self, record: TaskRecord, listener: TaskListener, services: RunServices, *, ran: bool = False) -> None:
        super().__init__()
        self.id: TaskId = record.id
        self.owner: OwnerKey = record.owner
        self.created_at = record.created_at
        self.listener = listener
        self.revision = record.revision
        self.is_shut_down = False
        self.is_left = False
        self.is_lost = False
        self.begun = 0.0
        self.task: asyncio.Task[None] | None = None
        self._services = services
        self._ran = ran
        self._stopped = False
        self._may_be_sent_again = False

    def stop(self) -> None:
        """Cancel the call, now or before it is sent. Writes to the store that run are completed."""
        self._stopped = True
        self.cancel()

    async def give_up(self) -> None:
        """Do as `stop`, and wait a moment until the call is over."""
        self._stopped = True
        await self.end()

    def shut_down(self) -> None:
        """Stop the run because the gateway ends.

        If another process can resume the call, it is not cancelled at its server.
        """
        self.is_left = self.listener.leave()
        self.is_shut_down = True
        self.stop()

    def lose(self) -> None:
        """Stop the run because another process has the task: nothing more is written."""
        self.listener.leave()
        self.is_lost = True
        self.stop()

    # --- the four runs ------------------------------------------------------------------------------------------------

    async def send(self, record: TaskRecord, route: CallRoute) -> None:
        """Wait for the permit, dispatch a call, send it, and store its result.

        A call that did not reach its server is sent again after a pause, as long as its lifetime and
        its deadline allow. It has no permit meanwhile.
        """
        services, lease, ticket = self._services, record.lease, route.ticket
        ends, deadline = record.created_at + record.ttl, record.deadline
        try:
            for turn in count():
                now, hold = services.clock.now(), services.hold
                marked = record
                # A record that was marked when it was created needs no step: its run starts in the step in which its
                # insert returns. If that took long, and replicas share the store, another may have the task by now.
                if (
                    not record.dispatched
                    or self._ran
                    or self.is_shut_down
                    or not ticket.is_granted
                    or (hold is not None and _was_late(record, now))
                ):
                    dispatched = await self._marked(record, ticket)
                    if dispatched is None:
                        return
                    marked, now = dispatched, services.clock.now()
                if not turn:
                    ends = ends if deadline is None else min(ends, now + deadline)
                    services.event_sink.emit(TaskDispatched(marked, now - marked.created_at))
                left = _time_left(record, now)
                # As the caller of the task, not the last user of the session: their token may be valid for
                # longer.
                principal, upstream, params = route.principal_source, route.upstream, record.call.params
                assert params is not None, "a new or recovered record has its bodies"
                asked = UpstreamCall(TOOLS_CALL, Params(params), record.call.tool, principal, as_task=True, within=left)
                call: Call = partial(upstream.call, asked, self.listener)
                if record.deadline is not None and record.deadline < left:
                    call = partial(_within, call, record.deadline, _past_deadline)
                # A running call holds little memory: its record is in the store.
                del record, marked, params
                try:
                    await self.finish(call, upstream.outcome, ticket, waits=not self._ran)
                    return
                except UpstreamFailed as failure:
                    missed = failure.copy()
                del asked, call
                unsent = await self._after(missed, lease, turn, ends)
                if unsent is None:
                    return
                record, ticket = unsent, ticket.renewed()  # noqa: F841 - for the next turn
                del unsent
        finally:
            if not ticket.is_released:
                ticket.release()

    async def _marked(self, record: TaskRecord, ticket: Permit) -> TaskRecord | None:
        """Dispatch a call, and return the record with the mark; None if nothing is to be sent."""
        try:
            dispatched = await self._dispatch(record, ticket)
        except ScopeCancelled:
            # The task was ended, or another process has it: nothing is sent or written.
            return None
        if isinstance(dispatched, CallFaulted):
            ticket.release()
            await self._services.transitions.settle(self.owner, self.id, dispatched, run=self)
            return None
        return dispatched

    async def _after(self, missed: UpstreamFailed, lease: Lease | None, turn: int, ends: datetime) -> TaskRecord | None:
        """Wait for a server that was not reached, and return the record for the next attempt.

        The mark is withdrawn, so that a crash does not leave the outcome unknown. `ends` is the
        time at which the wait ends. Then the task ends unsent. None if it has ended, or another
        process has it.
        """
        services = self._services
        transitions, pause = services.transitions, _pause(self.id, turn, missed.retry_after)
        waits = Progressed(message=f"Waits for the server: {missed}")
        left = (ends - services.clock.now()).total_seconds()
        if missed.retry_after is not None and pause >= left > LAST_ATTEMPT:
            # The server may serve before the pause that it named is over.
            pause = left - LAST_ATTEMPT
        while services.clock.now() + timedelta(seconds=pause) < ends:
            try:
                for event in (DispatchWithdrawn(), waits):
                    if await transitions.make(self.owner, self.id, partial(_always, event), run=self) is None:
                        await self._end_unsent(missed)
                        return None
                if not await self._slept(pause):
                    return None
                return await services.takeovers.read(self.owner, self.id, lease)
            except StoreUnavailable:
                # Nothing ran, so the task waits for the store too.
                if not await self._slept(pause):
                    return None
        await self._end_unsent(missed)
        return None

    async def _slept(self, pause: float) -> bool:
        """Wait, and return whether the run goes on: it was not stopped, or the gateway ends."""
        with suppress(ScopeCancelled), self:
            if not self._stopped:
                await asyncio.sleep(pause)
        return not self._stopped or self.is_shut_down

    async def _end_unsent(self, missed: UpstreamFailed) -> None:
        """End a task whose server was not reached in its time. Does nothing if it has ended."""
        self.listener.close()
        await self._services.transitions.settle(self.owner, self.id, self._failure(missed), run=self)

    def send_next_round(
        self, record: TaskRecord, checkpoint: RoundCheckpoint, route: CallRoute
    ) -> Coroutine[Any, Any, None]:
        """Resume a call of an earlier process that waits between two rounds.

        It waits for the host's answers, and then sends the next round. The server gets no message
        before that, so the wait for the permit begins after the answers.
        """
        # Not awaited: the listener has the round at once, so that a shutdown right after leaves the call.
        params, tool, ends = record.call.params, record.call.tool, record.expires_at
        assert params is not None, "a recovered record has its bodies"
        clock, waiter = self._services.clock, self.listener.wait_for_round(record, checkpoint)

        async def call() -> Response:
            answers = await waiter.answers()
            left = max(ends - clock.now(), timedelta())
            if not route.ticket.is_granted:
                await route.ticket.wait(min(route.ticket.max_wait, left))
            next_round = NextRound(checkpoint.state, answers, waiter.leave)
            asked = UpstreamCall(
                TOOLS_CALL,
                Params(params),
                tool,
                self.listener.principal,
                as_task=True,
                within=left,
                resumes=next_round,
            )
            return await route.upstream.call(asked, self.listener)

        return self.finish(wholly_bounded(call, record, clock.now()), route.upstream.outcome, route.ticket)

    async def resume(
        self,
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
        self._may_be_sent_again = record.is_dispatchable
        # Whether no other task uses the upstream session; asked when the call is over.
        is_last = partial(self._services.takeovers.is_last_in, record, call_checkpoint.resume_point.session)
        asked, now = self.listener.resume_at(record, call_checkpoint), self._services.clock.now()
        resumed = UpstreamCall(
            TOOLS_CALL,
            Params(record.call.params),
            record.call.tool,
            as_task=True,
            within=_time_left(record, now),
            resumes=Resumed(call_checkpoint.resume_point, asked, is_last, record.owner.context),
        )
        call = partial(route.upstream.call, resumed, self.listener)
        try:
            await self.finish(wholly_bounded(call, record, now), route.upstream.outcome, route.ticket)
        except failures.Gone:
            self._may_be_sent_again = False
            self.listener.drop_checkpoint()
            other, close = anew()
            try:
                await self.send(record, other)
            finally:
                close()

    async def finish(self, call: Call, outcome: Outcome, ticket: Permit | None = None, *, waits: bool = False) -> None:
        """Await a call that counts as sent, and store its final state.

        `call` makes the call, and `outcome` maps its response to the event that ends the task. If
        the run is stopped, the call is cancelled. No state is stored if another process continues
        the call. Raises Gone if a resumed call no longer exists at its server and may be sent again.
        With `waits`, the failure of a call that did not reach its server is raised. Every other
        Exception becomes a failure of the task.

        `ticket` is the permit of the call; None if the caller of this function has none to release.
        It is released here on every path, once the call is over: the time to store the event does
        not occupy the server.
        """
        services, mount = self._services, self.owner.mount
        services.counts[mount] += 1
        event: CallSucceeded | CallFaulted | None
        try:
            # A stop before the block was entered has cancelled nothing, so it is checked here. Then
            # the call is not made.
            with self:
                if self._stopped:
                    raise ScopeCancelled
                event = outcome(await call())
        except ScopeCancelled:
            event = self._stop_event()
        except Exception as error:
            if self._may_be_sent_again and isinstance(error, failures.Gone):
                raise
            if waits and isinstance(error, UpstreamFailed) and failures.may_be_awaited(error):
                raise
            event = self._failure(error)
        finally:
            if ticket is not None:
                ticket.release()
            services.counts[mount] -= 1
        if event is None and self.is_left:
            # Another replica resumes it after its lease has lapsed, or the next process that starts
            # here.
            return
        # Before the final state is written: no notification of a task follows it.
        self.listener.close()
        is_ours = event is not None and await services.transitions.settle(self.owner, self.id, event, run=self)
        if services.hold is None or is_ours:
            return
        # The task ended by another hand: by a host, or by a process that took it over.
        if await services.takeovers.was_taken(self.owner, self.id, self.revision):
            services.hold.lose(self.id)

    def _stop_event(self) -> CallFaulted | None:
        """Return the event that ends the task of a stopped run.

        None if the task was ended elsewhere, or another process has it or continues the call. A
        failure if the gateway shuts down and no process continues the call.
        """
        if self.is_left or not self.is_shut_down:
            return None
        # The record says that the call was sent, even if the stop came right before that.
        return call_ended(FaultReason.SHUTDOWN, CUT_OFF, dispatched=True)

    def _failure(self, error: Exception) -> CallFaulted:
        """Return the event that ends the task of a call that raised an exception."""
        match error:
            case failures.Gone():
                return call_ended(FaultReason.CALL_LOST, str(error), dispatched=True)
            case UpstreamFailed():
                return call_failed(error, ran=self._ran)
            case QueueFull():
                # Two kinds of calls wait for their permit while they count as sent. One was joined with
                # equal calls before it became a task. The other was taken over between two rounds.
                # `_ran`: an earlier process may have sent it.
                return call_ended(FaultReason.QUEUE, str(error), dispatched=self._ran, retry_after=error.retry_after)
        # Whatever the error is, the task must not stay unfinished.
        log.error("Unexpected error in a call", exc_info=error)
        return call_ended(FaultReason.INTERNAL, UNFORESEEN, dispatched=True)

    # --- dispatch -----------------------------------------------------------------------------------------------------

    async def _dispatch(self, record: TaskRecord, ticket: Permit) -> TaskRecord | CallFaulted:
        """Wait for the permit and store the mark; return the marked record if the call may be sent.

        Otherwise returns the failure that ends the task unsent. Raises ScopeCancelled if nothing is
        to be sent or written: the task was ended, or another process has it or will send it. The
        permit stays with the caller in any case.
        """
        # A call that is sent again may have run before.
        unsent = partial(call_ended, dispatched=self._ran)
        hold, clock, transitions = self._services.hold, self._services.clock, self._services.transitions
        try:
            if not ticket.is_granted:
                await self._wait(record, ticket)
            if self.is_shut_down:
                if hold is not None and not (record.dispatched and self._ran):
                    # Another replica sends it, after its lease has lapsed.
                    if record.dispatched:
                        await transitions.make(self.owner, self.id, lambda _: DispatchWithdrawn(), run=self)
                    raise ScopeCancelled
                return unsent(FaultReason.SHUTDOWN, SHUT_DOWN_UNSENT)
            since, marked = clock.elapsed(), None
            # A record that has the mark is written all the same: that fails if the task was ended or taken over.
            event = TakenOver() if record.dispatched and not self._ran else Dispatched()
            # Usually the record is unchanged since it was created, and need not be loaded.
            if self.revision == record.revision:
                marked = await transitions.apply(record, event, clock.now(), run=self)
            if marked is None:
                # The record has changed since: its position was written, a host answered a question of
                # an earlier run, or it was ended. Only the last one prevents the mark.
                marked = await transitions.make(self.owner, self.id, lambda _: event, run=self)
            if marked is None:
                raise ScopeCancelled
        except QueueFull as full:
            return unsent(FaultReason.QUEUE, str(full), retry_after=full.retry_after)
        except StoreUnavailable:
            return unsent(FaultReason.INTERNAL, NO_STORE)
        if hold is not None and hold.may_have_lapsed(since):
            # The process was suspended for longer than a lease. Another may have read the mark and
            # declared the call lost, so it must not be sent.
            raise ScopeCancelled
        return marked

    async def _wait(self, record: TaskRecord, ticket: Permit) -> None:
        """Wait for the permit. Returns early at a shutdown; raises ScopeCancelled at another stop."""
        left = _time_left(record, self._services.clock.now())
        try:
            with self:
                if self._stopped:
                    raise ScopeCancelled
                if record.status_message != queue_status(ticket.ahead):
                    # The message is of an earlier process, or the call moved up while the record
                    # was created.
                    await self._write_position(ticket.ahead)
                await ticket.wait(min(ticket.max_wait, left), self._write_position)
        except ScopeCancelled:
            if not self.is_shut_down:
                raise

    async def _write_position(self, ahead: int) -> None:
        """Write the number of calls ahead into the record. If the store fails, a later position is
        written.

        Raises ScopeCancelled if the task was ended. `Runner` may not notice that end: it can have
        the revision that was announced here, and then counts as this process's own.
        """
        event = Progressed(message=queue_status(ahead))
        with suppress(StoreUnavailable):
            if await self._services.transitions.make(self.owner, self.id, lambda _: event, run=self) is None:
                raise ScopeCancelled


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


def _always(event: DispatchWithdrawn | Progressed, _: TaskRecord) -> DispatchWithdrawn | Progressed:
    return event


def _pause(task: TaskId, turn: int, wanted: timedelta | None) -> float:
    """Return the seconds before another attempt to reach a server, which may have named a pause."""
    longest = min(WAIT_FIRST * 2.0**turn, WAIT_MOST) if turn < _DOUBLINGS else WAIT_MOST
    part = share(task, turn)
    # The circuit names one moment to all tasks: they come after it, one after the other.
    return max(longest * part, 0.0 if wanted is None else wanted.total_seconds() * (1 + part / 4))


def _was_late(record: TaskRecord, now: datetime) -> bool:
    """Return whether at least half of the lease of a new record is over."""
    return record.lease is None or record.lease.until - now <= now - record.created_at


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
