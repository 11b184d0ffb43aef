"""The calls of hosts without tasks that outlive their connection: `LostCalls`.

A call under a rule with `handoff` goes on when its connection is lost, and becomes a task at once. So the same
call made again finds it, in the store by its idempotency key. Until it is stored, or its answer has reached the
host, the same call waits here. A task that no host asks for within the retry window is cancelled.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial

from taskgate.admission.coalescing import CoalesceKey, host_kind
from taskgate.admission.connected_hosts import MOST_SEARCHED, ConnectedHosts, slot_key
from taskgate.admission.rules import RuntimeConfig
from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey, RequestId, TaskId, TaskRecord
from taskgate.errors import StoreUnavailable
from taskgate.gateway.eras import Call
from taskgate.gateway.listeners import InflightCall, ResponseWaiter
from taskgate.gateway.promotion import Promotion
from taskgate.gateway.task_requests import HandleRequests
from taskgate.lifecycle.task_service import EarlierHostConnected, TaskService
from taskgate.protocol.host_requests import CallTool
from taskgate.sessions.binding import client_features
from taskgate.system.background import Background
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled

Key = tuple[OwnerKey, str | None]
"""What finds a call that outlives its host: its owner and idempotency key."""


class LostCalls:
    """The calls of this process that outlive their connection, from the request to the receipt of the answer.

    `attend` is called once the request is sent, `on_answer` when its answer is known, and `leave` when it waits
    no more. `settle` is called when nothing of the call has to be stored. `earlier` finds the task of the same
    call made before. Work that outlives a request runs in `background`, which the caller closes.
    """

    def __init__(
        self,
        *,
        tasks: TaskService,
        promotion: Promotion,
        hosts: ConnectedHosts,
        handles: HandleRequests,
        waiter: ResponseWaiter,
        background: Background,
        live: RuntimeConfig,
        clock: Clock,
        cancellable: Callable[[dict[CancelScope, RequestId] | None, RequestId], AbstractContextManager[None]],
    ) -> None:
        self._tasks = tasks
        self._promotion = promotion
        self._connected = hosts
        self._handles = handles
        self._waiter = waiter
        self._background = background
        self._live = live
        self._clock = clock
        self._cancellable = cancellable
        self._storing: dict[asyncio.Future[None], Key] = {}
        """The calls whose hosts may be gone, until they are stored as tasks or their answers are received."""
        self._stored = 0
        """How many are no longer among these."""
        self._hosts: Counter[tuple[Key, str]] = Counter()
        """The connected hosts that share the request of a call, by its key and their kind."""

    async def earlier(self, call: Call, request: CallTool) -> TaskRecord | None:
        """Return the task of an earlier call with the same idempotency key; None if there is none.

        With a key of the gateway's own, an earlier call is looked up in each slot. One whose host is not gone is
        another call. Without one, this call has a slot of its own. Raises what `TaskService.earlier` raises.
        """
        if not request.is_own_key:
            return await self._earlier(call, request)
        try:
            with self._cancellable(call.cancellable, call.id):
                await self._connected.wait_for_loss(call.session.owner, call.own_key)
                return await self._earlier_in_slots(call, request)
        except ScopeCancelled:
            self._connected.release(call.session.owner, call.own_key, call.slot, call.exchange)
            raise

    async def _earlier_in_slots(self, call: Call, request: CallTool) -> TaskRecord | None:
        hosts, owner, own_key, free, last = self._connected, call.session.owner, call.own_key, None, 0
        for slot in range(min(hosts.last_slot(owner, own_key) + 1, MOST_SEARCHED)):
            if not hosts.take(owner, own_key, slot, call.exchange):
                last = slot
                continue
            call.slot, request.idempotency_key, is_free = slot, slot_key(own_key, slot), free is None
            try:
                earlier = await self._earlier(call, request)
            except EarlierHostConnected:
                earlier, is_free, last = None, False, slot
            if earlier is not None:
                if free is not None:
                    hosts.release(owner, own_key, free, call.exchange)
                return earlier
            if is_free:
                free = slot
            else:
                hosts.release(owner, own_key, slot, call.exchange)
        if free is None:
            self._promotion.take_next_slot(call, last + 1)
        else:
            call.slot, request.idempotency_key = free, slot_key(own_key, free)
            hosts.set_last_slot(owner, own_key, max(free, last))
        return None

    async def _earlier(self, call: Call, request: CallTool) -> TaskRecord | None:
        """Return the task of an earlier call with the same idempotency key; None if there is none.

        Waits until calls whose hosts are gone are stored: the same call may be one of them. Raises what
        `TaskService.earlier` raises; but a key that the gateway made is no reason to refuse a call while
        the store is down.
        """
        key = _key_of(call)
        while True:
            same = [stored for stored, other in self._storing.items() if other == key]
            if same:
                await self._wait_stored(call, same)
            stored_before = self._stored
            try:
                earlier = await self._tasks.earlier(call.caller, call.session, request)
            except StoreUnavailable:
                if not request.is_own_key:
                    raise
                return None
            is_settled = stored_before == self._stored and key not in self._storing.values()
            if earlier is not None or is_settled or (call.gets_handle and not call.grace):
                return earlier

    def attend(self, call: Call, inflight: InflightCall) -> None:
        """Keep a call if its connection is lost, until its answer is received. `leave` must follow."""
        call.shared = _shared_by(call)
        self._hosts[call.shared] += 1
        call.exchange.on_sent(partial(self._on_sent, call, inflight))

    def on_answer(self, call: Call, inflight: InflightCall) -> None:
        """Handle that the answer to a call is known, which may be lost until it is received."""
        call.is_answered = True
        if call.is_lost:
            self._keep(call, inflight)
        elif call.outlives_host and call.record is None:
            self.begin(call)

    def leave(self, call: Call) -> bool:
        """Handle that a host waits no more for a call; return whether another one shares its request."""
        shared = call.shared
        assert shared is not None, "a call that was attended"
        left = self._hosts[shared] = self._hosts[shared] - 1
        if left <= 0:
            del self._hosts[shared]
        return left > 0

    def begin(self, call: Call) -> None:
        """Let the same call made again wait until this one is stored as a task, or its answer is received."""
        if call.stored is None:
            call.stored = asyncio.get_running_loop().create_future()
            self._storing[call.stored] = _key_of(call)

    def settle(self, call: Call) -> None:
        """Let the same call made again go on, if it waits for this one."""
        stored, call.stored = call.stored, None
        if stored is not None:
            del self._storing[stored]
            self._stored += 1
            stored.set_result(None)

    def abandon_unless_asked(self, record: TaskRecord) -> None:
        """Cancel a task in the background if no host asks for it within the retry window."""
        self._background.run(partial(self._abandon_unasked, record.owner, record.id))

    async def _wait_stored(self, call: Call, same: list[asyncio.Future[None]]) -> None:
        """Wait until equal calls are settled. A call that gets a handle waits at most for its grace."""
        begun, within = self._clock.elapsed(), call.grace.total_seconds() if call.gets_handle else None
        with self._cancellable(call.cancellable, call.id):
            await self._waiter.wait_for_session(call.listener, asyncio.wait(same, timeout=within))
        call.grace = max(call.grace - timedelta(seconds=self._clock.elapsed() - begun), timedelta())

    def _on_sent(self, call: Call, inflight: InflightCall, was_sent: bool) -> None:
        """Handle that the answer to a call was received, or that its connection is lost.

        With that the grace of the call ends, so that it becomes a task, unless another host shares its request.
        """
        if was_sent or inflight.is_closed:
            # A closed call has failed, was cancelled, or is another request's.
            self.settle(call)
            return
        call.is_lost = True
        if call.is_answered:
            self._keep(call, inflight)
        elif self.leave(call) and call.coalesce_key is not None and not (call.is_promoting or inflight.is_over):
            inflight.close()
        else:
            self.begin(call)
            inflight.hurry()

    def _keep(self, call: Call, inflight: InflightCall) -> None:
        """Keep a call whose answer is lost, for the same call made again."""
        if call.record is None and not inflight.is_closed:
            self.begin(call)
            self._background.run(partial(self._store, call, inflight))
        elif call.record is not None and inflight.is_adopted:
            self.abandon_unless_asked(call.record)

    async def _store(self, call: Call, inflight: InflightCall) -> None:
        """Keep a call as a task whose answer was its result, or questions, and is lost."""
        try:
            # The round of a modern server is no result: the call made again begins anew.
            if inflight.is_over and call.adapter.is_round(call, await inflight.response()):
                return
            record = await self._promotion.keep(call, inflight)
        finally:
            self.settle(call)
        if record is not None:
            inflight.end_hold()
            if inflight.is_adopted and not inflight.is_over:
                self.abandon_unless_asked(record)

    async def _abandon_unasked(self, owner: OwnerKey, task: TaskId) -> None:
        if not await self._handles.is_asked_for(task, self._live.current.handoff.retry_window):
            self._tasks.abandon(owner, task)


def coalesce_key(call: Call, request: CallTool, window: timedelta | None) -> CoalesceKey:
    """Return what equal calls have in common."""
    features, scopes = client_features(call.peer), call.session.mount.scopes_of(call.caller)
    return CoalesceKey(call.session.owner, request, window, era=call.adapter.era, features=features, scopes=scopes)


def _key_of(call: Call) -> Key:
    assert isinstance(call.request, CallTool), "a call that is handed off"
    return call.session.owner, call.request.idempotency_key


def _shared_by(call: Call) -> tuple[Key, str]:
    """Return what hosts have in common that share the request of a call."""
    assert isinstance(call.request, CallTool), "a call that is handed off"
    return _key_of(call), host_kind(coalesce_key(call, call.request, None))
