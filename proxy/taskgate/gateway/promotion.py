"""The promotion of calls to tasks for hosts that take either reply: `Promotion`.

A call can become a task at three moments, and `Calls` calls a method at each, in this order:

- `create_before_send`: if the tool runs only as a task, or the call has an idempotency key;
- `wait_for_permit`: if the call gets no permit for its server in time;
- `promote_after_grace`: if the call was sent, and has not ended within its grace, or asks a question.

A call that may join an equal one skips the second: it waits for its permit within the joined call.
In its place `find_equal_task` looks for the task that the equal call has become.

The grace is the time that the operator's rules give a call to be answered without a task. The wait
for a permit uses up part of it. That wait ends before a longer grace: after BRIEF_WAIT, or after the
longest wait that the mount allows (`max_wait`).

The host did not ask for a task. So a task that cannot be created is mostly no error, and the call
continues as a plain one. `TaskService` creates the tasks.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from logging import getLogger
from typing import TypeVar

from taskgate.admission.coalescing import KEY_REUSED, CoalesceKey, RequestCoalescer
from taskgate.admission.concurrency import BRIEF_WAIT, Permit
from taskgate.admission.connected_hosts import ConnectedHosts, slot_key
from taskgate.clock import Clock
from taskgate.domain.policy import PromotionMode
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import GatewayError, InvalidParams, QueueFull, TaskSupportMismatch
from taskgate.gateway.eras import Call
from taskgate.gateway.listeners import HostListener, InflightCall, ResponseWaiter
from taskgate.lifecycle.task_service import EarlierHostConnected, TaskService
from taskgate.protocol.host_requests import CallTool

log = getLogger("taskgate.stateless")

Made = TypeVar("Made")


class Promotion:
    """The promotion of calls to tasks.

    Each method counts a call that it makes a task, by `Calls.count`. `create_before_send` counts the
    calls that it refuses, and `promote_after_grace` those that stay plain. A call that may become no
    task is counted before it is sent (`Calls`), one without a permit when that is refused.
    """

    def __init__(
        self,
        *,
        tasks: TaskService,
        coalescer: RequestCoalescer,
        waiter: ResponseWaiter,
        count: Callable[[Call, str], None],
        hosts: ConnectedHosts,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._coalescer = coalescer
        self._waiter = waiter
        self._count = count
        self._hosts = hosts
        self._clock = clock

    async def create_before_send(self, call: Call) -> TaskRecord | None:
        """Create the task of a call before it is sent; None if it is to be sent without one.

        Raises what TaskService.create raises, with two exceptions: a tool that cannot be a task and
        invalid parameters yield None. An idempotency key of another call still raises InvalidParams.
        For a host without tasks every other refusal yields None: its call blocks.
        """
        request = call.request
        if not call.may_become_task or not isinstance(request, CallTool):
            return None
        if call.mode is PromotionMode.AUTO and (request.idempotency_key is None or call.gets_handle):
            # Such a call becomes a task only if it takes long.
            return None
        if call.gets_handle and not call.outlives_host:
            # It ends with the connection of its host, so there is no use for its record before that.
            return None
        try:
            # While the session with the server opens, the host may still disconnect without a task.
            tools = call.session.upstream.tools()
            await self._waiter.wait_for_session(call.listener, tools)
            if call.gets_handle:
                create = partial(self._tasks.create, call.caller, call.session)
                record, _ = await self._store(call, request, create)
            else:
                record, _ = await self._tasks.create(call.caller, call.session, request)
        except (TaskSupportMismatch, InvalidParams) as refusal:
            if str(refusal) != KEY_REUSED:
                # The host did not ask for a task, so this is no refusal: the server gives its own
                # answer.
                return None
            self._count(call, "rejected")
            raise
        except GatewayError as refusal:
            if call.gets_handle:
                log.debug("a call is not stored before it is sent", extra={"reason": refusal.reason})
                return None
            self._count(call, "rejected")
            raise
        return self._on_created(call, request, record)

    async def find_equal_task(self, call: Call) -> TaskRecord | None:
        """Return the task that an equal call has become, which then answers this call too.

        Only for calls without an idempotency key: others find their task by the key. The caller
        counts the call.
        """
        if call.coalesce_key is None or not call.may_become_task:
            return None
        return await self._coalescer.find_task(call.coalesce_key._replace(accepts_task=True))

    async def wait_for_permit(self, call: Call, permit: Permit) -> TaskRecord | None:
        """Wait for the permit of a call, and shorten its grace by the time of the wait.

        The call becomes a task if there is no permit within the shortest of its grace, BRIEF_WAIT and
        the permit's `max_wait`. Then this returns the task, which owns the permit. If no task can be
        created, the call waits on, at most for the rest of BRIEF_WAIT, and can become none later.
        Raises QueueFull, and what `ResponseWaiter.wait` raises; the permit is released then.
        """
        begun = self._clock.elapsed()
        request, exchange = call.request, call.exchange
        try:
            # The host gets no progress before the request is sent: progress must only grow.
            with HostListener(exchange, None, self._waiter.keepalives, call.adapter.dialect, later=call.listener):
                if call.may_become_task and isinstance(request, CallTool):
                    within = min(call.grace, BRIEF_WAIT, permit.max_wait)
                    if not await self._waiter.wait(exchange, permit.wait_granted(within)):
                        record = await self._create_while_queued(call, request, permit)
                        if record is not None:
                            return record
                        call.may_become_task = False
                waited = self._clock.elapsed() - begun
                await self._waiter.wait(exchange, self.wait_briefly(call, permit, waited))
        except BaseException:
            permit.release()
            raise
        call.grace = max(call.grace - timedelta(seconds=self._clock.elapsed() - begun), timedelta())
        return None

    async def wait_briefly(self, call: Call, permit: Permit, waited: float = 0.0) -> None:
        """Wait until the permit is granted, at most the brief time that a host waits for an answer.

        `waited` seconds of that time have passed. Raises QueueFull, counted; the permit is released
        then.
        """
        try:
            await permit.wait_briefly(waited)
        except QueueFull:
            self._count(call, "rejected")
            raise

    async def wait_shared(self, call: Call, permit: Permit) -> None:
        """Wait until the permit of a call is granted that equal calls may join. Raises QueueFull, counted.

        One that is handed off meanwhile may wait as long as a task may.
        """
        if not call.gets_handle:
            await self.wait_briefly(call, permit)
            return
        try:
            await permit.wait(permit.max_wait)
        except QueueFull:
            self._count(call, "rejected")
            raise

    async def promote_after_grace(self, call: Call, inflight: InflightCall) -> TaskRecord | None:
        """Return the task of a sent call that is not over within its grace.

        A question of the server ends the grace early, because a task can store it. Returns None if
        the call is over, may not become a task, or no task could be created.

        Counts a call that may become a task: as `task` or `handoff`, as `inline` if it is over within its
        grace, else as `direct`. One that got no permit is counted already.
        """
        request = call.request
        if not call.may_become_task or not isinstance(request, CallTool):
            return None
        record, is_inline = None, False
        try:
            # A lost connection ends the grace of a call that outlives it, and not the call.
            exchange = call.exchange if call.ends_with_host else None
            await self._waiter.wait(exchange, inflight.wait_for_change(call.grace.total_seconds()))
            is_inline = inflight.is_over and not inflight.is_closed
            # A host without tasks answers questions of the call itself: that is held for them.
            if not inflight.is_over and not (call.gets_handle and inflight.questions and not inflight.is_hurried):
                call.is_promoting = True
                record = await self._promote(call, request, inflight)
        finally:
            call.is_promoting = False
            if record is not None:
                self._count(call, "handoff" if call.gets_handle else "task")
            elif not inflight.was_refused:
                self._count(call, "inline" if is_inline else "direct")
        return record

    async def keep(self, call: Call, inflight: InflightCall) -> TaskRecord | None:
        """Make a task of a sent call whose answer did not reach its host, so that the same call made
        again finds it. None if there can be no task.
        """
        assert isinstance(call.request, CallTool), "a call that is handed off"
        return await self._promote(call, call.request, inflight)

    async def _create_while_queued(self, call: Call, request: CallTool, permit: Permit) -> TaskRecord | None:
        """Create the task of a call that waits for a permit; None if that fails.

        The task takes over the permit with its place in the queue.
        """
        create = partial(self._tasks.create, call.caller, call.session, ticket=permit)
        try:
            record, _ = await (self._store(call, request, create) if call.gets_handle else create(request))
        except GatewayError as refusal:
            log.debug("a queued call is not promoted to a task", extra={"reason": refusal.reason})
            return None
        return self._on_created(call, request, record)

    async def _promote(self, call: Call, request: CallTool, inflight: InflightCall) -> TaskRecord | None:
        """Create the task of a sent call; None if that fails."""
        # From here on the server's questions belong to the task (M-MRTR-8).
        passed, inflight.passes_rounds = inflight.passes_rounds, False
        try:
            promote = partial(self._tasks.promote, call.caller, call.session, underway=inflight)
            record = await self._store(call, request, promote)
        except GatewayError as refusal:
            # The call continues as a plain one, whose questions go to the host (R-RES-6).
            log.debug("a call is not promoted to a task", extra={"reason": refusal.reason})
            inflight.passes_rounds = passed
            return None
        if inflight.is_adopted and not call.gets_handle:
            self._cancel_on_disconnect(call, record)
        # Otherwise an equal call, which shares the sent request, became the task first.
        return record

    async def _store(self, call: Call, request: CallTool, make: Callable[[CallTool], Awaitable[Made]]) -> Made:
        """Make the task of a call; one that gets a handle takes the next slot while an earlier call has a host."""
        while True:
            # The request ends with the answer, and with it what its progress token is for.
            stored = replace(request, progress_token=None) if call.gets_handle else request
            try:
                return await make(stored)
            except EarlierHostConnected:
                self.take_next_slot(call, call.slot + 1)

    def take_next_slot(self, call: Call, first: int) -> None:
        """Give a call with a key of the gateway's own the first free slot from `first` on."""
        request, owner = call.request, call.session.owner
        assert isinstance(request, CallTool), "a call that is handed off"
        self._hosts.release(owner, call.own_key, call.slot, call.exchange)
        call.slot = self._hosts.take_next(owner, call.own_key, first, call.exchange)
        request.idempotency_key = slot_key(call.own_key, call.slot)

    def _on_created(self, call: Call, request: CallTool, record: TaskRecord) -> TaskRecord:
        """Count a task that was created before its call was sent, and return it."""
        self._count(call, "handoff" if call.gets_handle else "task")
        if request.idempotency_key is None and not call.gets_handle:
            self._cancel_on_disconnect(call, record)
        return record

    def _cancel_on_disconnect(self, call: Call, record: TaskRecord) -> None:
        """Cancel a task if its host disconnects before it got the task's id, or has done so.

        A disconnect cancels the request, and a host without the id could never find its task. A
        task with an idempotency key continues, because its host will retry. So does one with which
        other requests were answered.
        """
        call.exchange.on_disconnect(partial(self._abandon, call.coalesce_key, record.owner, record.id))

    def _abandon(self, coalesce_key: CoalesceKey | None, owner: OwnerKey, task: TaskId) -> None:
        if coalesce_key is None or not self._coalescer.is_shared(task):
            self._tasks.abandon(owner, task)
