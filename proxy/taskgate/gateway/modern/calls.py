"""The requests of modern hosts that servers answer: `Calls`.

`ModernRequests` calls `call` for `tools/call`, `relay` for other requests, and `retry` for a
request that was sent again with input responses. A call ends in one of three ways:

- its response is the answer;
- it becomes a task, if the host declares tasks and the operator's rules want it (`promotion`);
- its server asks something that needs the host. A task stores the question as an input request.
  Otherwise the call is held (`holds`), and the answer is `inputRequests` with a `requestState`
  (`rounds`). The host sends the request again with both, and the call continues.

`attending` waits for responses, and `turns` for permits.
"""

from collections.abc import Awaitable
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple, TypeVar

from taskgate.admission.callers import principal_of
from taskgate.admission.coalescing import CoalesceKey, RequestCoalescer
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
from taskgate.gateway.modern.holds import Held, HeldCalls
from taskgate.gateway.modern.outbound_calls import IN_ROUNDS, OutboundCall
from taskgate.gateway.modern.promotion import Promotion
from taskgate.gateway.modern.remote_retry import RemoteRetries, RetryServices
from taskgate.gateway.modern.rounds import RoundStates
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.gateway.modern.turns import Turns
from taskgate.lifecycle.task_service import TaskService
from taskgate.protocol.dialects import ModernDownstreamDialect
from taskgate.protocol.host_requests import CallTool, Relay, RequestMeta, Retry
from taskgate.protocol.messages import Response
from taskgate.sessions.binding import client_features
from taskgate.streams.exchange import Exchange, RpcReply, error_of
from taskgate.system.background import Background
from taskgate.system.offload import offload
from taskgate.telemetry.events import EventSink, ShadowPromotion, ToolCalled

QUIET: Final = 0.05
"""Seconds without a question after which the server's group of questions counts as complete.
Questions that were sent together arrive together but for network jitter, and a person who is asked
does not notice the delay."""

Met = TypeVar("Met")


class HoldTimes(NamedTuple):
    """The operator's rules, with the time for input responses, and the keep-alive interval."""

    live: RuntimeConfig
    patience: timedelta


class Calls:
    """The requests of modern hosts that this process sends to servers."""

    def __init__(
        self,
        *,
        dialect: ModernDownstreamDialect,
        tasks: TaskService,
        joining: RequestCoalescer,
        states: RequestStates,
        waits: HoldTimes,
        event_sink: EventSink,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._tasks = tasks
        self._dialect = dialect
        self._event_sink = event_sink
        self._attending = ResponseWaiter(dialect=dialect, patience=waits.patience)
        self._turns = Turns(joining=joining, event_sink=event_sink)
        self._promotion = Promotion(
            tasks=tasks, joining=joining, turns=self._turns, attending=self._attending, clock=clock
        )
        self._holds = HeldCalls(live=waits.live, clock=clock, entropy=entropy)
        self._rounds = RoundStates(dialect=dialect, states=states, holds=self._holds, live=waits.live, clock=clock)
        self._flying = Background()
        self._bringing: RemoteRetries | None = None

    def correspond(self, bus: ClusterBus, entropy: Entropy) -> None:
        """Connect to the other replicas: forward retries of calls that they hold, and serve theirs."""
        self._holds.mark = bus.holder
        mates = RetryServices(self._holds, self._attending, self._dialect, self._let_in, self._resume)
        self._bringing = RemoteRetries(bus=bus, entropy=entropy, mates=mates)

    async def call(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: CallTool
    ) -> RpcReply:
        """Answer a `tools/call`: with its result, the handle of a task, or input requests.

        Raises TaskSupportMismatch for a tool that runs only as a task and a host without tasks.
        Raises UpstreamFailed, QueueFull without a permit, InvalidParams for an idempotency key of
        another call, and what TaskService.create raises if a task is created at once. Raises
        Interrupted when the host disconnected, and CutOff when the gateway shuts down.
        """
        decision = await self._decision(exchange, line, said, intent)
        if decision.would_promote and said.declares_tasks:
            self._event_sink.emit(ShadowPromotion(line.mount.name))
        outbound = self._ruled(_outbound(exchange, caller, line, said, intent), intent, decision)
        if intent.idempotency_key is not None and not outbound.may_become_task:
            await self._refuse_what_is_a_task(outbound, intent)
        if intent.idempotency_key is not None or decision.join_retries is not None:
            asking = CoalesceKey(
                line.owner, intent, decision.join_retries, era=Era.MODERN, features=client_features(line.peer)
            )
            outbound = outbound._replace(asking=asking)
        return await (self._made_or_carried(outbound) if outbound.may_become_task else self._carry(outbound))

    async def relay(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: Relay
    ) -> RpcReply:
        """Answer any other request: with the server's answer, or input requests. Raises what `call`
        raises.
        """
        if intent.method in IN_ROUNDS:
            return await self._carry(_outbound(exchange, caller, line, said, intent))
        response = await self.forward(exchange, caller, line, said, intent)
        answer = partial(self._dialect.answer, intent.id, intent.method, response, line.upstream.era, line.info)
        return RpcReply(await offload(len(response.text), answer), error_of(response))

    async def forward(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: Relay
    ) -> Response:
        """Send a request that needs no input of the host, and return the response. Raises what
        `call` raises.
        """
        outbound = _outbound(exchange, caller, line, said, intent)
        with self._attending.telling(exchange, said, intent.id) as telling:
            return await self._attending.wait(exchange, outbound.send(telling))

    async def retry(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: Retry
    ) -> RpcReply:
        """Answer a request that was sent again with input responses.

        Raises InvalidParams for a `requestState` of another request, one that was used or has
        expired, and for a response that fits no input request. Otherwise raises what `call` raises.
        """
        state = await self._rounds.opened(caller, line, intent)
        if isinstance(state, HeldCallState):
            holder = self._holds.holder_elsewhere(state.id)
            if holder is not None and self._bringing is not None:
                outbound = _outbound(exchange, caller, line, said, intent.request)
                return await self._bringing.bring(outbound, intent, state, holder)
            outbound = await self._let_in(exchange, caller, line, said, intent.request)
            # No await from here until the call is taken: a round counts once.
            held = self._holds.find(caller.owners(line.mount.name), state.id, state.round)
            return await self._resume(held, outbound._replace(line=held.line), intent)
        # A server of the legacy era has no rounds: responses that it did not ask for are left out
        # (M-MRTR-5).
        await self.meet(exchange, said, line.upstream.open())
        outbound = await self._let_in(exchange, caller, line, said, intent.request)
        if line.upstream.era is Era.MODERN:
            outbound = outbound._replace(
                sends=self._dialect.with_answers(intent, None if state is None else state.state)
            )
        # Only a state proves that the call was accepted before; responses alone do not.
        return await (self._made_or_carried(outbound) if state is None else self._carry(outbound))

    async def meet(self, exchange: Exchange, said: RequestMeta, work: Awaitable[Met]) -> Met:
        """Await `work`, which opens a session with a server before a request is sent; see
        `ResponseWaiter.meet`.
        """
        return await self._attending.meet(exchange, said, work)

    def turned_away(self, mount: str, tool: str | None) -> None:
        """Count a call that was refused earlier. `tool` is None if it is unknown whether the server
        lists it.
        """
        self._event_sink.emit(ToolCalled(mount, tool, "rejected"))

    def sweep(self) -> None:
        """Cancel the held calls whose host did not send the input responses in time."""
        self._holds.sweep()

    def stop(self) -> None:
        """Interrupt what still runs: waiting hosts get an error, and servers that wait for a host a
        refusal.
        """
        self._attending.stop()
        self._holds.stop()

    async def close(self) -> None:
        """Cancel the remaining calls, and wait until their servers are notified."""
        self._attending.close()
        if self._bringing is not None:
            await self._bringing.close()
        await self._flying.close()

    # --- the course of a request --------------------------------------------------------------------------------------

    async def _decision(
        self, exchange: Exchange, line: SharedSession, said: RequestMeta, call: CallTool
    ) -> PromotionDecision:
        decision = self._tasks.decided(line, call.tool)
        if decision is None or (decision.mode is PromotionMode.REQUIRED and not said.declares_tasks):
            # What the server declares about the tool is needed, also before a refusal. That may
            # need a session.
            decision = await self.meet(exchange, said, self._tasks.decide(line, call.tool))
        return decision

    async def _let_in(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, request: CallTool | Relay
    ) -> OutboundCall:
        """Check a request that was sent again by the rules of its tool. Raises TaskSupportMismatch."""
        outbound = _outbound(exchange, caller, line, said, request)
        if not isinstance(request, CallTool):
            return outbound
        return self._ruled(outbound, request, await self._decision(exchange, line, said, request))

    def _ruled(self, outbound: OutboundCall, call: CallTool, decision: PromotionDecision) -> OutboundCall:
        """Apply the promotion rules of its tool to a call. Raises TaskSupportMismatch."""
        mode, declares_tasks = decision.mode, outbound.said.declares_tasks
        if mode is PromotionMode.REQUIRED and not declares_tasks:
            self._turns.refused(outbound)
            raise TaskSupportMismatch("This tool runs only as a task")
        if mode is PromotionMode.SYNC or not declares_tasks or call.stored_params is None:
            return outbound
        return outbound._replace(may_become_task=True, mode=mode, grace=decision.inline_grace)

    async def _refuse_what_is_a_task(self, outbound: OutboundCall, call: CallTool) -> None:
        """Refuse a call if its idempotency key belongs to a task, and its host cannot get a task.

        Raises TaskSupportMismatch.
        """
        if await self._tasks.earlier(outbound.caller, outbound.line, call) is not None:
            self._turns.refused(outbound)
            raise TaskSupportMismatch("The call with this idempotency key runs as a task")

    async def _made_or_carried(self, outbound: OutboundCall) -> RpcReply:
        record = await self._promotion.made(outbound)
        return await self._carry(outbound) if record is None else self._handle(outbound, record)

    async def _carry(self, outbound: OutboundCall) -> RpcReply:
        if outbound.may_outlive:
            return await self._fly(outbound)
        with self._attending.telling(outbound.exchange, outbound.said, passes_rounds=True) as telling:
            response = await self._attending.wait(outbound.exchange, self._turns.send(outbound, telling))
        return await self._rounds.answered(outbound, response, telling.missing)

    async def _fly(self, outbound: OutboundCall) -> RpcReply:
        """Send a call that may outlive its request."""
        flight = InflightCall(most=self._holds.most)
        if outbound.asking is not None:
            record = await self._promotion.earlier(outbound)
            if record is not None:
                self._turns.count(outbound, "task")
                return self._handle(outbound, record)
            flight.leave(outbound.line, self._flying, partial(self._turns.send, outbound))
            return await self._follow(outbound, flight, None)
        ticket = self._turns.ask(outbound)
        if not ticket.is_granted:
            came = await self._promotion.queued(outbound, ticket)
            if isinstance(came, TaskRecord):
                return self._handle(outbound, came)
            outbound = came
        self._turns.left(outbound)
        flight.leave(outbound.line, self._flying, outbound.send, ticket)
        return await self._follow(outbound, flight, None)

    async def _resume(self, held: Held, outbound: OutboundCall, intent: Retry) -> RpcReply:
        """Continue a held call. If the responses are invalid, it stays held, and the host may try
        again.
        """
        flight = held.flight
        if client_features(outbound.said.peer) != client_features(held.line.peer):
            raise InvalidParams("A retry must declare the same capabilities as the first request")
        for key, answer in intent.answers.items():
            question = flight.questions.get(key)
            if question is not None and not self._dialect.is_valid_answer(question.question.method, answer):
                raise InvalidParams("An input response does not match its input request")
        self._turns.left(outbound)
        self._holds.take(held)
        for key, answer in intent.answers.items():
            flight.answer(key, answer, principal_of(outbound.caller))
        return await self._follow(outbound, flight, held)

    async def _follow(self, outbound: OutboundCall, flight: InflightCall, held: Held | None) -> RpcReply:
        """Wait for a call until there is an answer for the host. If the host disconnects, the call
        ends.
        """
        try:
            with self._attending.telling(outbound.exchange, outbound.said) as telling:
                flight.tell(telling)
                spoken = await self._outcome(outbound, flight, held)
        except BaseException:
            flight.close()
            if held is not None:
                self._holds.end(held)
            raise
        return spoken

    async def _outcome(self, outbound: OutboundCall, flight: InflightCall, held: Held | None) -> RpcReply:
        record = await self._promotion.promoted(outbound, flight)
        while record is None:
            await self._attending.wait(outbound.exchange, flight.stirs(None))
            if not flight.is_over:
                await self._attending.wait(outbound.exchange, flight.checkpoints(QUIET))
            if flight.is_over:
                break
            if flight.questions:
                return await self._rounds.ask(outbound, flight, held)
        if held is not None:
            self._holds.end(held)
        if record is not None:
            return self._handle(outbound, record)
        return await self._rounds.answered(outbound, await flight.response(), flight.missing)

    def _handle(self, outbound: OutboundCall, record: TaskRecord) -> RpcReply:
        return RpcReply(self._dialect.task_created(outbound.request.id, record))


def _outbound(
    exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, request: CallTool | Relay
) -> OutboundCall:
    return OutboundCall(exchange=exchange, caller=caller, line=line, said=said, request=request, sends=request)
