"""The promotion of calls of modern hosts to tasks: `Promotion`.

A call becomes a task before it is sent (`made`), while it waits for a permit (`queued`), or after
it was sent (`promoted`). The operator's rules decide which calls do. `Calls` asks at each of these
points. The host did not ask for a task, so a task that cannot be created is no error: the call
continues as a plain one. `TaskService` creates the tasks.
"""

from functools import partial
from logging import getLogger

from taskgate.admission.coalescing import KEY_REUSED, CoalesceKey, RequestCoalescer
from taskgate.admission.concurrency import BRIEF_WAIT, Permit
from taskgate.clock import Clock
from taskgate.domain.policy import PromotionMode
from taskgate.domain.record import OwnerKey, TaskId, TaskRecord
from taskgate.errors import GatewayError, InvalidParams, TaskSupportMismatch
from taskgate.gateway.modern.attending import ResponseWaiter
from taskgate.gateway.modern.flights import InflightCall
from taskgate.gateway.modern.outbound_calls import OutboundCall
from taskgate.gateway.modern.turns import Turns
from taskgate.lifecycle.task_service import TaskService
from taskgate.protocol.host_requests import CallTool

log = getLogger("taskgate.stateless")


class Promotion:
    """The promotion of calls to tasks. Its methods return None for a call that does not become a
    task.
    """

    def __init__(
        self, *, tasks: TaskService, joining: RequestCoalescer, turns: Turns, attending: ResponseWaiter, clock: Clock
    ) -> None:
        self._tasks = tasks
        self._joining = joining
        self._turns = turns
        self._attending = attending
        self._clock = clock

    async def made(self, outbound: OutboundCall) -> TaskRecord | None:
        """Create the task of a call before it is sent. Raises what TaskService.create raises."""
        request = outbound.request
        if not outbound.may_become_task or not isinstance(request, CallTool):
            return None
        if outbound.mode is PromotionMode.AUTO and request.idempotency_key is None:
            return None
        try:
            # While the session with the server opens, the host may still disconnect without a task.
            await self._attending.meet(outbound.exchange, outbound.said, outbound.line.upstream.tools())
            record = await self._tasks.create(outbound.caller, outbound.line, request)
        except (TaskSupportMismatch, InvalidParams) as refusal:
            if str(refusal) != KEY_REUSED:
                # The host did not ask for a task, so this is no refusal: the server gives its own
                # answer.
                return None
            self._turns.count(outbound, "rejected")
            raise
        except GatewayError:
            self._turns.count(outbound, "rejected")
            raise
        return self._kept(outbound, request, record)

    async def earlier(self, outbound: OutboundCall) -> TaskRecord | None:
        """Return the task that an equal call has become, to join it."""
        if outbound.asking is None or not outbound.may_become_task:
            return None
        return await self._joining.find_task(outbound.asking._replace(accepts_task=True))

    async def queued(self, outbound: OutboundCall, ticket: Permit) -> TaskRecord | OutboundCall:
        """Wait for the permit of a call, and return the call with the grace that is left.

        Returns its task if it became one before the permit was granted. Raises QueueFull, and what
        `ResponseWaiter.wait` raises; the permit is closed then.
        """
        begun = self._clock.elapsed()
        request, exchange = outbound.request, outbound.exchange
        try:
            # The host gets no progress before the request is sent: progress must only grow.
            with self._attending.telling(exchange, outbound.said._replace(progress_token=None)):
                if outbound.may_become_task and isinstance(request, CallTool):
                    within = min(outbound.grace, BRIEF_WAIT, ticket.max_wait)
                    if not await self._attending.wait(exchange, ticket.wait_granted(within)):
                        record = await self._made_of(outbound, request, ticket)
                        if record is not None:
                            return record
                        outbound = outbound._replace(may_become_task=False)
                waited = self._clock.elapsed() - begun
                await self._attending.wait(exchange, self._turns.wait(outbound, ticket, waited))
        except BaseException:
            ticket.release()
            raise
        return outbound.with_less_grace(self._clock.elapsed() - begun)

    async def promoted(self, outbound: OutboundCall, flight: InflightCall) -> TaskRecord | None:
        """Turn a sent call into a task if it is not over within its grace."""
        request = outbound.request
        if not outbound.may_become_task or not isinstance(request, CallTool):
            return None
        record, is_inline = None, False
        try:
            await self._attending.wait(outbound.exchange, flight.stirs(outbound.grace.total_seconds()))
            is_inline = flight.is_over
            if not is_inline:
                record = await self._promote(outbound, request, flight)
        finally:
            if record is not None:
                self._turns.count(outbound, "task")
            elif not flight.was_refused:
                self._turns.count(outbound, "inline" if is_inline else "direct")
        return record

    async def _made_of(self, outbound: OutboundCall, request: CallTool, ticket: Permit) -> TaskRecord | None:
        """Create the task of a call that still waits for a permit, and keeps its place in the
        queue.
        """
        try:
            record = await self._tasks.create(outbound.caller, outbound.line, request, ticket=ticket)
        except GatewayError as refusal:
            log.debug("a queued call is not promoted to a task", extra={"reason": refusal.reason})
            return None
        return self._kept(outbound, request, record)

    async def _promote(self, outbound: OutboundCall, request: CallTool, flight: InflightCall) -> TaskRecord | None:
        # From here on the server's questions belong to the task (M-MRTR-8).
        flight.passes_rounds = False
        try:
            record = await self._tasks.promote(outbound.caller, outbound.line, request, flight)
        except GatewayError as refusal:
            # The call continues as a plain one (R-RES-6).
            log.debug("a call is not promoted to a task", extra={"reason": refusal.reason})
            flight.passes_rounds = True
            return None
        if flight.is_adopted:
            self._abandon_with(outbound, record)
        # Otherwise an equal call, which shares the sent request, became the task first.
        return record

    def _kept(self, outbound: OutboundCall, request: CallTool, record: TaskRecord) -> TaskRecord:
        self._turns.count(outbound, "task")
        if request.idempotency_key is None:
            self._abandon_with(outbound, record)
        return record

    def _abandon_with(self, outbound: OutboundCall, record: TaskRecord) -> None:
        """Cancel a task if its host disconnects, or has done so, without its id: that cancels the
        request.

        A task with an idempotency key continues, because its host will retry. So does one that
        other hosts were given.
        """
        outbound.exchange.on_disconnect(partial(self._abandon, outbound.asking, record.owner, record.id))

    def _abandon(self, asking: CoalesceKey | None, owner: OwnerKey, task: TaskId) -> None:
        if asking is None or not self._joining.is_shared(task):
            self._tasks.abandon(owner, task)
