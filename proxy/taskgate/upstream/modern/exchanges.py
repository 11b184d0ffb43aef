"""HTTP of modern requests: `ModernExchanges` POSTs each and handles the messages on its stream.

It also bounds the time of each request, and reports it.
Closing the stream is the cancellation in this era (H-MOD-10). A stream that breaks off is lost and
never reopened (H-MOD-11). `rounds`, `discovery` and `server_tasks` send through it; notifications
outside of calls come by `subscriptions`.
"""

from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.versions import Peer
from taskgate.errors import UpstreamFailed
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.jsonrpc import is_batch
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import CallProgress, CallResponse, EncodedRequest, SessionNotification
from taskgate.protocol.vocabulary import INVALID_REQUEST
from taskgate.system.cancel_scope import ScopeCancelled
from taskgate.system.offload import LARGE, in_thread, offload
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Incoming, Outgoing
from taskgate.upstream.call_streams import hear_unusual, read_refusal, read_stream
from taskgate.upstream.calls import RunningCall
from taskgate.upstream.context import ModernUpstreamContext, hidden_from_hosts
from taskgate.upstream.notification_limits import decode_large


class ModernExchanges:
    """The requests of one session. What the host declared decides how messages are decoded.

    Each request of `ModernSession` and `Discovery` waits inside `bounded`, which reports it to the
    observer.
    """

    def __init__(self, upstream_context: ModernUpstreamContext, host: Peer | None, clock: Clock) -> None:
        self._upstream_context = upstream_context
        self._host = host
        self._clock = clock
        # The calls that wait for their answers.
        self._calls: set[RunningCall] = set()

    async def bounded(
        self,
        call: RunningCall,
        method: str,
        request: Coroutine[Any, Any, Response],
        judge: Callable[[Response], None],
        *,
        doubt: Callable[[Response], None] | None = None,
        unwelcome: Callable[[], Awaitable[None]] | None = None,
    ) -> Response:
        """Await `request`, which sends the call, within the call's timeouts, and return its
        response.

        The outcome is reported to the observer in any case. `judge` is called with an error
        response, and raises UpstreamFailed if it is invalid; `doubt` is called with a valid one. A
        timeout, or `let_go`, cancels `request` and raises UpstreamFailed. `unwelcome` is awaited
        before a failure that is a bare HTTP status is raised: another era may be the reason.
        """
        clock, began, running = self._clock, self._clock.elapsed(), self._upstream_context.running
        error: str | None = "cancelled"
        self._calls.add(call)
        running.count += 1
        call.begin(self._upstream_context.alarms)
        try:
            try:
                with call:
                    response = await request
                error = None
                if response.error is not None:
                    error = str(response.error_code)
                    if not (call.is_task or call.was_heard):
                        # A server that made a task, or sent something of the call, did act.
                        judge(response)
            except ScopeCancelled:
                over = failures.let_go if call.was_let_go else failures.too_late
                failure = over(dispatched=call.sent)
                error = failure.reason
                raise failure.copy() from None
            except UpstreamFailed as failure:
                error = failure.reason
                raise
            finally:
                running.count -= 1
                self._calls.discard(call)
                self._upstream_context.observer.answered(method, clock.elapsed() - began, error, call.listener is None)
        except failures.Unwelcome:
            # The request is over, and was reported. It fails, whatever is found out now.
            if unwelcome is not None:
                await unwelcome()
            raise
        if response.error is not None:
            call.report_refusal(method, self._upstream_context.observer.failed)
            if doubt is not None:
                doubt(response)
        return response

    def let_go(self) -> None:
        """End all waits with a failure: the session is closed."""
        for call in tuple(self._calls):
            call.was_let_go = True
            call.cancel()

    async def ask(
        self,
        call: RunningCall,
        written: EncodedRequest,
        first_byte: timedelta | None,
        *,
        asks_who: bool = False,
        follows: bool = False,
    ) -> Response:
        """Return the answer to a request that was encoded under the call's id. Raises
        UpstreamFailed.

        Other messages on its stream go to the call and its listener meanwhile. `first_byte` is the
        timeout of the answer's head. `asks_who`: the request is `server/discover`. An HTTP status
        that says nothing about the server is then a failure, whatever its body. `follows`: it is
        about a task that the server has begun. Its answer needs no work, so it comes without a
        pause.
        """
        incoming = await self._upstream_context.transport.send(
            Outgoing(
                verb="POST",
                headers={**POSTED, **written.headers},
                body=written.message.encode(),
                first_byte=first_byte,
                idle=first_byte if follows else call.bounds.idle,
                principal=call.principal,
                call=call,
                follows=follows,
            )
        )
        answered = False
        try:
            if asks_who and failures.tells_nothing(incoming.status):
                has_credentials, pause = self._upstream_context.settings.has_credentials, incoming.retry_after
                raise failures.refused(incoming.status, has_credentials=has_credentials, retry_after=pause)
            response: Response | None
            if not 200 <= incoming.status < 300:
                response = await self._refusal(call, incoming, is_of_handshake=asks_who)
            elif incoming.streams:
                response = await self._read(call, incoming)
            else:
                come = incoming.document()
                document = come if isinstance(come, bytes) else await come
                response = None if document is None else await self._response_in(document, call)
                if response is None:
                    # It may be the answer to an earlier request, and the next one that to this.
                    incoming.drop()
                    raise protocol_violation("its answer matches no request of the gateway")
            answered = True
            return response
        finally:
            incoming.release(answered=answered)

    async def _read(self, call: RunningCall, incoming: Incoming) -> Response:
        """Read an event stream up to the response."""
        response = await read_stream(self._upstream_context.observer, self._hear, call, incoming.messages())
        if response is None:
            # As for a document that is no answer to it.
            incoming.drop()
            raise failures.broke_off()
        return response

    async def _hear(self, message: bytes, call: RunningCall) -> Response | None:
        """Handle a message on the call's stream: progress and notifications go to its listener.

        Returns the message if it is a response.
        """
        hear = self._upstream_context.dialect.decode
        host = self._host
        match hear(message, host) if len(message) <= LARGE else await decode_large(partial(hear, message, host)):
            case CallResponse(response):
                return response
            case CallProgress(token, notification) if token == call.id:
                call.on_progress(notification)
            case SessionNotification(notification) if call.listener is not None:
                call.listener.on_notification(notification)
        call.was_heard = True
        return None

    async def _response_in(self, message: bytes, call: RunningCall, *, is_doubtful: bool = False) -> Response | None:
        """Return the response to the call that a message is; None if it is another message.

        An error without an id answers the request. In an answer that `is_doubtful` it may be that of a
        legacy server, which misses a session.
        """
        dialect = self._upstream_context.dialect
        hear = partial(dialect.decode, message, self._host)
        try:
            heard = hear() if len(message) <= LARGE else await in_thread(hear)
        except UpstreamFailed:
            if is_batch(message):
                return await hear_unusual(self._upstream_context.observer, self._hear, call, message)
            refusal = await offload(len(message), partial(dialect.read_unaddressed_error, call.id, message))
            if refusal is None or (is_doubtful and refusal.error_code in _OF_SESSIONS):
                raise
            return refusal
        return heard.response if isinstance(heard, CallResponse) and heard.response.id == call.id else None

    async def _refusal(self, call: RunningCall, incoming: Incoming, *, is_of_handshake: bool) -> Response:
        """Return the server's answer if an error status carries one; else raise what the status
        means."""
        settings = self._upstream_context.settings
        hidden = hidden_from_hosts(settings, *call.shown.values())
        read = partial(self._response_in, call=call, is_doubtful=incoming.status in failures.UNKNOWING)
        response, body = await read_refusal(incoming, read, hidden)
        if response is not None and response.error is not None:
            call.refused_with = incoming.status
            return response
        raise failures.unwelcome(
            incoming.status,
            body=None if is_of_handshake else body,
            has_credentials=settings.has_credentials,
            retry_after=incoming.retry_after,
        )


_OF_SESSIONS: Final = frozenset({INVALID_REQUEST, -32000, -32001})
"""Codes by which released legacy servers refuse a request without a session."""
