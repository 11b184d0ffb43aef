"""The rounds of a call of a modern host: `RoundStates` encodes the answer of each.

In a round the host gets `inputRequests` with a `requestState`, and sends both back in a retry, with
its responses. There are two kinds of rounds:

- A held call (`holds`) waits in this process. The state has its id and the number of the round.
- A modern server asks in its answer, and then has ended its call. Its round passes through to the
  host, with the server's own state inside the gateway's. The retry is sent as a new request.

States are sealed and bound to the caller, the mount and the request. `Calls` calls `answered` for a
response of a server, `ask` for a held call, and `opened` for a retry.
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
from taskgate.gateway.modern.outbound_calls import ModernCall
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.protocol.host_requests import CallTool, Relay, Retry
from taskgate.protocol.messages import Response
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.streams.exchange import RpcReply, error_of
from taskgate.system.offload import LARGE, in_thread, offload


class RoundStates:
    """The encoder of rounds, and the opener of their states.

    A state is valid for as long as a host may take to send its responses.
    """

    def __init__(
        self,
        *,
        dialect: ModernDownstream,
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

    async def answered(self, call: ModernCall, response: Response, missing: Mapping[str, Any]) -> RpcReply:
        """Return the answer for the host to a response of its server; a round passes through.

        `missing` are capabilities that the server asked for during the call and the host does not
        declare. Raises MissingCapability if the call then failed (V-META-5), and if a round of the
        server needs a capability that the host does not declare.
        """
        if missing and error_of(response) is not None:
            raise MissingCapability(missing)
        era, id_ = call.session.upstream.era, call.id
        asked = self._dialect.round_of(response) if era is Era.MODERN else None
        if asked is None:
            answer = partial(self._dialect.answer, id_, call.method, response, era, call.session.info)
            return RpcReply(answer() if len(response.text) <= LARGE else await in_thread(answer), error_of(response))
        undeclared = self._dialect.missing_capabilities(response, call.meta.peer)
        if undeclared:
            # The server was told what it may ask, and a host gets no question that it did not
            # declare (M-MRTR-2).
            raise MissingCapability(undeclared)
        state = None if asked.state is None else await self._sealed(call, PassThroughState(asked.state))
        return RpcReply(self._dialect.passed_round(id_, response, state, call.session.info))

    async def ask(self, call: ModernCall, flight: InflightCall, held: Held | None) -> RpcReply:
        """Hold a call for one more round, and return the answer with its questions.

        `held` is None for the first round of the call. Raises TooManyTasks if no more calls may be
        held; the caller then closes the call.
        """
        held = held or self._holds.new(call.session, flight)
        if held is None:
            # The caller cancels the call next. Before that the server learns that its questions
            # have no answer.
            flight.refuse()
            raise TooManyTasks(self._holds.most, of="calls waiting for input from their host")
        self._holds.start_wait(held)
        questions = {key: question.question for key, question in flight.questions.items()}
        state = await self._sealed(call, HeldCallState(held.id, held.round))
        return RpcReply(self._dialect.input_required(call.id, questions, state))

    async def opened(
        self, caller: AuthContext, session: SharedSession, intent: Retry
    ) -> HeldCallState | PassThroughState | None:
        """Return what the `requestState` of a retry contains; None if the retry has none.

        Raises InvalidParams for one of another request, caller or mount, and for an expired one.
        """
        if intent.state is None:
            return None
        mount, digest = session.mount.name, await self._digest(intent.request)
        contexts = [owner.context for owner in caller.owners(mount)]
        return self._states.open(intent.state, contexts=contexts, mount=mount, digest=digest, now=self._clock.now())

    async def _digest(self, request: CallTool | Relay) -> str:
        size = 0 if request.params is None else request.params.size
        return await offload(size, partial(self._dialect.digest, request))

    async def _sealed(self, call: ModernCall, what: HeldCallState | PassThroughState) -> str:
        owner, digest = call.session.owner, await self._digest(call.request)
        until = self._clock.now() + self._live.current.questions.wait
        return self._states.seal(what, context=owner.context, mount=owner.mount, digest=digest, until=until)
