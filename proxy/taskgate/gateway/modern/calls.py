"""Requests of the modern era that servers answer: waited for, turned into tasks, or held until their host is back.

A call that may take long becomes a task where its host knows tasks and the operator wants it (decisions 3, 5); where
its server asks the host something, that is an input of the task, or else the call is held and its host sent for the
answers (decisions 18). What must not live here: how a request is waited for (`attending`) and comes to its turn
(`turns`), what may become a task and how it does (`promotion`), where a call waits for its host (`holds`), and how
rounds of questions and answers are written and read (`rounds`).
"""

from collections.abc import Awaitable
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple, TypeVar

from taskgate.admission.callers import principal
from taskgate.admission.joining import CoalesceKey, RequestCoalescer
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
from taskgate.protocol.envelope import Response
from taskgate.protocol.intents import CallTool, Relay
from taskgate.protocol.modern_requests import ModernDialect, RequestMeta, Retry
from taskgate.sessions.call_sites import asked_of
from taskgate.streams.exchange import Exchange, RpcReply, error_of
from taskgate.system.background import Background
from taskgate.system.offload import offloaded
from taskgate.telemetry.events import EventSink, ShadowPromotion, ToolCalled

QUIET: Final = 0.05
"""Seconds without a question after which a server is taken to have asked all that it asks at once: messages that were
sent together arrive together but for a network's jitter, and nobody who is asked something notices so little."""

Met = TypeVar("Met")


class HoldTimes(NamedTuple):
    """How long a host may take to bring answers, which may change, and a silence to become a stream."""

    live: RuntimeConfig
    patience: timedelta


class Calls:
    """Carries them."""

    def __init__(
        self,
        *,
        dialect: ModernDialect,
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
        """Have requests go on with calls that other processes hold, and theirs with what is held here."""
        self._holds.mark = bus.holder
        mates = RetryServices(self._holds, self._attending, self._dialect, self._let_in, self._resume)
        self._bringing = RemoteRetries(bus=bus, entropy=entropy, mates=mates)

    async def call(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: CallTool
    ) -> RpcReply:
        """The answer to a `tools/call`: its result, the handle of a task, or what the host is asked first.

        Raises TaskSupportMismatch for a tool that runs only as a task and a host without them, UpstreamFailed,
        QueueFull where it does not come to its turn, InvalidParams for an idempotency key of another call, what
        TaskService.create does where a task is made at once, Interrupted when the host left, and CutOff when the
        gateway ends.
        """
        decision = await self._decision(exchange, line, said, intent)
        if decision.would_promote and said.declares_tasks:
            self._event_sink.emit(ShadowPromotion(line.mount.name))
        outbound = self._ruled(_outbound(exchange, caller, line, said, intent), intent, decision)
        if intent.repeat_key is not None and not outbound.may_become_task:
            await self._refuse_what_is_a_task(outbound, intent)
        if intent.repeat_key is not None or decision.join_retries is not None:
            asking = CoalesceKey(line.owner, intent, decision.join_retries, era=Era.MODERN, asks=asked_of(line.peer))
            outbound = outbound._replace(asking=asking)
        return await (self._made_or_carried(outbound) if outbound.may_become_task else self._carry(outbound))

    async def relay(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: Relay
    ) -> RpcReply:
        """The answer to any other request: its server's, or what the host is asked first. Raises as `call`."""
        if intent.method in IN_ROUNDS:
            return await self._carry(_outbound(exchange, caller, line, said, intent))
        response = await self.forward(exchange, caller, line, said, intent)
        answer = partial(self._dialect.answer, intent.id, intent.method, response, line.upstream.era, line.info)
        return RpcReply(await offloaded(len(response.text), answer), error_of(response))

    async def forward(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: Relay
    ) -> Response:
        """The server's response to a request of which the host is asked nothing. Raises as `call`."""
        outbound = _outbound(exchange, caller, line, said, intent)
        with self._attending.telling(exchange, said, intent.id) as telling:
            return await self._attending.wait(exchange, outbound.send(telling))

    async def retry(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, intent: Retry
    ) -> RpcReply:
        """The answer to a request that was sent again with what its host was asked for.

        Raises InvalidParams for a state that is not this request's, or was used, or is over, and for an answer that
        fits no question; otherwise as `call`.
        """
        state = await self._rounds.opened(caller, line, intent)
        if isinstance(state, HeldCallState):
            holder = self._holds.holder_elsewhere(state.id)
            if holder is not None and self._bringing is not None:
                outbound = _outbound(exchange, caller, line, said, intent.request)
                return await self._bringing.bring(outbound, intent, state, holder)
            outbound = await self._let_in(exchange, caller, line, said, intent.request)
            # Nothing is waited for from here until it is taken: it counts once.
            held = self._holds.find(caller.owners(line.mount.name), state.id, state.round)
            return await self._resume(held, outbound._replace(line=held.line), intent)
        # A server of the legacy era knows no rounds: what it never asked for is left out (M-MRTR-5).
        await self.meet(exchange, said, line.upstream.open())
        outbound = await self._let_in(exchange, caller, line, said, intent.request)
        if line.upstream.era is Era.MODERN:
            outbound = outbound._replace(sends=self._dialect.again(intent, None if state is None else state.state))
        # Answers alone make no call one that was let in before.
        return await (self._made_or_carried(outbound) if state is None else self._carry(outbound))

    async def meet(self, exchange: Exchange, said: RequestMeta, work: Awaitable[Met]) -> Met:
        """What comes of `work`, for which a server is met before a request goes to it; see ResponseWaiter."""
        return await self._attending.meet(exchange, said, work)

    def turned_away(self, mount: str, tool: str | None) -> None:
        """Count a call that was refused before it came here; `tool` None where nobody knows whether it is listed."""
        self._event_sink.emit(ToolCalled(mount, tool, "rejected"))

    def sweep(self) -> None:
        """Give up the held calls whose host did not come back in time."""
        self._holds.sweep()

    def stop(self) -> None:
        """Give up what is still carried: hosts that wait are told so, and servers that wait for one."""
        self._attending.stop()
        self._holds.stop()

    async def close(self) -> None:
        """No call is carried any more, nor runs as a task: wait until the servers know."""
        self._attending.close()
        if self._bringing is not None:
            await self._bringing.close()
        await self._flying.close()

    # --- what becomes of a request ----------------------------------------------------------------------------------

    async def _decision(
        self, exchange: Exchange, line: SharedSession, said: RequestMeta, call: CallTool
    ) -> PromotionDecision:
        decision = self._tasks.decided(line, call.tool)
        if decision is None or (decision.mode is PromotionMode.REQUIRED and not said.declares_tasks):
            # The server's own word of the tool is needed, also before a refusal; it may have to be met for it.
            decision = await self.meet(exchange, said, self._tasks.decide(line, call.tool))
        return decision

    async def _let_in(
        self, exchange: Exchange, caller: AuthContext, line: SharedSession, said: RequestMeta, request: CallTool | Relay
    ) -> OutboundCall:
        """A request that is sent again. Raises TaskSupportMismatch."""
        outbound = _outbound(exchange, caller, line, said, request)
        if not isinstance(request, CallTool):
            return outbound
        return self._ruled(outbound, request, await self._decision(exchange, line, said, request))

    def _ruled(self, outbound: OutboundCall, call: CallTool, decision: PromotionDecision) -> OutboundCall:
        """A call that is let in, on the terms of its tool. Raises TaskSupportMismatch."""
        mode, declares_tasks = decision.mode, outbound.said.declares_tasks
        if mode is PromotionMode.REQUIRED and not declares_tasks:
            self._turns.refused(outbound)
            raise TaskSupportMismatch("This tool runs only as a task")
        if mode is PromotionMode.SYNC or not declares_tasks or call.kept is None:
            return outbound
        return outbound._replace(may_become_task=True, mode=mode, grace=decision.inline_grace)

    async def _refuse_what_is_a_task(self, outbound: OutboundCall, call: CallTool) -> None:
        """Refuse a call whose key stands for a task, where its host cannot be given one. Raises TaskSupportMismatch."""
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
        """Carry a call that may outlive its request."""
        flight = InflightCall(most=self._holds.most)
        if outbound.asking is not None:
            record = await self._promotion.earlier(outbound)
            if record is not None:
                self._turns.count(outbound, "task")
                return self._handle(outbound, record)
            flight.leave(outbound.line, self._flying, partial(self._turns.send, outbound))
            return await self._follow(outbound, flight, None)
        ticket = self._turns.ask(outbound)
        if not ticket.granted:
            came = await self._promotion.queued(outbound, ticket)
            if isinstance(came, TaskRecord):
                return self._handle(outbound, came)
            outbound = came
        self._turns.left(outbound)
        flight.leave(outbound.line, self._flying, outbound.send, ticket)
        return await self._follow(outbound, flight, None)

    async def _resume(self, held: Held, outbound: OutboundCall, intent: Retry) -> RpcReply:
        """Go on with a held call; where what the host brings cannot be taken, it stays held for a better try."""
        flight = held.flight
        if asked_of(outbound.said.peer) != asked_of(held.line.peer):
            raise InvalidParams("A retry must declare the same capabilities as the first request")
        for key, answer in intent.answers.items():
            question = flight.questions.get(key)
            if question is not None and not self._dialect.fits(question.question.method, answer):
                raise InvalidParams("An input response does not match its input request")
        self._turns.left(outbound)
        self._holds.take(held)
        for key, answer in intent.answers.items():
            flight.answer(key, answer, principal(outbound.caller))
        return await self._follow(outbound, flight, held)

    async def _follow(self, outbound: OutboundCall, flight: InflightCall, held: Held | None) -> RpcReply:
        """Wait with the host for a call until there is something to tell it; should it leave, the call ends."""
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
