"""The handler of the calls of both eras: `Calls`. A call is a request of a host that a server
answers, a `tools/call` above all.

`create_task` is for a host that asks for a task. For all others, read `answer` from top to bottom. A
`tools/call` is decided: the operator's rules and the host say whether it becomes a task. It may join
an equal call that runs. A request takes a permit of the server's concurrency limit, unless it is a
list or lasts (`takes_permit`). Then a task is created, or the request is sent and its answer
returned (`proxy`). In between, the host gets progress and keep-alives through the call's listener
(`listeners`).

A call that may become a task or be held for input responses is *detached* from its request, and
may outlive it. It runs as an `InflightCall`. All other requests are sent and awaited in place.

A call ends with the server's response, when the host cancels it, or when the gateway shuts down. A
modern host cancels a request when it disconnects (H-MOD-9). A legacy host does so with
`notifications/cancelled`. When it disconnects, only a call that still waits for a permit is
cancelled, not one that was sent (H-LEG-10).
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, Final

from taskgate.admission.callers import principal_of
from taskgate.admission.coalescing import CoalesceKey, RequestCoalescer, own_key, scoped_key
from taskgate.admission.concurrency import Permit
from taskgate.admission.connected_hosts import ConnectedHosts, host_reference
from taskgate.admission.mounts import Mount
from taskgate.admission.polls import PollLimiter
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.policy import Handoff, PromotionDecision, PromotionMode
from taskgate.domain.record import RequestId, TaskId, TaskRecord, with_grown_ttl
from taskgate.domain.versions import client_of
from taskgate.errors import CutOff, GatewayError, QueueFull, TaskSupportMismatch
from taskgate.gateway.eras import Call, takes_permit
from taskgate.gateway.extensions import ExtensionRequests
from taskgate.gateway.listeners import InflightCall, ResponseWaiter, Waits
from taskgate.gateway.lost_calls import LostCalls, coalesce_key
from taskgate.gateway.promotion import Promotion
from taskgate.gateway.task_requests import HandleRequests, WaitingHost
from taskgate.jsontext.display import quoted
from taskgate.lifecycle.task_service import TaskService
from taskgate.protocol.host_requests import CallTool
from taskgate.protocol.messages import Params, Response
from taskgate.sessions.host_session import HostSession
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.system.background import Background
from taskgate.system.cancel_scope import CancelScope, ScopeCancelled
from taskgate.telemetry.events import EventSink, ShadowPromotion, ToolCalled
from taskgate.upstream.calls import CallListener, UpstreamCall

_tool_called: Final = lru_cache(maxsize=1024)(ToolCalled)
"""Cached: there is one of these events for each listed tool and disposition."""

QUIET: Final = 0.05
"""Seconds without a question after which the server's group of questions counts as complete.
Questions that were sent together arrive together but for network jitter, and a person who is asked
does not notice the delay."""

# To read a member from its class costs as much as a call in Python 3.11.
_SYNC: Final = PromotionMode.SYNC
_REQUIRED: Final = PromotionMode.REQUIRED


class Calls:
    """The calls of this process.

    `answer` serves one call, and returns when its answer is known. `create_task` returns when the task
    is stored. `stop` is called at the end, and then `close`.
    """

    def __init__(
        self,
        *,
        tasks: TaskService,
        polls: PollLimiter,
        coalescer: RequestCoalescer,
        extensions: ExtensionRequests,
        live: RuntimeConfig,
        event_sink: EventSink,
        clock: Clock,
        waiter: ResponseWaiter,
        handles: HandleRequests,
        hosts: ConnectedHosts,
    ) -> None:
        self._hosts = hosts
        self._tasks = tasks
        self._polls = polls
        self._coalescer = coalescer
        self._extensions = extensions
        self._live = live
        self._event_sink = event_sink
        self._clock = clock
        self._handles = handles
        self.waiter = waiter
        self.keepalives = self.waiter.keepalives
        self._session_waits = Waits()
        """Calls that go on at their server when the host has disconnected."""
        self._promotion = Promotion(
            tasks=tasks, coalescer=coalescer, waiter=self.waiter, count=self.count, hosts=hosts, clock=clock
        )
        self._background = Background()
        self._lost = LostCalls(
            tasks=tasks,
            promotion=self._promotion,
            hosts=hosts,
            handles=handles,
            waiter=waiter,
            background=self._background,
            live=live,
            clock=clock,
            cancellable=self.cancellable,
        )
        self._delivered: Counter[TaskId] = Counter()
        """The requests that wait for a task which is their call, by task."""
        self._handed_off: set[InflightCall] = set()
        """The calls whose hosts get a handle if they take long."""
        self._hands_off_at_once = False

    async def answer(self, call: Call) -> HttpReply:
        """Answer a call: with its result, the handle of a task, or input requests.

        Raises TaskSupportMismatch for a tool that runs only as a task and a host that wants none.
        Raises UpstreamFailed, QueueFull without a permit, InvalidParams for an idempotency key of
        another call, and what TaskService.create raises if a task is created at once. Raises
        ScopeCancelled when the host cancelled the request, and CutOff when the gateway shuts down.
        """
        request = call.request
        if not isinstance(request, CallTool):
            if call.is_of_extension:
                return await self._relay_extension(call)
        else:
            # 1. The operator's rules, and what the host takes.
            if request.idempotency_key is not None:
                _scope_key(call.session.mount, call.caller, request)
            decision = self._decide_at_once(call, request) or await self._decide_by_catalogue(call, request)
            if call.terms is not None:
                await self._identify(call, request, call.terms)
            # 2. An earlier call with the same idempotency key, which has become a task. Sent without
            # a task, a repeated key would run the call a second time beside it.
            if request.idempotency_key is not None and (call.gets_handle or not call.may_become_task):
                earlier = await self._lost.earlier(call, request)
                if earlier is not None and call.gets_handle:
                    self.count(call, "handoff")
                    return await self._deliver(call, request, earlier)
                if earlier is not None:
                    return await call.adapter.answer_repeated(call, earlier)
            # In shadow mode the operator's rules are counted and not applied.
            if decision.would_hand_off is not None and call.lacks_tasks:
                call.shadow_grace = self._grace(call, request, decision.would_hand_off)
            elif decision.would_promote and call.knows_tasks:
                self._event_sink.emit(ShadowPromotion(call.session.mount.name))
            # 3. Equal calls share one result.
            if request.idempotency_key is not None or decision.join_retries is not None:
                call.coalesce_key = coalesce_key(call, request, decision.join_retries)
            # 4. A task at once.
            if call.may_become_task:
                with self._tasks.expecting(call.session):
                    if not call.gets_handle:
                        return await self.create_or_send(call)
                    with self.cancellable(call.cancellable, call.id):
                        record = await self._promotion.create_before_send(call)
                        if record is None:
                            return await self._send_detached(call)
                    return await self._deliver_stored(call, request, record)
        # 5. The request to the server. Most are sent in place: here, without a frame in between that
        # would last as long as the call.
        if call.may_be_held:
            return await self._send_detached(call)
        return await call.adapter.answer(call, await self.proxy(call), call.listener.missing)

    async def decide(self, call: Call, request: CallTool) -> PromotionDecision:
        """Note in the call what the promotion rules of its tool allow, without a wait if possible.

        Returns the operator's decision. Raises TaskSupportMismatch if the tool runs only as a task,
        and the host did not ask for one, or can have none.
        """
        if request.idempotency_key is not None:
            _scope_key(call.session.mount, call.caller, request)
        decision = self._decide_at_once(call, request) or await self._decide_by_catalogue(call, request)
        if call.terms is not None:
            await self._identify(call, request, call.terms)
            if request.is_own_key:
                self._promotion.take_next_slot(call, 0)
        return decision

    async def _identify(self, call: Call, request: CallTool, terms: Handoff) -> None:
        """Give a call that may be handed off the key by which the same call made again finds it.

        Without a key, or if the operator wants that, it does not outlive its host's connection.
        """
        if terms.joins and request.idempotency_key is None:
            scopes = call.session.mount.scopes_of(call.caller)
            call.own_key = request.idempotency_key = await own_key(request, scopes)
            request.is_own_key = True
        if call.caller.identity is None and (request.is_own_key or request.idempotency_key is None):
            # Hosts share a call with a key of their own, and so its handle.
            request.handed_to = host_reference(call.exchange.address, client_of(call.peer.info))
        call.outlives_host = request.idempotency_key is not None and not terms.cancels_on_disconnect
        if call.outlives_host or terms.cancels_on_disconnect:
            call.ends_with_host = terms.cancels_on_disconnect

    def _decide_at_once(self, call: Call, request: CallTool) -> PromotionDecision | None:
        """As `decide`, without a wait; None if the decision needs what the server declares about the
        tool.

        A refusal needs that too, because the rules alone may be too strict for some tools.
        """
        decision = self._decide_by_rules(call.session.mount.name, request.tool)
        if decision is None or (decision.mode is _REQUIRED and _is_refused(call, decision)):
            return None
        if decision.mode is not _SYNC:
            self._allow_task(call, request, decision)
        return decision

    def _decide_by_rules(self, mount: str, tool: str) -> PromotionDecision | None:
        """Return the decision of the operator's rules; None if it needs the server's catalogue.

        It ignores that a tool may be for app views only, which want no tasks. `TaskService.decide`
        and `create` consider that before a call becomes a task, or is refused for not being one.
        """
        rules = self._live.current
        if mount in rules.access.only_listed or (rules.policy.hinted and rules.policy.needs_hints(mount)):
            return None
        return rules.policy.decide(mount, tool)

    async def _decide_by_catalogue(self, call: Call, request: CallTool) -> PromotionDecision:
        """As `decide`, with the server's catalogue. Reading that may open a session."""
        call.begun = call.begun or self._clock.elapsed()
        work = self._tasks.decide(call.caller, call.session, request.tool)
        with self._tasks.expecting(call.session) if _can_be_task(call, request) else nullcontext():
            if call.cancellable is None:
                decision = await self.waiter.wait_for_session(call.listener, work)
            else:
                decision = await work
        if decision.mode is _REQUIRED and _is_refused(call, decision):
            self.count(call, "rejected")
            raise TaskSupportMismatch(f"The tool {quoted(request.tool)} runs only as a task")
        if decision.mode is not _SYNC:
            self._allow_task(call, request, decision)
        return decision

    def _allow_task(self, call: Call, request: CallTool, decision: PromotionDecision) -> None:
        """Note that the operator's rules allow a task, unless the host or the call does not."""
        if _can_be_task(call, request):
            call.mode, call.grace = decision.mode, decision.inline_grace
        elif decision.handoff is not None and call.handoff is not None and request.stored_params is not None:
            now = self._clock.elapsed()
            call.gets_handle, call.begun = True, call.begun or now
            # A tool that runs only as a task is called as any other, and its call becomes one.
            call.mode = PromotionMode.AUTO if decision.mode is _REQUIRED else decision.mode
            call.terms = decision.handoff
            waited = timedelta(seconds=now - call.begun)
            call.grace = max(self._grace(call, request, decision.handoff) - waited, timedelta())
        else:
            return
        call.may_become_task = True
        # A host that wants progress gets it with its own token, so its call is relayed.
        call.task_params = request.stored_params if request.progress_token is None else None

    def _count_late(self, call: Call, grace: timedelta) -> asyncio.TimerHandle:
        """Start the timer that counts a call which a rule in shadow would hand off by then."""
        count = partial(self._event_sink.emit, ShadowPromotion(call.session.mount.name))
        return asyncio.get_running_loop().call_later(grace.total_seconds(), count)

    def _grace(self, call: Call, request: CallTool, handoff: Handoff) -> timedelta:
        """Return how long a call may take before a host without tasks gets its handle."""
        rules, client = self._live.current.handoff, client_of(call.peer.info).name
        return rules.grace(handoff, client, self._handles.progress(call.exchange, call.peer, request.progress_token))

    async def create_or_send(self, call: Call) -> HttpReply:
        """Answer with the handle of a task that is created now, or send the call."""
        record = await self._promotion.create_before_send(call)
        return await self.send(call) if record is None else self._task_reply(call, record)

    async def send(self, call: Call) -> HttpReply:
        """Send a call, and return its answer: detached if it may outlive its request, else in place."""
        if call.may_become_task or call.may_be_held:
            return await self._send_detached(call)
        response = await self.proxy(call)
        return await call.adapter.answer(call, response, call.listener.missing)

    async def proxy(self, call: Call) -> Response:
        """Send a request, or wait for an equal one that runs; return the server's response.

        Raises UpstreamFailed, QueueFull, ScopeCancelled when the host cancelled the request, and
        CutOff when the gateway shuts down. Raises InvalidParams for an idempotency key of another
        call.
        """
        exchange, cancellable, permit = call.exchange, call.cancellable, None
        late = None if call.shadow_grace is None else self._count_late(call, call.shadow_grace)
        waits = self.waiter.waits if cancellable is None else self._session_waits
        # `scope` covers only this request. A call that equal requests share runs while one waits.
        scope = CancelScope(self.keepalives.wheel.known_loop)
        waits.scopes.add(scope)
        if cancellable is not None:
            cancellable[scope] = call.id
        try:
            with call.listener, scope:
                if call.ends_with_host:
                    exchange.on_disconnect(scope.cancel)
                if waits.is_stopped:
                    # The others have been cancelled before this one was registered.
                    scope.cancel()
                if call.coalesce_key is not None:
                    return await self._send_joined(call, call.coalesce_key, call.listener)
                if call.tool is not None or takes_permit(call):
                    permit = self._acquire(call)
                    if not permit.is_granted:
                        if not call.ends_with_host:
                            _cancel_while_queued(exchange, scope, permit)
                        await self._promotion.wait_briefly(call, permit)
                    self.count(call, "direct")
                return await _send(call, call.listener)
        except ScopeCancelled:
            if waits.is_stopped:
                raise CutOff from None
            raise
        finally:
            if late is not None:
                late.cancel()
            if permit is not None:
                permit.release()
            if cancellable is not None:
                del cancellable[scope]
            waits.scopes.discard(scope)

    async def follow(self, call: Call, inflight: InflightCall) -> HttpReply:
        """Wait for a detached call until there is an answer for the host, and return it.

        If this raises, the call is cancelled and no longer held. So it is if the host disconnects,
        unless the call outlives that.
        """
        late = None if call.shadow_grace is None else self._count_late(call, call.shadow_grace)
        if call.gets_handle:
            inflight.is_hurried = self._hands_off_at_once
            self._handed_off.add(inflight)
            if call.outlives_host:
                self._lost.attend(call, inflight)
        try:
            with call.listener:
                inflight.set_listener(call.listener)
                reply = await self._outcome(call, inflight)
            self._lost.on_answer(call, inflight)
            return reply
        except BaseException:
            inflight.close()
            inflight.end_hold()
            self._lost.settle(call)
            self._release_slot(call)
            raise
        finally:
            self._handed_off.discard(inflight)
            if call.outlives_host and not call.is_lost:
                self._lost.leave(call)
            if late is not None:
                late.cancel()

    def _release_slot(self, call: Call) -> None:
        """Handle that a call has failed, or that its host has cancelled it."""
        if call.own_key:
            self._hosts.release(call.session.owner, call.own_key, call.slot, call.exchange)

    def count(self, call: Call, disposition: str) -> None:
        """Count a `tools/call` by its disposition, once; only a tool that the server lists is named.

        - `direct`: sent, and no task;
        - `inline`: allowed to become a task, and ended within its grace;
        - `task`: became a task, or was answered with one;
        - `handoff`: became one, of which a host without tasks gets a handle if it is late;
        - `rejected`: refused.
        """
        if call.tool is not None and not call.is_counted:
            call.is_counted = True
            is_listed = call.session.upstream.listed(call.tool) is not None
            tool = call.tool if is_listed else None
            self._event_sink.emit(_tool_called(call.session.mount.name, tool, disposition))

    def count_sent(self, call: Call) -> None:
        """Count a call that is about to be sent. One that may become a task is counted later."""
        if not call.may_become_task:
            self.count(call, "direct")

    def cancel(self, host_session: HostSession, id: RequestId) -> CancelScope | None:
        """Cancel the request of that id, and return its scope; None if it does not run in this
        process.
        """
        # The newest, in case the host used an id twice.
        scope = next((scope for scope, its in reversed(host_session.calls.items()) if its == id), None)
        if scope is not None:
            scope.cancel()
        return scope

    def hand_off(self) -> None:
        """Hand off the running calls of hosts without tasks now, and each later one once it is sent.

        Called when a drain begins: tasks outlive it, and calls that block do not.
        """
        self._hands_off_at_once = True
        for inflight in self._handed_off:
            inflight.hurry()

    def stop(self) -> None:
        """Cancel the running calls and every later one, which then raise CutOff. Called at
        shutdown.
        """
        self._session_waits.stop()
        self.waiter.waits.stop()

    async def close(self) -> None:
        """Cancel the remaining calls, and wait until their servers are notified."""
        self.waiter.close()
        await self._background.close()
        await self._hosts.close()

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def create_task(self, caller: AuthContext, session: HostSession, request: CallTool) -> HttpReply:
        """Answer with the handle of a task that a legacy host asked for.

        It needs no `Call`: the request has no listener, and is not sent. Raises what
        TaskService.create raises.
        """
        mount, tool = session.mount.name, request.tool
        if request.idempotency_key is not None:
            _scope_key(session.mount, caller, request)
        try:
            record, decision = await self._tasks.create(caller, session, request)
        except GatewayError:
            listed = None if session.upstream.listed(tool) is None else tool
            self._event_sink.emit(_tool_called(mount, listed, "rejected"))
            raise
        # The tool is listed: a task of another one is refused.
        self._event_sink.emit(_tool_called(mount, tool, "task"))
        interval = self._polls.advise(record)
        if record.idempotency_digest is not None or decision.join_retries is not None:
            # It may be an earlier task.
            record = with_grown_ttl(record, self._clock.now())
        return HttpReply(body=session.dialect.task_created(request.id, record, decision.immediate_response, interval))

    def _task_reply(self, call: Call, record: TaskRecord, inflight: InflightCall | None = None) -> HttpReply:
        """Answer with a task, and advise when to poll it; a host without tasks gets its handle.

        `inflight` is its call, if that was sent before.
        """
        if call.gets_handle:
            age = timedelta(seconds=self._clock.elapsed() - call.begun)
            progress = None if inflight is None else inflight.status_message
            self._hosts.attend(call.exchange, record.id, call.session.host_session or "")
            self._handles.grant(record, call.exchange, call.session.host_session, call.peer)
            return self._handles.reply(call.adapter.dialect, call.handoff, call.id, record, age, progress)
        interval = self._polls.advise(record)
        if record.idempotency_digest is not None or call.coalesce_key is not None:
            # It may be an earlier task.
            record = with_grown_ttl(record, self._clock.now())
        return HttpReply(body=call.adapter.dialect.task_created(call.id, record, None, interval))

    # --- permits and equal calls --------------------------------------------------------------------------------------

    def _acquire(self, call: Call) -> Permit:
        """Return a permit, granted or queued, which must be released. Raises QueueFull, counted."""
        session = call.session
        try:
            return session.mount.bulkhead.acquire(call.caller.subject, call.caller)
        except QueueFull:
            self.count(call, "rejected")
            raise

    async def _send_joined(self, call: Call, key: CoalesceKey, listener: CallListener) -> Response:
        """Join an equal call that runs, or send this one; return the response.

        The call runs as long as at least one request waits for it. Raises InvalidParams for an
        idempotency key of another call.
        """
        response = await self._coalescer.run(key, partial(self._send_shared, call, listener))
        if call.outlives_host and call.record is None and not call.is_answered:
            # The same call made again finds it no more from here on. If its host was asked something, that
            # goes on with another request, and nothing would settle this one.
            self._lost.begin(call)
        assert isinstance(response, Response), "a sent call yields a response, not a task"
        return response

    async def _send_shared(self, call: Call, listener: CallListener) -> Response:
        # The first request may end before the call, so the call keeps the session busy itself.
        call.session.acquire()
        try:
            # Equal calls share one permit, so it is acquired within the shared call.
            permit = self._acquire(call)
            try:
                if not permit.is_granted:
                    await self._promotion.wait_shared(call, permit)
                self.count_sent(call)
                return await _send(call, listener)
            finally:
                permit.release()
        finally:
            call.session.release()

    # --- calls that may outlive their request -------------------------------------------------------------------------

    @contextmanager
    def cancellable(self, running: dict[CancelScope, RequestId] | None, id: RequestId) -> Iterator[None]:
        """The block of a request that `cancel` finds among the `running` ones of its session, if it has one.

        Raises ScopeCancelled when it is cancelled, and CutOff when the gateway shuts down.
        """
        if running is None:
            yield
            return
        scope, waits = CancelScope(self.keepalives.wheel.known_loop), self._session_waits
        waits.scopes.add(scope)
        running[scope] = id
        try:
            with scope:
                if waits.is_stopped:
                    scope.cancel()
                yield
        except ScopeCancelled:
            if waits.is_stopped:
                raise CutOff from None
            raise
        finally:
            del running[scope]
            waits.scopes.discard(scope)

    async def _deliver(self, call: Call, request: CallTool, earlier: TaskRecord) -> HttpReply:
        """Answer a call with an earlier one: its result if that is there in time, else its handle."""
        session, info = call.session if isinstance(call.session, HostSession) else None, call.session.mount.info
        assert call.handoff is not None, "its host knows no tasks"
        host = WaitingHost(
            call.adapter.dialect,
            call.exchange,
            call.caller,
            session,
            call.id,
            request.progress_token,
            tools=call.handoff,
            info=info,
            peer=call.peer,
        )
        self._delivered[earlier.id] += 1
        try:
            with self.cancellable(call.cancellable, call.id):
                return await self._handles.deliver(host, earlier, call.grace)
        except ScopeCancelled:
            self._release_slot(call)
            raise
        finally:
            self._delivered[earlier.id] -= 1
            if not self._delivered[earlier.id]:
                del self._delivered[earlier.id]

    async def _deliver_stored(self, call: Call, request: CallTool, record: TaskRecord) -> HttpReply:
        """Answer a call that was stored before it is sent: with its result if that is there in time, else its
        handle.

        If the host cancels it, it is cancelled unless another host waits for it.
        """
        waiting = CancelScope(self.keepalives.wheel.known_loop)
        call.exchange.on_sent(partial(self._on_delivered, call, record, waiting))
        try:
            with waiting:
                reply = await self._deliver(call, request, record)
        except ScopeCancelled:
            if call.is_lost:
                # A host that resumes its stream reads the handle there.
                return self._task_reply(call, record)
            if record.id not in self._delivered:
                self._tasks.abandon(record.owner, record.id)
            raise
        if not call.is_lost:
            # Until the answer is sent it may be lost.
            self._lost.begin(call)
        return reply

    def _on_delivered(self, call: Call, record: TaskRecord, waiting: CancelScope, was_sent: bool) -> None:
        """Handle that the answer to a stored call was sent, or that the connection is lost, which ends its wait."""
        call.is_lost = not was_sent
        self._lost.settle(call)
        if call.is_lost:
            waiting.cancel()
            self._lost.abandon_unless_asked(record)

    async def _send_detached(self, call: Call) -> HttpReply:
        """Send a call that may outlive its request, in a background task, and answer the request.

        The permit is released when the call ends.
        """
        inflight = InflightCall(most=self._live.current.questions.outstanding, asks_host=call.cancellable is not None)
        if call.coalesce_key is not None:
            record = await self._promotion.find_equal_task(call)
            if record is not None:
                self.count(call, "task")
                return self._task_reply(call, record)
            inflight.start(call.session, self._background, partial(self._send_joined, call, call.coalesce_key))
            return await self.follow(call, inflight)
        permit = self._acquire(call)
        if not permit.is_granted:
            record = await self._promotion.wait_for_permit(call, permit)
            if record is not None:
                return self._task_reply(call, record)
        self.count_sent(call)
        inflight.start(call.session, self._background, partial(_send, call), permit)
        return await self.follow(call, inflight)

    async def _outcome(self, call: Call, inflight: InflightCall) -> HttpReply:
        """Return the answer: a task, the next input requests, or the server's response."""
        call.record = record = await self._promotion.promote_after_grace(call, inflight)
        if call.stored is not None and (record is not None or not inflight.is_over):
            self._lost.settle(call)
        exchange = call.exchange if call.ends_with_host else None
        while record is None:
            await self.waiter.wait(exchange, inflight.wait_for_change(None))
            if inflight.is_closed:
                # Its host is gone, and another request waits for the same call.
                raise ScopeCancelled
            if not inflight.is_over:
                # The server may ask several questions at once: they go to the host together.
                await self.waiter.wait(exchange, inflight.wait_quiet(QUIET))
            if inflight.is_over:
                break
            # A question may have been withdrawn meanwhile.
            if inflight.questions:
                return await call.adapter.hold(call, inflight)
        # No more rounds: the call has ended, or is a task now.
        inflight.end_hold()
        if record is not None:
            return self._task_reply(call, record, inflight)
        return await call.adapter.answer(call, await inflight.response(), inflight.missing)

    # --- extensions ---------------------------------------------------------------------------------------------------

    async def _relay_extension(self, call: Call) -> HttpReply:
        """Forward a request of an extension. Raises UnknownMethod if it is not forwarded."""
        upstream, mount, method = call.session.upstream, call.session.mount, call.method
        # Whether an extension is forwarded depends on the server's era, known once it is connected.
        if call.cancellable is None:
            await self.waiter.wait_for_session(call.listener, upstream.open())
        else:
            await upstream.open()
        extension = call.extension = self._extensions.extension_of(mount, method, call.adapter.era, upstream.era)
        # A method that lasts as long as the host listens ends when that disconnects.
        call.ends_with_host = call.ends_with_host or method in extension.streams
        response = await self._extensions.hold(call.caller, mount, method, extension, self.proxy(call))
        if response is None:
            # The token of the caller expired.
            return HttpReply(body=call.adapter.answer_ended(call.id))
        return await call.adapter.answer(call, response, {})


def _scope_key(mount: Mount, caller: AuthContext, request: CallTool) -> None:
    """Have the idempotency key of a host count for the scopes of its caller alone, if the server sees these."""
    if request.idempotency_key is not None and (scopes := mount.scopes_of(caller)):
        request.idempotency_key = scoped_key(request.idempotency_key, scopes)


def _can_be_task(call: Call, request: CallTool) -> bool:
    """Return whether the host takes a task, and the call can be stored."""
    return call.takes_task and request.stored_params is not None


def _is_refused(call: Call, decision: PromotionDecision) -> bool:
    """Return whether a call of a tool that runs only as a task is refused: its host gets no handle either."""
    return call.refuses_task_only and (call.handoff is None or decision.handoff is None)


def _cancel_while_queued(exchange: Exchange, scope: CancelScope, permit: Permit) -> None:
    """Cancel a call if its host disconnects while it still waits for its permit."""
    exchange.on_disconnect(lambda: None if permit.is_granted else scope.cancel())


def _send(call: Call, listener: CallListener) -> Coroutine[Any, Any, Response]:
    """Send the request, and return the server's response. Raises what `UpstreamSession.call` raises."""
    session = call.session
    # Another request may have brought a newer token while this one waited.
    principal = session.principal if session.caller is call.caller else principal_of(call.caller)
    sent = UpstreamCall(call.method, call.params, call.tool, principal, call.log_level, call.repeated)
    if call.may_become_task and call.task_params is not None:
        # A task reports progress: the server is asked for it though the host gave no token.
        sent.params, sent.as_task = Params(call.task_params), True
    return session.upstream.call(sent, listener)
