"""The retries of calls that another replica holds: `RemoteRetries`.

A host may send its input responses to any replica, but a held call is in the memory of one
(docs/decisions/0020). The replica that received the retry forwards it over the cluster bus:

    ForwardedRequest  →                       the retry: ids, round, text of the message
                      ←  ForwardedMessage     progress and log messages for the host
                      ←  ForwardedReply       the answer, or ForwardedError
    ForwardHeartbeat  ↔  ForwardHeartbeat     every LIFE seconds; silence ends the retry
    ForwardCancelled  →                       the host disconnected

The replica that holds the call (the holder) serves the retry with a `RemoteExchange`, as it would
serve its own host. `forward_id` names one forwarded retry in all of these messages. `Retries` creates
this object if there are other replicas, and gives it the functions that continue a call. Both
sides of the exchange are here: `forward` and what it awaits, and `_serve`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from taskgate.domain.versions import Peer, Revision, client_of
from taskgate.errors import GatewayError, InvalidParams
from taskgate.gateway.eras import Call
from taskgate.gateway.get_streams import LOST
from taskgate.gateway.listeners import HostListener, ResponseWaiter
from taskgate.jsontext.large import MessageText, to_string
from taskgate.protocol.faults import call_ended
from taskgate.protocol.host_requests import CallTool, Relay, RequestMeta, Retry
from taskgate.protocol.jsonrpc import error_text, parse
from taskgate.protocol.messages import Request
from taskgate.protocol.modern.downstream import ModernDownstream
from taskgate.protocol.vocabulary import INTERNAL_ERROR
from taskgate.sessions.session_pool import SharedSession
from taskgate.streams.bytes_in_flight import BytesInFlight
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import UNKNOWN, Admission, AdmitLarge, Exchange, HttpMethod, HttpReply
from taskgate.streams.resumable import StreamOpener
from taskgate.system.background import Background
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.system.offload import offload

LIFE: Final = 2.0
"""Seconds between two heartbeats."""

FIRST: Final = 2 * LIFE
SILENCE: Final = 3 * LIFE
"""Seconds without a word from the other replica after which it counts as gone: FIRST until its
first message, SILENCE after that."""

NAME_BYTES: Final = 16
DEPTH: Final = 1_000
"""Nesting depth that is accepted from a replica, which has parsed the text before."""

log = getLogger("taskgate.stateless")

NewCall = Callable[[Exchange, AuthContext, SharedSession, RequestMeta, CallTool | Relay], Call]


class _RemoteEventStream(EventStream):
    """The event stream of the answer. The host's reading speed is unknown here, so nothing is
    queued.
    """

    __slots__ = ("_exchange", "_tell")

    def __init__(self, exchange: "RemoteExchange", tell: Callable[[str], None]) -> None:
        super().__init__()
        self._exchange = exchange
        self._tell = tell

    @property
    def is_closed(self) -> bool:
        return self._exchange.is_gone

    @property
    def is_ended(self) -> bool:
        return self._exchange.is_gone

    def send_now(self, message: MessageText | bytes) -> bool:
        if self.is_closed:
            return False
        self._tell(to_string(message))
        return True

    send = send_now

    def send_answer(self, message: MessageText) -> None:
        self.send_now(message)


class RemoteExchange:
    """An `Exchange` whose host is connected to another replica. One is created for each retry that
    another replica forwards to this one.

    `tell` sends a message to that host. `heard` is the loop time of the replica's last heartbeat,
    set by `RemoteRetries`. `is_gone` is set by `disconnect`.
    """

    def __init__(self, tell: Callable[[str], None], *, accepts_stream: bool) -> None:
        self.head: Final = Admission(HttpMethod.POST, "", accepts_stream=accepts_stream)
        # The replica that received the request has compared them with its body.
        self.fields: Final = ()
        self.address: Final = UNKNOWN
        # Never called: streams of the modern era are not resumable.
        self.opener: StreamOpener | None = None
        self.heard = asyncio.get_running_loop().time()
        self.is_gone = False
        self._feed = _RemoteEventStream(self, tell)
        self._has_begun = False
        self._callbacks: list[Callable[[], None]] = []
        self._sent_callbacks: list[Callable[[bool], None]] = []

    def disconnect(self) -> None:
        """Handle that the host has disconnected, or that its replica is gone.

        The callbacks of `on_disconnect` are called, and later messages are dropped.
        """
        self.is_gone = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        self.settle(was_sent=False)

    def settle(self, *, was_sent: bool) -> None:
        """Handle that the answer has gone to the other replica, or will not."""
        callbacks, self._sent_callbacks = self._sent_callbacks, []
        for callback in callbacks:
            callback(was_sent)

    async def body(self, budget: BytesInFlight, caller: AuthContext, admit_large: AdmitLarge) -> bytes:
        raise AssertionError("the body stays on the replica that forwarded the request")

    def count_answer(self, size: int) -> None:
        """Count nothing: the replica that received the request counts its bytes."""

    def stream(self) -> EventStream:
        self._has_begun = True
        return self._feed

    def resume(self, feed: EventStream, missed: Sequence[bytes]) -> bool:
        return False

    def begin_document(self) -> bool:
        # The replica that received the request keeps the host waiting.
        return not self._has_begun

    @property
    def is_streaming(self) -> bool:
        return self._has_begun

    @property
    def has_begun(self) -> bool:
        return self._has_begun

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        if self.is_gone:
            callback()
        else:
            self._callbacks.append(callback)

    def on_sent(self, callback: Callable[[bool], None]) -> None:
        if self.is_gone:
            callback(False)
        else:
            self._sent_callbacks.append(callback)


class _ForwardedRequest:
    """A retry that came to this replica, and that `holder` serves.

    `answer` gets the reply, or the error that the holder raised. `heard` is the loop time of the
    holder's last message. `is_taken` is set once it has sent one: it has begun to serve the retry.
    """

    __slots__ = ("answer", "exchange", "heard", "holder", "is_taken")

    def __init__(self, exchange: Exchange, holder: str) -> None:
        loop = asyncio.get_running_loop()
        self.exchange = exchange
        self.holder = holder
        self.answer: asyncio.Future[HttpReply | GatewayError] = loop.create_future()
        self.heard = loop.time()
        self.is_taken = False

    def show_life(self) -> None:
        """Note that the holder has sent something."""
        self.heard = asyncio.get_running_loop().time()
        self.is_taken = True

    def settle(self, answer: HttpReply | GatewayError) -> None:
        """Set the answer; only the first one counts."""
        if not self.answer.done():
            self.answer.set_result(answer)


class RetryServices(NamedTuple):
    """The parts of `Retries` that a forwarded retry needs, and what it calls.

    `find` returns the held call of some owners, by its id and round. `check` applies the rules of
    the tool to a retry. `resume` gives the input responses to the held call, and waits for the
    answer.
    """

    find: Callable[[Sequence[OwnerKey], str, int], Any]
    waiter: ResponseWaiter
    dialect: ModernDownstream
    new_call: NewCall
    check: Callable[[Call], Awaitable[None]]
    resume: Callable[[Any, Call, Retry], Awaitable[HttpReply]]


class RemoteRetries:
    """The forwarder of retries to other replicas, and the server of theirs."""

    def __init__(self, *, bus: ClusterBus, entropy: Entropy, services: RetryServices) -> None:
        self._bus = bus
        self._entropy = entropy
        self._services = services
        self._waiter = services.waiter
        self._forwarded: dict[str, _ForwardedRequest] = {}
        self._served: dict[str, RemoteExchange] = {}
        self._background = Background()
        bus.subscribe(messages.ForwardedRequest, self._on_request)
        bus.subscribe(messages.ForwardHeartbeat, self._on_heartbeat)
        bus.subscribe(messages.ForwardedMessage, self._on_message)
        bus.subscribe(messages.ForwardedReply, self._on_reply)
        bus.subscribe(messages.ForwardedError, self._on_error)
        bus.subscribe(messages.ForwardCancelled, self._on_cancelled)

    async def forward(
        self, call: Call, meta: RequestMeta, intent: Retry, state: HeldCallState, holder: str
    ) -> HttpReply:
        """Forward a retry to the replica `holder`, which holds the call, and return the answer.

        Raises what `Retries.answer` raises: InvalidParams if the call is no longer held there, or the
        replica never answers. If it goes away later, the answer says that the call is lost.
        """
        exchange, mount = call.exchange, call.session.mount.name
        forward_id = self._entropy.token(NAME_BYTES).hex()
        contexts = [owner.context for owner in call.caller.owners(mount)]
        streams = exchange.head.accepts_stream
        forwarded = self._forwarded[forward_id] = _ForwardedRequest(exchange, holder)
        self._bus.send(
            messages.ForwardedRequest(
                forward_id, mount, contexts, state.id, state.round, intent.text, _encoded(meta), streams
            ),
            to=holder,
        )
        try:
            # Progress comes from the other replica. The numbers of two senders would not grow.
            with HostListener(exchange, None, self._waiter.keepalives, self._services.dialect, later=call.listener):
                answer = await self._waiter.wait(exchange, self._answer(forward_id, forwarded, call.id))
        finally:
            del self._forwarded[forward_id]
            # The host disconnected, this gateway ends, or the holder is silent.
            if not forwarded.answer.done():
                self._bus.send(messages.ForwardCancelled(forward_id), to=holder)
        if isinstance(answer, GatewayError):
            raise answer.copy()
        return answer

    async def close(self) -> None:
        """Stop serving retries of other replicas. Own ones end with their requests."""
        await self._background.close()

    async def _answer(self, forward_id: str, forwarded: _ForwardedRequest, id: RequestId) -> HttpReply | GatewayError:
        """Wait for the holder's answer, with a heartbeat to it every LIFE seconds."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.wait((forwarded.answer,), timeout=LIFE)
            if forwarded.answer.done():
                return forwarded.answer.result()
            silent = loop.time() - forwarded.heard
            # The id in the state names a replica that is gone, or was never there.
            if not forwarded.is_taken and silent >= FIRST:
                return InvalidParams("Invalid requestState")
            if silent >= SILENCE:
                fault = call_ended(FaultReason.CALL_LOST, LOST, dispatched=True)
                return HttpReply(200, error_text(id, fault.error), (), str(INTERNAL_ERROR))
            self._bus.send(messages.ForwardHeartbeat(forward_id), to=forwarded.holder)

    # --- messages about forwarded retries, from either side -----------------------------------------------------------

    def _on_heartbeat(self, message: messages.ForwardHeartbeat, sender: str) -> None:
        forwarded, served = self._forwarded.get(message.forward_id), self._served.get(message.forward_id)
        if forwarded is not None:
            forwarded.show_life()
        if served is not None:
            served.heard = asyncio.get_running_loop().time()

    def _on_message(self, message: messages.ForwardedMessage, sender: str) -> None:
        forwarded = self._forwarded.get(message.forward_id)
        if forwarded is not None:
            forwarded.show_life()
            forwarded.exchange.stream().send(message.message)

    def _on_reply(self, message: messages.ForwardedReply, sender: str) -> None:
        forwarded = self._forwarded.get(message.forward_id)
        if forwarded is not None:
            headers = tuple((name, value) for name, value in message.headers)
            forwarded.settle(HttpReply(200, message.message, headers, message.error))

    def _on_error(self, message: messages.ForwardedError, sender: str) -> None:
        forwarded = self._forwarded.get(message.forward_id)
        if forwarded is not None:
            forwarded.settle(decode_error(message.error))

    def _on_cancelled(self, message: messages.ForwardCancelled, sender: str) -> None:
        served = self._served.get(message.forward_id)
        if served is not None:
            served.disconnect()

    # --- retries of other replicas ------------------------------------------------------------------------------------

    def _on_request(self, message: messages.ForwardedRequest, sender: str) -> None:
        self._background.run(partial(self._serve, message, sender))

    async def _serve(self, message: messages.ForwardedRequest, sender: str) -> None:
        """Serve a retry that another replica forwarded, and send it the answer."""

        def send(answer: Message) -> None:
            self._bus.send(answer, to=sender)

        forward_id = message.forward_id
        exchange = RemoteExchange(
            lambda text: send(messages.ForwardedMessage(forward_id, text)), accepts_stream=message.accepts_stream
        )
        self._served[forward_id] = exchange
        heartbeats = self._background.start(partial(self._send_heartbeats, forward_id, exchange, sender))
        try:
            reply = await self._execute(message, exchange)
            assert reply.body is not None, "the answer to a retry has a text"
            send(
                messages.ForwardedReply(
                    forward_id, to_string(reply.body), reply.error, [[*header] for header in reply.headers]
                )
            )
            exchange.settle(was_sent=True)
        except ScopeCancelled:
            # The host disconnected: an answer has no reader.
            pass
        except Exception as error:
            if not isinstance(error, GatewayError):
                log.error("Unexpected error in a request that another replica forwarded", exc_info=error)
            send(messages.ForwardedError(forward_id, encode_error(error)))
        finally:
            exchange.settle(was_sent=False)
            heartbeats.cancel()
            del self._served[forward_id]

    async def _send_heartbeats(self, forward_id: str, exchange: RemoteExchange, sender: str) -> None:
        """Send a heartbeat every LIFE seconds; disconnect the exchange if none comes back."""
        loop = asyncio.get_running_loop()
        while loop.time() - exchange.heard < SILENCE:
            self._bus.send(messages.ForwardHeartbeat(forward_id), to=sender)
            await asyncio.sleep(LIFE)
        exchange.disconnect()

    async def _execute(self, message: messages.ForwardedRequest, exchange: Exchange) -> HttpReply:
        """Continue the held call as `Retries.answer` does, and return the answer."""
        find, _, dialect, new_call, check, resume = self._services
        owners = [OwnerKey(context, message.mount) for context in message.contexts]
        session = find(owners, message.hold, message.round).session
        read = partial(parse, message.request.encode(), max_depth=DEPTH)
        meta, request = _meta_of(message.headers), await offload(len(message.request), read)
        assert isinstance(request, Request), "only requests are forwarded"
        intent = dialect.decode(
            request,
            meta,
            offers_tasks=session.mount.offers_tasks,
            extensions=session.mount.extensions,
            hands_off=session.mount.hands_off and not meta.declares_tasks,
        )
        assert isinstance(intent, Retry), "the replica that forwarded it found a requestState"
        with session:
            # Tokens are not forwarded. The call is made for the same caller, so the session's
            # newest one is used.
            call = new_call(exchange, session.caller, session, meta, intent.request)
            await check(call)
            # No await from here until the call is taken: a round counts once.
            return await resume(find(owners, message.hold, message.round), call, intent)


def _encoded(meta: RequestMeta) -> dict[str, Any]:
    """Encode what a retry declares, for the `headers` of a `ForwardedRequest`; `_meta_of` decodes
    it.
    """
    peer = meta.peer
    return {
        "revision": peer.revision.value,
        "capabilities": peer.capabilities,
        "info": peer.info,
        "log_level": meta.log_level,
        "progress_token": meta.progress_token,
        "declares_tasks": meta.declares_tasks,
        "repeated": dict(meta.header_params),
    }


def _meta_of(encoded: Mapping[str, Any]) -> RequestMeta:
    peer = Peer(revision=Revision(encoded["revision"]), capabilities=encoded["capabilities"], info=encoded["info"])
    token, level = encoded["progress_token"], encoded["log_level"]
    return RequestMeta(peer, level, token, encoded["declares_tasks"], encoded["repeated"], client_of(peer.info))
