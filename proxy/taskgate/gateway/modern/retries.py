"""The retries of modern hosts: `HostRetries`, with the `HeldCalls` that wait for them.

A modern host cannot be asked on a stream. In a *round* it gets `inputRequests` with a
`requestState`, and sends its request again, with its responses and the state. There are two kinds
of rounds:

- A held call runs on at its server, and waits in this process (docs/decisions/0020). The state has
  its id and the number of the round. Only the first retry with that state continues the call; a
  second one finds no such round.
- A modern server asks in its answer, and then has ended its call. Its round passes through to the
  host, with the server's own state inside the gateway's. The retry is sent as a new request.

States are sealed and bound to the caller, the mount and the request. Another replica may hold the
call of a retry (`remote_retries`).
"""

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Sequence
from functools import partial
from logging import getLogger
from typing import Final

from taskgate.admission.callers import principal_of
from taskgate.admission.rules import RuntimeConfig
from taskgate.clock import Clock, Entropy
from taskgate.cluster.bus import ClusterBus
from taskgate.domain.record import OwnerKey
from taskgate.domain.request_state import HeldCallState, PassThroughState, RequestStateKeys
from taskgate.domain.versions import Era
from taskgate.errors import InvalidParams, MissingCapability, TooManyTasks
from taskgate.gateway.calls import Calls
from taskgate.gateway.eras import Call
from taskgate.gateway.listeners import InflightCall
from taskgate.gateway.modern.remote_retries import NewCall, RemoteRetries, RetryServices
from taskgate.jsontext.spans import RawJson
from taskgate.protocol.host_requests import CallTool, Relay, RequestMeta, Retry
from taskgate.protocol.messages import Response
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.modern.rounds import Round
from taskgate.sessions.binding import CallSite, client_features
from taskgate.streams.exchange import HttpReply
from taskgate.system.offload import offload

ID_BYTES: Final = 24
MAX_HELD: Final = 1024
"""The limit of held calls of all callers; each holds a connection to its server."""

log = getLogger("taskgate.stateless")


class HostRetries:
    """The encoder of rounds, and the handler of their retries.

    `answer` serves a retry. `hold` and `pass_round` encode a round. A state is valid for as long as
    a host may take to send its responses. `correspond` is called once at start, `sweep` now and
    then, at the end `stop` and then `close`.
    """

    def __init__(
        self,
        *,
        dialect: ModernDownstream,
        calls: Calls,
        states: RequestStateKeys,
        live: RuntimeConfig,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._dialect = dialect
        self._calls = calls
        self._states = states
        self._live = live
        self._clock = clock
        self._held = HeldCalls(live=live, clock=clock, entropy=entropy)
        self._remote: RemoteRetries | None = None

    def correspond(self, bus: ClusterBus, entropy: Entropy, new_call: NewCall) -> None:
        """Connect to the other replicas over `bus`; called once at start, if there are some.

        Only the replica that holds a call can continue it. From then on a retry that comes here is
        forwarded to the holder, and retries that others forward are served here.
        """
        self._held.mark = bus.holder
        services = RetryServices(
            self._held.find, self._calls.waiter, self._dialect, new_call, self._check, self._resume
        )
        self._remote = RemoteRetries(bus=bus, entropy=entropy, services=services)

    async def answer(self, call: Call, meta: RequestMeta, retry: Retry) -> HttpReply:
        """Answer a request that was sent again with input responses; `call` is that request.

        A state of a held call continues that call, here or at the replica that holds it. With the
        state of a server's own round, or without one, the request is sent anew.

        Raises InvalidParams for a `requestState` of another request, one that was used or has
        expired, and for a response that fits no input request. Otherwise raises what `Calls.answer`
        raises.
        """
        state = await self._opened(call, retry)
        if isinstance(state, HeldCallState):
            holder = self._held.holder_elsewhere(state.id)
            if holder is not None and self._remote is not None:
                return await self._remote.forward(call, meta, retry, state, holder)
            await self._check(call)
            # No await from here until `stop_wait`: otherwise two retries could continue one round.
            held = self._held.find(call.caller.owners(call.session.mount.name), state.id, state.round)
            return await self._resume(held, call, retry)
        # The session tells the server's era. A legacy server has no rounds: responses that it did
        # not ask for are left out (M-MRTR-5).
        upstream = call.session.upstream
        await self._calls.waiter.wait_for_session(call.listener, upstream.open())
        await self._check(call, goes_on=state is not None or upstream.era is Era.MODERN)
        if upstream.era is Era.MODERN:
            changed = self._dialect.with_answers(retry, None if state is None else state.state)
            call.params, call.task_params = changed.params, None
        # A state proves that the call was accepted before and was not made a task, so it is sent.
        # Responses alone prove nothing: the call is treated as a first one.
        return await (self._calls.create_or_send(call) if state is None else self._calls.send(call))

    async def hold(self, call: Call, inflight: InflightCall) -> HttpReply:
        """Hold a call for one more round, and return the answer with its questions.

        Raises TooManyTasks if no more calls may be held; the caller then closes the call.
        """
        held = self._held.of(inflight) or self._held.new(call.session, inflight)
        if held is None:
            # The caller cancels the call next. Before that the server learns that its questions
            # have no answer.
            inflight.refuse()
            raise TooManyTasks(
                self._held.most, of="calls waiting for input", advice="answer the questions of one, or cancel one"
            )
        self._held.start_wait(held)
        questions = {key: question.question for key, question in inflight.questions.items()}
        state = await self._sealed(call, HeldCallState(held.id, held.round))
        return HttpReply(body=self._dialect.input_required(call.id, questions, state))

    async def pass_round(self, call: Call, response: Response, asked: Round, info: RawJson | None) -> HttpReply:
        """Return a server's own round as the answer for the host.

        Raises MissingCapability if it needs a capability that the host does not declare.
        """
        undeclared = self._dialect.missing_capabilities(response, call.peer)
        if undeclared:
            # The server was told what it may ask, and a host gets no question that it did not
            # declare (M-MRTR-2).
            raise MissingCapability(undeclared)
        state = None if asked.state is None else await self._sealed(call, PassThroughState(asked.state))
        return HttpReply(body=self._dialect.passed_round(call.id, response, state, info))

    def sweep(self) -> None:
        """Cancel the held calls whose host did not send the input responses in time."""
        self._held.sweep()

    def stop(self) -> None:
        """Refuse the questions of held calls, and cancel the calls, at shutdown.

        Hosts that wait for a response get an error.
        """
        self._calls.waiter.waits.stop()
        self._held.stop()

    async def close(self) -> None:
        """Stop serving retries of other replicas."""
        if self._remote is not None:
            await self._remote.close()

    async def _check(self, call: Call, *, goes_on: bool = True) -> None:
        """Note in the call of a retry what the promotion rules of its tool allow now.

        `goes_on`: its server gets the answers, so it is no equal call made again. The rules may have
        changed since the first request. Raises TaskSupportMismatch if the tool now runs only as a task, and
        the host declares no tasks.
        """
        if isinstance(call.request, CallTool):
            call.request.goes_on = goes_on
            await self._calls.decide(call, call.request)

    async def _resume(self, held: "HeldCall", call: Call, retry: Retry) -> HttpReply:
        """Give a held call the input responses of a retry, and answer the retry.

        Raises InvalidParams for invalid responses, before anything changed. Then the call stays
        held, and the host may try again.
        """
        inflight = held.inflight
        if client_features(call.peer) != client_features(held.session.peer):
            raise InvalidParams("A retry must declare the same capabilities as the first request")
        for key, answer in retry.answers.items():
            question = inflight.questions.get(key)
            if question is not None and not self._dialect.is_valid_answer(question.question.method, answer):
                raise InvalidParams("An input response does not match its input request")
        call.session = held.session
        self._calls.count_sent(call)
        self._held.stop_wait(held)
        for key, answer in retry.answers.items():
            inflight.answer(key, answer, principal_of(call.caller))
        return await self._calls.follow(call, inflight)

    async def _opened(self, call: Call, retry: Retry) -> HeldCallState | PassThroughState | None:
        """Return what the `requestState` of a retry contains; None if the retry has none.

        Raises InvalidParams for one of another request, caller or mount, and for an expired one.
        """
        if retry.state is None:
            return None
        mount, digest = call.session.mount.name, await self._digest(retry.request)
        contexts = [owner.context for owner in call.caller.owners(mount)]
        return self._states.open(retry.state, contexts=contexts, mount=mount, digest=digest, now=self._clock.now())

    async def _digest(self, request: CallTool | Relay) -> str:
        size = 0 if request.params is None else request.params.size
        return await offload(size, partial(self._dialect.digest, request))

    async def _sealed(self, call: Call, what: HeldCallState | PassThroughState) -> str:
        owner, digest = call.session.owner, await self._digest(call.request)
        until = self._clock.now() + self._live.current.questions.wait
        return self._states.seal(what, context=owner.context, mount=owner.mount, digest=digest, until=until)


# --- held calls ------------------------------------------------------------------------------------------------------


class HeldCall:
    """A call that was held at least once.

    `round` is the number of the newest round, from 0. `until` is when the wait for the host's retry
    ends; None while no retry is awaited, because a request of the host runs.
    """

    __slots__ = ("id", "inflight", "round", "session", "until")

    def __init__(self, id: str, session: CallSite, inflight: InflightCall) -> None:
        self.id = id
        self.session = session
        self.inflight = inflight
        self.round = -1
        self.until: float | None = None


class HeldCalls:
    """The held calls of this process.

    - `new` adds a call when its first questions are about to go to the host.
    - `start_wait` begins each round, `stop_wait` ends it when a retry has come.
    - `end` removes it: it got its response, became a task, or failed.
    - A call whose host takes too long is cancelled, and so are all waiting calls at `stop`.

    A context may have as many as the operator's rules allow outstanding questions, all together
    MAX_HELD. `mark` is the name of this replica, set by `HostRetries` if there are others. Each id then
    begins with it: hosts retry at any replica, which finds the holder by it.
    """

    def __init__(self, *, live: RuntimeConfig, clock: Clock, entropy: Entropy) -> None:
        self.mark = ""
        self._live = live
        self._clock = clock
        self._entropy = entropy
        self._held: dict[str, HeldCall] = {}
        self._by_call: dict[InflightCall, HeldCall] = {}
        self._counts: Counter[str] = Counter()
        self._is_open = True
        self._has_logged = False

    @property
    def most(self) -> int:
        """The number of calls of one context that may be held at once."""
        return self._live.current.questions.outstanding

    def new(self, session: CallSite, inflight: InflightCall) -> HeldCall | None:
        """Add a call; None if a limit is reached. `end` must follow, whatever becomes of it."""
        context = session.owner.context
        if not self._is_open or len(self._held) >= MAX_HELD or self._counts[context] >= self.most:
            if not self._has_logged:
                # Logged once until there is room, because others decide how often it happens.
                self._has_logged = True
                log.warning(
                    "a call is cancelled: too many calls wait for input from their hosts",
                    extra={"upstream": session.mount.name},
                )
            return None
        id_ = urlsafe_b64encode(self._entropy.token(ID_BYTES)).decode()
        held = HeldCall(f"{self.mark}.{id_}" if self.mark else id_, session, inflight)
        self._held[held.id] = self._by_call[inflight] = held
        inflight.on_hold_end = partial(self.end, held)
        self._counts[context] += 1
        return held

    def of(self, inflight: InflightCall) -> HeldCall | None:
        """Return a call as it is held; None if it is not."""
        return self._by_call.get(inflight)

    def start_wait(self, held: HeldCall) -> None:
        """Start the next round: the host is about to get the questions, and its retry is awaited.

        The call has no listener until the retry.
        """
        held.round += 1
        held.until = self._clock.elapsed() + self._live.current.questions.wait.total_seconds()
        held.inflight.set_listener(None)

    def find(self, owners: Sequence[OwnerKey], id: str, round: int) -> HeldCall:
        """Return the call that waits for the retry of this round.

        Raises InvalidParams if there is none of these owners, or its time is over.
        """
        held = self._held.get(id)
        if held is None or held.until is None or held.round != round or held.session.owner not in owners:
            raise InvalidParams("Invalid requestState")
        if held.until <= self._clock.elapsed():
            self._expire(held)
            raise InvalidParams("Invalid requestState")
        return held

    def holder_elsewhere(self, id: str) -> str | None:
        """Return the other replica that holds the call of that id; None if it is this one or
        unknown.
        """
        mark, dot, _ = id.partition(".")
        return mark if dot and self.mark and mark != self.mark else None

    def stop_wait(self, held: HeldCall) -> None:
        """End the wait, because a retry has come: `find` no longer returns the call, so that no
        second retry continues the round.
        """
        held.until = None

    def end(self, held: HeldCall) -> None:
        """Remove the call; it is not cancelled. A second call does nothing."""
        if self._held.pop(held.id, None) is not None:
            del self._by_call[held.inflight]
            held.inflight.on_hold_end = None
            self._has_logged = False
            context = held.session.owner.context
            self._counts[context] -= 1
            if not self._counts[context]:
                del self._counts[context]

    def sweep(self) -> None:
        """Cancel the calls whose host did not send the input responses in time."""
        now = self._clock.elapsed()
        for held in tuple(self._held.values()):
            if held.until is not None and held.until <= now:
                self._expire(held)

    def stop(self) -> None:
        """Cancel every waiting call, and refuse new ones."""
        self._is_open = False
        for held in tuple(self._held.values()):
            if held.until is not None:
                self._cancel(held)

    def _expire(self, held: HeldCall) -> None:
        log.info(
            "a call is cancelled: its host did not send the input responses in time",
            extra={"upstream": held.session.mount.name},
        )
        self._cancel(held)

    def _cancel(self, held: HeldCall) -> None:
        """Cancel a call. Its server first gets a refusal of its questions, then the cancellation."""
        self.end(held)
        held.inflight.refuse()
        held.inflight.close()
