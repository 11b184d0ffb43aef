"""The retries of calls that another replica holds: `RemoteRetries`.

A host may send its input responses to any replica, but a held call is in the memory of one
(docs/decisions/0020). The replica that received the retry forwards it over the cluster bus:

    ForwardedRequest  →                       the retry: ids, round, text of the message
                      ←  ForwardedMessage     progress and log messages for the host
                      ←  ForwardedReply       the answer, or ForwardedError
    ForwardHeartbeat  ↔  ForwardHeartbeat     every LIFE seconds; silence ends the retry
    ForwardCancelled  →                       the host disconnected

The holder serves it with a `RemoteExchange`, as it would serve its own host. `Calls` creates this
object if there are other replicas, and gives it the functions that continue a call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from logging import getLogger
from typing import Any, Final, NamedTuple

from taskgate.auth.context import AuthContext
from taskgate.clock import Entropy
from taskgate.cluster import messages
from taskgate.cluster.bus import ClusterBus
from taskgate.cluster.messages import Message, decode_error, encode_error
from taskgate.domain.record import FaultReason, OwnerKey, RequestId
from taskgate.domain.request_state import HeldCallState
from taskgate.domain.versions import Peer, Revision
from taskgate.errors import GatewayError, InvalidParams
from taskgate.gateway.modern.attending import ResponseWaiter
from taskgate.gateway.modern.holds import Held, HeldCalls
from taskgate.gateway.modern.outbound_calls import OutboundCall
from taskgate.gateway.modern.remote_exchange import RemoteExchange
from taskgate.gateway.modern.session_pool import SharedSession
from taskgate.gateway.resuming import LOST
from taskgate.jsontext.large import to_string
from taskgate.protocol.dialects import ModernDownstreamDialect
from taskgate.protocol.faults import call_ended
from taskgate.protocol.host_requests import CallTool, Relay, RequestMeta, Retry
from taskgate.protocol.jsonrpc import error_text, parse
from taskgate.protocol.messages import Request
from taskgate.protocol.vocabulary import INTERNAL_ERROR
from taskgate.streams.exchange import Exchange, RpcReply
from taskgate.system.background import Background
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.system.offload import offload

LIFE: Final = 2.0
"""Seconds between two heartbeats."""

FIRST: Final = 2 * LIFE
SILENCE: Final = 3 * LIFE
"""Seconds without a heartbeat after which the other replica does not answer (FIRST), or no longer
does (SILENCE)."""

NAME_BYTES: Final = 16
DEPTH: Final = 1_000
"""Nesting depth that is accepted from a replica, which has parsed the text before."""

log = getLogger("taskgate.stateless")

LetIn = Callable[[Exchange, AuthContext, SharedSession, RequestMeta, CallTool | Relay], Awaitable[OutboundCall]]
Resume = Callable[[Held, OutboundCall, Retry], Awaitable[RpcReply]]


class _ForwardedRequest:
    """A request of this replica's host that another replica serves."""

    __slots__ = ("answer", "exchange", "heard", "holder", "is_taken")

    def __init__(self, exchange: Exchange, holder: str) -> None:
        loop = asyncio.get_running_loop()
        self.exchange = exchange
        self.holder = holder
        self.answer: asyncio.Future[RpcReply | GatewayError] = loop.create_future()
        self.heard = loop.time()
        self.is_taken = False

    def show_life(self) -> None:
        self.heard = asyncio.get_running_loop().time()
        self.is_taken = True

    def settle(self, answer: RpcReply | GatewayError) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class RetryServices(NamedTuple):
    """The services of `Calls` that a forwarded retry needs: the held calls, and functions to check
    a retry (`let_in`) and to continue a call (`resume`).
    """

    holds: HeldCalls
    attending: ResponseWaiter
    dialect: ModernDownstreamDialect
    let_in: LetIn
    resume: Resume


class RemoteRetries:
    """The forwarder of retries to other replicas, and the server of theirs."""

    def __init__(self, *, bus: ClusterBus, entropy: Entropy, mates: RetryServices) -> None:
        self._bus = bus
        self._entropy = entropy
        self._mates = mates
        self._attending = mates.attending
        self._brought: dict[str, _ForwardedRequest] = {}
        self._served: dict[str, RemoteExchange] = {}
        self._background = Background()
        bus.subscribe(messages.ForwardedRequest, self._begin)
        bus.subscribe(messages.ForwardHeartbeat, self._lives)
        bus.subscribe(messages.ForwardedMessage, self._told)
        bus.subscribe(messages.ForwardedReply, self._spoke)
        bus.subscribe(messages.ForwardedError, self._refused)
        bus.subscribe(messages.ForwardCancelled, self._departed)

    async def bring(self, outbound: OutboundCall, intent: Retry, call: HeldCallState, holder: str) -> RpcReply:
        """Forward a retry to `holder`, which holds the call, and return the answer.

        Raises what `Calls.retry` raises: InvalidParams if the call is no longer held there. If
        `holder` goes away meanwhile, the answer says that the call is lost.
        """
        exchange, said, mount = outbound.exchange, outbound.said, outbound.line.mount.name
        name = self._entropy.token(NAME_BYTES).hex()
        contexts = [owner.context for owner in outbound.caller.owners(mount)]
        streams = exchange.head.accepts_stream
        brought = self._brought[name] = _ForwardedRequest(exchange, holder)
        self._bus.send(
            messages.ForwardedRequest(name, mount, contexts, call.id, call.round, intent.text, _packed(said), streams),
            to=holder,
        )
        try:
            # The other replica sends progress and keep-alives.
            with self._attending.telling(exchange, said._replace(progress_token=None)):
                answer = await self._attending.wait(exchange, self._answer(name, brought, outbound.request.id))
        finally:
            del self._brought[name]
            if not brought.answer.done():
                self._bus.send(messages.ForwardCancelled(name), to=holder)
        if isinstance(answer, GatewayError):
            raise answer
        return answer

    async def close(self) -> None:
        """Stop serving forwarded retries."""
        await self._background.close()

    async def _answer(self, name: str, brought: _ForwardedRequest, id: RequestId) -> RpcReply | GatewayError:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.wait((brought.answer,), timeout=LIFE)
            if brought.answer.done():
                return brought.answer.result()
            silent = loop.time() - brought.heard
            if not brought.is_taken and silent >= FIRST:
                return InvalidParams("Invalid requestState")
            if silent >= SILENCE:
                fault = call_ended(FaultReason.CALL_LOST, LOST, dispatched=True)
                return RpcReply(error_text(id, fault.error), str(INTERNAL_ERROR))
            self._bus.send(messages.ForwardHeartbeat(name), to=brought.holder)

    # --- messages about forwarded retries, from either side -----------------------------------------------------------

    def _lives(self, word: messages.ForwardHeartbeat, sender: str) -> None:
        brought, served = self._brought.get(word.forward_id), self._served.get(word.forward_id)
        if brought is not None:
            brought.show_life()
        if served is not None:
            served.heard = asyncio.get_running_loop().time()

    def _told(self, word: messages.ForwardedMessage, sender: str) -> None:
        brought = self._brought.get(word.forward_id)
        if brought is not None:
            brought.show_life()
            brought.exchange.stream().send(word.message)

    def _spoke(self, word: messages.ForwardedReply, sender: str) -> None:
        brought = self._brought.get(word.forward_id)
        if brought is not None:
            headers = tuple((name, value) for name, value in word.headers)
            brought.settle(RpcReply(word.message, word.error, headers))

    def _refused(self, word: messages.ForwardedError, sender: str) -> None:
        brought = self._brought.get(word.forward_id)
        if brought is not None:
            brought.settle(decode_error(word.error))

    def _departed(self, word: messages.ForwardCancelled, sender: str) -> None:
        served = self._served.get(word.forward_id)
        if served is not None:
            served.leave()

    # --- retries of other replicas ------------------------------------------------------------------------------------

    def _begin(self, word: messages.ForwardedRequest, sender: str) -> None:
        self._background.run(partial(self._serve, word, sender))

    async def _serve(self, word: messages.ForwardedRequest, sender: str) -> None:
        def say(answer: Message) -> None:
            self._bus.send(answer, to=sender)

        name = word.forward_id
        exchange = RemoteExchange(
            lambda message: say(messages.ForwardedMessage(name, message)), accepts_stream=word.accepts_stream
        )
        self._served[name] = exchange
        living = self._background.start(partial(self._show_life, name, exchange, sender))
        try:
            spoken = await self._carried(word, exchange)
            say(
                messages.ForwardedReply(
                    name, to_string(spoken.message), spoken.error, [[*header] for header in spoken.headers]
                )
            )
        except ScopeCancelled:
            # The host disconnected: an answer has no reader.
            pass
        except Exception as error:
            if not isinstance(error, GatewayError):
                log.error("Unexpected error in a request that another replica forwarded", exc_info=error)
            say(messages.ForwardedError(name, encode_error(error)))
        finally:
            living.cancel()
            del self._served[name]

    async def _show_life(self, name: str, exchange: RemoteExchange, sender: str) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() - exchange.heard < SILENCE:
            self._bus.send(messages.ForwardHeartbeat(name), to=sender)
            await asyncio.sleep(LIFE)
        exchange.leave()

    async def _carried(self, word: messages.ForwardedRequest, exchange: Exchange) -> RpcReply:
        holds, _, dialect, let_in, resume = self._mates
        owners = [OwnerKey(context, word.mount) for context in word.contexts]
        line = holds.find(owners, word.hold, word.round).line
        read = partial(parse, word.request.encode(), max_depth=DEPTH)
        said, request = _said(word.headers), await offload(len(word.request), read)
        assert isinstance(request, Request), "only requests are forwarded"
        intent = dialect.decode(request, said, offers_tasks=line.mount.offers_tasks, extensions=line.mount.extensions)
        assert isinstance(intent, Retry), "the replica that forwarded it found a requestState"
        with line:
            # Tokens are not forwarded. The call is made for the same caller, so the session's
            # newest one is used.
            outbound = await let_in(exchange, line.caller, line, said, intent.request)
            # No await from here until the call is taken: a round counts once.
            return await resume(holds.find(owners, word.hold, word.round), outbound, intent)


def _packed(said: RequestMeta) -> dict[str, Any]:
    peer = said.peer
    return {
        "revision": peer.revision.value,
        "capabilities": peer.capabilities,
        "info": peer.info,
        "log_level": said.log_level,
        "progress_token": said.progress_token,
        "declares_tasks": said.declares_tasks,
        "repeated": dict(said.header_params),
    }


def _said(packed: Mapping[str, Any]) -> RequestMeta:
    peer = Peer(revision=Revision(packed["revision"]), capabilities=packed["capabilities"], info=packed["info"])
    token, level = packed["progress_token"], packed["log_level"]
    return RequestMeta(peer, level, token, packed["declares_tasks"], packed["repeated"])
