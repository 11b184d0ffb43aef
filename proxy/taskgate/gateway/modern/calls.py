"""The requests of modern hosts that servers answer: `Calls`.

`ModernRequests` calls `call` for `tools/call`, `relay` for other requests, and `retry` for a
request that was sent again with input responses. A request is answered in one of these ways:

- The server's response is the answer.
- The call becomes a task, if the host declares tasks and the operator's rules want it
  (`promotion`). The answer is the task's handle.
- A question during the call. If the call is a task, the task stores it. Otherwise the call is
  *held*: it keeps running at the server and waits here (`holds`). The answer is `inputRequests`
  with a `requestState` (`rounds`). The host repeats its request with the input responses and the
  state, which is a *retry*, and the held call continues.
- A *round* of a modern server: it ends the request with its own `inputRequests`. They go to the
  host unchanged, with the server's state sealed in a `requestState`. The retry is then a new
  request to the server, with the responses and the server's state.

A call that may become a task or be held is *detached* from its request, and may outlive it. It runs
as an `InflightCall` (`flights`), its *flight*. All other requests are sent
and awaited in place. `attending` waits for responses.
"""

from collections.abc import Awaitable
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple, TypeVar

from taskgate.admission.callers import principal_of
from taskgate.admission.coalescing import CoalesceKey
from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock, Entropy
from taskgate.cluster.bus import ClusterBus
from taskgate.domain.policy import PromotionDecision, PromotionMode
from taskgate.domain.record import TaskRecord
from taskgate.domain.request_state import HeldCallState, RequestStates
from taskgate.domain.versions import Era
from taskgate.errors import InvalidParams, TaskSupportMismatch
from taskgate.gateway.modern.attending import ResponseWaiter
from taskgate.gateway.modern.flights import InflightCall
from taskgate.gateway.modern.hearing import RequestListener
from taskgate.gateway.modern.holds import Held, HeldCalls
from taskgate.gateway.modern.outbound_calls import ModernCall, new_call
from taskgate.gateway.modern.promotion import Promotion
from taskgate.gateway.modern.remote_retry import RemoteRetries, RetryServices
from taskgate.gateway.modern.rounds import RoundStates
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.gateway.outbound_calls import SLOW_METHODS, CallSender
from taskgate.lifecycle.task_service import TaskService
from taskgate.protocol.host_requests import CallTool, Relay, RequestMeta, Retry
from taskgate.protocol.messages import Response
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.sessions.binding import client_features
from taskgate.streams.exchange import Exchange, RpcReply, error_of
from taskgate.system.background import Background
from taskgate.system.offload import offload
from taskgate.telemetry.events import EventSink, ShadowPromotion, ToolCalled

QUIET: Final = 0.05
"""Seconds without a question after which the server's group of questions counts as complete.
Questions that were sent together arrive together but for network jitter, and a person who is asked
does not notice the delay."""

Awaited = TypeVar("Awaited")


class HoldTimes(NamedTuple):
    """The times that apply while a host waits, or is waited for.

    - `live`: the operator's present rules, with the time that a host may take for input responses.
    - `patience`: the keep-alive interval of a host that waits for an answer.
    """

    live: RuntimeConfig
    patience: timedelta


class Calls:
    """The requests of modern hosts that this process sends to servers; one object per process.

    `call`, `relay`, `forward` and `retry` each serve one request, and return when its answer is
    known. `correspond` is called once at start. `sweep` is called now and then. At the end `stop`
    is called, and then `close`.

    `sender` sends the calls. `states` seals and opens `requestState`.
    """

    def __init__(
        self,
        *,
        dialect: ModernDownstream,
        tasks: TaskService,
        sender: CallSender,
        states: RequestStates,
        waits: HoldTimes,
        event_sink: EventSink,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._tasks = tasks
        self._dialect = dialect
        self._event_sink = event_sink
        self._waiter = ResponseWaiter(dialect=dialect, patience=waits.patience)
        self._sender = sender
        self._promotion = Promotion(tasks=tasks, sender=sender, attending=self._waiter, clock=clock)
        self._holds = HeldCalls(live=waits.live, clock=clock, entropy=entropy)
        self._rounds = RoundStates(dialect=dialect, states=states, holds=self._holds, live=waits.live, clock=clock)
        self._background = Background()
        self._remote_retries: RemoteRetries | None = None

    def correspond(self, bus: ClusterBus, entropy: Entropy) -> None:
        """Connect to the other replicas over `bus`; called once at start, if there are some.

        Only the replica that holds a call can continue it. From then on a retry that comes here is
        forwarded to the holder, and retries that others forward are served here.
        """
        self._holds.mark = bus.holder
        services = RetryServices(self._holds, self._waiter, self._dialect, self._check_retry, self._resume)
        self._remote_retries = RemoteRetries(bus=bus, entropy=entropy, services=services)

    async def call(
        self, exchange: Exchange, caller: AuthContext, session: SharedSession, meta: RequestMeta, intent: CallTool
    ) -> RpcReply:
        """Answer a `tools/call`: with its result, the handle of a task, or input requests.

        Raises TaskSupportMismatch for a tool that runs only as a task and a host without tasks.
        Raises UpstreamFailed, QueueFull without a permit, InvalidParams for an idempotency key of
        another call, and what TaskService.create raises if a task is created at once. Raises
        ScopeCancelled when the host disconnected, and CutOff when the gateway shuts down.
        """
        call = new_call(exchange, caller, session, meta, intent)
        decision = await self._apply_rules(call, intent)
        if decision.would_promote and meta.declares_tasks:
            self._event_sink.emit(ShadowPromotion(session.mount.name))
        # Sent without a task, a repeated key would run the call a second time beside its task.
        if intent.idempotency_key is not None and not call.may_become_task:
            await self._refuse_key_of_task(call, intent)
        if intent.idempotency_key is not None or decision.join_retries is not None:
            call.coalesce_key = CoalesceKey(
                session.owner, intent, decision.join_retries, era=Era.MODERN, features=client_features(session.peer)
            )
        return await (self._create_task_or_send(call) if call.may_become_task else self._send(call))

    async def relay(
        self, exchange: Exchange, caller: AuthContext, session: SharedSession, meta: RequestMeta, intent: Relay
    ) -> RpcReply:
        """Answer any other request: with the server's answer, or input requests if its method has
        rounds (`SLOW_METHODS`). Raises what `call` raises.
        """
        if intent.method in SLOW_METHODS:
            return await self._send(new_call(exchange, caller, session, meta, intent))
        response = await self.forward(exchange, caller, session, meta, intent)
        answer = partial(self._dialect.answer, intent.id, intent.method, response, session.upstream.era, session.info)
        return RpcReply(await offload(len(response.text), answer), error_of(response))

    async def forward(
        self, exchange: Exchange, caller: AuthContext, session: SharedSession, meta: RequestMeta, intent: Relay
    ) -> Response:
        """Send a request that needs no input of the host, and return the server's response as it
        is. Raises what `call` raises.
        """
        call = new_call(exchange, caller, session, meta, intent)
        keepalives, token = self._waiter.keepalives, meta.progress_token
        with RequestListener(exchange, token, keepalives, self._dialect, meta.log_level, intent.id) as listener:
            return await self._waiter.wait(exchange, call.send(listener))

    async def retry(
        self, exchange: Exchange, caller: AuthContext, session: SharedSession, meta: RequestMeta, intent: Retry
    ) -> RpcReply:
        """Answer a request that was sent again with input responses.

        A state of a held call continues that call, here or at the replica that holds it. With the
        state of a server's own round, or without one, the request is sent anew.

        Raises InvalidParams for a `requestState` of another request, one that was used or has
        expired, and for a response that fits no input request. Otherwise raises what `call` raises.
        """
        state = await self._rounds.opened(caller, session, intent)
        if isinstance(state, HeldCallState):
            holder = self._holds.holder_elsewhere(state.id)
            if holder is not None and self._remote_retries is not None:
                call = new_call(exchange, caller, session, meta, intent.request)
                return await self._remote_retries.forward(call, intent, state, holder)
            call = await self._check_retry(exchange, caller, session, meta, intent.request)
            # No await from here until `stop_wait`: otherwise two retries could continue one round.
            held = self._holds.find(caller.owners(session.mount.name), state.id, state.round)
            call.session = held.session
            return await self._resume(held, call, intent)
        # The session tells the server's era. A legacy server has no rounds: responses that it did
        # not ask for are left out (M-MRTR-5).
        await self.wait_for_session(exchange, meta, session.upstream.open())
        call = await self._check_retry(exchange, caller, session, meta, intent.request)
        if session.upstream.era is Era.MODERN:
            call.change(self._dialect.with_answers(intent, None if state is None else state.state))
        # A state proves that the call was accepted before and was not made a task, so it is sent.
        # Responses alone prove nothing: the call is treated as a first one.
        return await (self._create_task_or_send(call) if state is None else self._send(call))

    async def wait_for_session(self, exchange: Exchange, meta: RequestMeta, work: Awaitable[Awaited]) -> Awaited:
        """Await `work`, which opens a session with a server before a request is sent; return its
        result.

        The host gets keep-alives meanwhile. Raises what `ResponseWaiter.wait` raises.
        """
        return await self._waiter.wait_for_session(exchange, meta, work)

    def count_refused(self, mount: str, tool: str | None) -> None:
        """Count a call that `ModernRequests` refused before it came here.

        `tool` is None if it is unknown whether the server lists it.
        """
        self._event_sink.emit(ToolCalled(mount, tool, "rejected"))

    def sweep(self) -> None:
        """Cancel the held calls whose host did not send the input responses in time."""
        self._holds.sweep()

    def stop(self) -> None:
        """End what still runs, at shutdown.

        Hosts that wait for a response get an error. The questions of held calls are refused, and
        the calls cancelled.
        """
        self._waiter.stop()
        self._holds.stop()

    async def close(self) -> None:
        """Cancel the remaining calls, and wait until their servers are notified."""
        self._waiter.close()
        if self._remote_retries is not None:
            await self._remote_retries.close()
        await self._background.close()

    # --- the course of a request --------------------------------------------------------------------------------------

    async def _apply_rules(self, call: ModernCall, request: CallTool) -> PromotionDecision:
        """Note in the call what the promotion rules of its tool allow, without a wait if possible.

        Returns the operator's decision. Raises TaskSupportMismatch if the tool runs only as a task,
        and its host declares no tasks.
        """
        session, tool, declares_tasks = call.session, request.tool, call.meta.declares_tasks
        decision = self._tasks.decided(session, tool)
        if decision is None or (decision.mode is PromotionMode.REQUIRED and not declares_tasks):
            # The decision needs what the server declares about the tool. So does a refusal,
            # because `decided` may be too strict for some tools. Reading that may open a session.
            decision = await self.wait_for_session(call.exchange, call.meta, self._tasks.decide(session, tool))
            if decision.mode is PromotionMode.REQUIRED and not declares_tasks:
                self._sender.count(call, "rejected")
                raise TaskSupportMismatch("This tool runs only as a task")
        # Without `stored_params` the call cannot be stored, and so cannot be a task.
        if decision.mode is not PromotionMode.SYNC and declares_tasks and request.stored_params is not None:
            call.may_become_task, call.mode, call.grace = True, decision.mode, decision.inline_grace
            # A host that wants progress gets it with its own token, so its call is relayed.
            call.task_params = request.stored_params if request.progress_token is None else None
        return decision

    async def _check_retry(
        self,
        exchange: Exchange,
        caller: AuthContext,
        session: SharedSession,
        meta: RequestMeta,
        request: CallTool | Relay,
    ) -> ModernCall:
        """Return the call of a retry, with what the promotion rules of its tool allow now.

        They may have changed since the first request. Raises TaskSupportMismatch if the tool now
        runs only as a task, and the host declares no tasks.
        """
        call = new_call(exchange, caller, session, meta, request)
        if isinstance(request, CallTool):
            await self._apply_rules(call, request)
        return call

    async def _refuse_key_of_task(self, call: ModernCall, request: CallTool) -> None:
        """Refuse a call if its idempotency key belongs to a task, and its host cannot get a task.

        Raises TaskSupportMismatch.
        """
        if await self._tasks.earlier(call.caller, call.session, request) is not None:
            self._sender.count(call, "rejected")
            raise TaskSupportMismatch("The call with this idempotency key runs as a task")

    async def _create_task_or_send(self, call: ModernCall) -> RpcReply:
        """Answer with the handle of a task that is created now, or send the call."""
        record = await self._promotion.create_before_send(call)
        return await self._send(call) if record is None else self._task_reply(call, record)

    async def _send(self, call: ModernCall) -> RpcReply:
        """Send a request, and answer it: detached if it may outlive this, else in place.

        Either way a round of a modern server passes through.
        """
        # As a task, or held for input responses.
        may_outlive = call.may_become_task or (call.session.may_be_asked and call.method in SLOW_METHODS)
        if may_outlive:
            return await self._send_detached(call)
        keepalives, token = self._waiter.keepalives, call.meta.progress_token
        listener = RequestListener(call.exchange, token, keepalives, self._dialect, call.log_level, passes_rounds=True)
        with listener:
            key, sender = call.coalesce_key, self._sender
            work = sender.send(call, listener) if key is None else sender.send_joined(call, key, listener)
            response = await self._waiter.wait(call.exchange, work)
        return await self._rounds.answered(call, response, listener.missing)

    async def _send_detached(self, call: ModernCall) -> RpcReply:
        """Send a call that may outlive its request, in a background task, and answer the request.

        The permit is released when the call ends.
        """
        flight = InflightCall(most=self._holds.most)
        if call.coalesce_key is not None:
            record = await self._promotion.find_equal_task(call)
            if record is not None:
                self._sender.count(call, "task")
                return self._task_reply(call, record)
            # Equal calls share one permit, so it is acquired within the shared call.
            flight.start(call.session, self._background, partial(self._sender.send_joined, call, call.coalesce_key))
            return await self._follow(call, flight, None)
        permit = self._sender.acquire(call)
        if not permit.is_granted:
            record = await self._promotion.wait_for_permit(call, permit)
            if record is not None:
                return self._task_reply(call, record)
        self._count_sent(call)
        flight.start(call.session, self._background, call.send, permit)
        return await self._follow(call, flight, None)

    async def _resume(self, held: Held, call: ModernCall, intent: Retry) -> RpcReply:
        """Give a held call the input responses of a retry, and answer the retry.

        Raises InvalidParams for invalid responses, before anything changed. Then the call stays
        held, and the host may try again.
        """
        flight = held.flight
        if client_features(call.meta.peer) != client_features(held.session.peer):
            raise InvalidParams("A retry must declare the same capabilities as the first request")
        for key, answer in intent.answers.items():
            question = flight.questions.get(key)
            if question is not None and not self._dialect.is_valid_answer(question.question.method, answer):
                raise InvalidParams("An input response does not match its input request")
        self._count_sent(call)
        self._holds.stop_wait(held)
        for key, answer in intent.answers.items():
            flight.answer(key, answer, principal_of(call.caller))
        return await self._follow(call, flight, held)

    async def _follow(self, call: ModernCall, flight: InflightCall, held: Held | None) -> RpcReply:
        """Wait for a call until there is an answer for the host, and return it.

        `held` is None if the call was not held before. If the host disconnects, or this raises for
        another reason, the call is cancelled and no longer held.
        """
        try:
            keepalives, token = self._waiter.keepalives, call.meta.progress_token
            with RequestListener(call.exchange, token, keepalives, self._dialect, call.log_level) as listener:
                flight.set_listener(listener)
                reply = await self._outcome(call, flight, held)
        except BaseException:
            flight.close()
            if held is not None:
                self._holds.end(held)
            raise
        return reply

    async def _outcome(self, call: ModernCall, flight: InflightCall, held: Held | None) -> RpcReply:
        """Return the answer: a task, the next input requests, or the server's response."""
        record = await self._promotion.promote_after_grace(call, flight)
        while record is None:
            await self._waiter.wait(call.exchange, flight.wait_for_change(None))
            if not flight.is_over:
                # The server may ask several questions at once: they go to the host together.
                await self._waiter.wait(call.exchange, flight.wait_quiet(QUIET))
            if flight.is_over:
                break
            # A question may have been withdrawn meanwhile.
            if flight.questions:
                return await self._rounds.ask(call, flight, held)
        # No more rounds: the call has ended, or is a task now.
        if held is not None:
            self._holds.end(held)
        if record is not None:
            return self._task_reply(call, record)
        return await self._rounds.answered(call, await flight.response(), flight.missing)

    def _task_reply(self, call: ModernCall, record: TaskRecord) -> RpcReply:
        return RpcReply(self._dialect.task_created(call.id, record))

    def _count_sent(self, call: ModernCall) -> None:
        """Count a call that is about to be sent. One that may become a task is counted later."""
        if not call.may_become_task:
            self._sender.count(call, "direct")
