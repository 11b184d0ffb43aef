"""The rounds of a call of a modern host: `RoundStates`. It writes input requests for the host, and
opens the `requestState` that the host sends back.

There are two kinds of rounds. For a held call (`holds`) the state has the id of the call and the
number of the round. A modern server has rounds of its own: they pass through, with the server's
state inside. States are sealed and bound to the caller, the mount and the request. `Calls` uses
this for every answer of a call.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.request_state import HeldCallState, PassThroughState, RequestStates
from taskgate.domain.versions import Era
from taskgate.errors import MissingCapability, TooManyTasks
from taskgate.gateway.modern.flights import InflightCall
from taskgate.gateway.modern.holds import Held, HeldCalls
from taskgate.gateway.modern.outbound_calls import OutboundCall
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.protocol.dialects import ModernDownstreamDialect
from taskgate.protocol.host_requests import CallTool, Relay, Retry
from taskgate.protocol.messages import Response
from taskgate.streams.exchange import RpcReply, error_of
from taskgate.system.offload import LARGE, in_thread, offload


class RoundStates:
    """The writer and reader of rounds. A state is valid as long as a host may take for its
    responses.
    """

    def __init__(
        self,
        *,
        dialect: ModernDownstreamDialect,
        states: RequestStates,
        holds: HeldCalls,
        live: RuntimeConfig,
        clock: Clock,
    ) -> None:
        self._dialect = dialect
        self._states = states
        self._holds = holds
        self._live = live
        self._clock = clock

    async def answered(self, outbound: OutboundCall, response: Response, missing: Mapping[str, Any]) -> RpcReply:
        """Return the answer for the host; a round of the server passes through.

        Raises MissingCapability if the call failed after a question that the host cannot be asked
        (V-META-5), and if the server's round asks such a question.
        """
        if missing and error_of(response) is not None:
            raise MissingCapability(missing)
        era, id_ = outbound.line.upstream.era, outbound.request.id
        asked = self._dialect.round_of(response) if era is Era.MODERN else None
        if asked is None:
            answer = partial(self._dialect.answer, id_, outbound.method, response, era, outbound.line.info)
            return RpcReply(answer() if len(response.text) <= LARGE else await in_thread(answer), error_of(response))
        undeclared = self._dialect.missing_capabilities(response, outbound.said.peer)
        if undeclared:
            # The server knew what it may ask, and the host is not asked what it did not declare
            # (M-MRTR-2).
            raise MissingCapability(undeclared)
        state = None if asked.state is None else await self._sealed(outbound, PassThroughState(asked.state))
        return RpcReply(self._dialect.passed_round(id_, response, state, outbound.line.info))

    async def ask(self, outbound: OutboundCall, flight: InflightCall, held: Held | None) -> RpcReply:
        """Return the input requests of a held call. Raises TooManyTasks if no more calls may be
        held.
        """
        held = held or self._holds.new(outbound.line, flight)
        if held is None:
            # Before the call is cancelled: its server gets a refusal that is not the user's.
            flight.refuse()
            raise TooManyTasks(self._holds.most, of="calls waiting for input from their host")
        self._holds.leave(held)
        questions = {key: question.question for key, question in flight.questions.items()}
        state = await self._sealed(outbound, HeldCallState(held.id, held.round))
        return RpcReply(self._dialect.input_required(outbound.request.id, questions, state))

    async def opened(
        self, caller: AuthContext, line: SharedSession, intent: Retry
    ) -> HeldCallState | PassThroughState | None:
        """Open the state that the host sent back; None if there is none.

        Raises InvalidParams for a state of another request.
        """
        if intent.state is None:
            return None
        mount, digest = line.mount.name, await self._digest(intent.request)
        contexts = [owner.context for owner in caller.owners(mount)]
        return self._states.open(intent.state, contexts=contexts, mount=mount, digest=digest, now=self._clock.now())

    async def _digest(self, request: CallTool | Relay) -> str:
        size = 0 if request.params is None else request.params.size
        return await offload(size, partial(self._dialect.digest, request))

    async def _sealed(self, outbound: OutboundCall, what: HeldCallState | PassThroughState) -> str:
        owner, digest = outbound.line.owner, await self._digest(outbound.request)
        until = self._clock.now() + self._live.current.questions.wait
        return self._states.seal(what, context=owner.context, mount=owner.mount, digest=digest, until=until)
