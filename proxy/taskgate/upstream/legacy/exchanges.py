"""HTTP of one conversation: `LegacyExchanges` sends requests and reads their answers.

    POST  request            -> 200, a JSON document, or an event stream with the response
    POST  answer, notice     -> 202
    GET   Last-Event-ID      -> the rest of a stream that ended early (`resuming`)
    DELETE                   -> end of the session

Headers with session id and revision go with every request. `Conversation` handles the messages.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.versions import Revision
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.legacy.upstream import LegacyUpstream
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import CallResponse
from taskgate.protocol.vocabulary import SESSION_HEADER, VERSION_HEADER
from taskgate.system.offload import LARGE, in_thread
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Incoming, Outgoing
from taskgate.upstream.calls import Call
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.legacy.listening import ServerStream
from taskgate.upstream.legacy.resuming import EventPosition, behind, end_of, go_on
from taskgate.upstream.principal import Principal
from taskgate.upstream.settings import UpstreamObserver

_WITHOUT_VERSION_HEADER: Final = frozenset({Revision.R2024_11_05, Revision.R2025_03_26})


class LegacyExchanges:
    """The HTTP requests of one server session.

    `hear` is called with each message of a call's stream, in order. It returns the message if it is
    a response, else None. `placed` is called with a call and an event id, once all messages up to
    that event were handled. It is called only for calls with a listener.
    """

    def __init__(
        self,
        upstream_context: UpstreamContext,
        hear: Callable[[bytes, Call], Awaitable[Response | None]],
        placed: Callable[[Call, str], None],
    ) -> None:
        self._upstream_context = upstream_context
        self._hear = hear
        self._on_event = placed
        self.session: str | None = None
        self.is_open = False
        """Whether the handshake succeeded. Until then each answer may set the session id."""
        self.headers: dict[str, str] = {}
        self._post_headers: dict[str, str] = POSTED

    @property
    def has_session(self) -> bool:
        """Whether the server gave a session id, so that the session must be ended there."""
        return self.session is not None

    def welcome(self, revision: Revision) -> None:
        """Mark the session as open: the handshake agreed on this revision."""
        self.is_open = True
        if revision not in _WITHOUT_VERSION_HEADER:
            self._add_header(VERSION_HEADER, revision.value)

    def adopt(self, session: str | None, revision: Revision) -> None:
        """Continue a session that another process opened, in this revision."""
        self._take_session(session)
        self.welcome(revision)

    async def take_up(self, call: Call, event: str) -> Response:
        """Return the answer to a request that another process sent. Its stream is reopened after
        `event`.

        Raises UpstreamFailed: Gone if the server no longer knows the stream.
        """
        return await self._reopen(call, behind(event), failures.Gone)

    async def ask(self, call: Call, message: str, first_byte: timedelta | None) -> Response:
        """Send a request and return its answer. Raises UpstreamFailed."""
        incoming = await self._upstream_context.transport.send(
            Outgoing(
                verb="POST",
                headers=self._post_headers,
                body=message.encode(),
                first_byte=first_byte,
                idle=call.bounds.idle,
                principal=call.principal,
                call=call,
                placed=None if call.listener is None else partial(self._on_event, call),
            )
        )
        answered = False
        try:
            response: Response | None
            if not 200 <= incoming.status < 300:
                response = await self._refusal(call, incoming)
            else:
                if not self.is_open:
                    self._take_session(incoming.session)
                if incoming.streams:
                    response = await self._streamed(call, incoming)
                else:
                    document = await incoming.document()
                    dialect = self._upstream_context.dialect
                    response = None if document is None else await response_in(dialect, document, call)
                    if response is None:
                        raise protocol_violation("its answer matches no request of the gateway")
            answered = True
            return response
        finally:
            incoming.release(answered=answered)

    async def say(self, message: str, principal: Principal | None = None) -> int:
        """Send a message that gets no response; return the HTTP status. Raises UpstreamFailed."""
        settings = self._upstream_context.settings
        incoming = await self._upstream_context.transport.send(
            Outgoing(
                verb="POST",
                headers=self._post_headers,
                body=message.encode(),
                first_byte=settings.first_byte,
                idle=settings.idle,
                principal=principal,
                # It is about something that the server has begun.
                follows=True,
            )
        )
        incoming.release()
        return incoming.status

    def listen(
        self, hear: Callable[[bytes], Awaitable[None]], lost: Callable[[], None], clock: Clock
    ) -> ServerStream | None:
        """Start the GET stream; None for a server that gave no session id."""
        if self.session is None:
            return None
        transport, observer = self._upstream_context.transport, self._upstream_context.observer
        return ServerStream(transport, self.headers, hear=hear, lost=lost, observer=observer, clock=clock)

    async def part(self) -> None:
        """End the session at the server by DELETE. Raises UpstreamFailed."""
        incoming = await self._upstream_context.transport.send(
            Outgoing(verb="DELETE", headers=self.headers, follows=True)
        )
        incoming.release()

    async def _streamed(self, call: Call, incoming: Incoming) -> Response:
        """Return the response from an event stream, and from those that continue it."""
        response = await self._read(call, incoming.messages())
        if response is not None:
            return response
        incoming.release()
        # The stream ended before the response.
        return await self._reopen(call, end_of(incoming), failures.broke_off)

    def _reopen(
        self, call: Call, place: EventPosition, gone: Callable[[], UpstreamFailed]
    ) -> Coroutine[Any, Any, Response]:
        """Return the answer from the rest of a call's stream, which starts at `place`.

        It is reopened as often as needed. `gone` makes the failure for a server that has no such
        stream.
        """
        reopening = Outgoing(
            verb="GET",
            headers=self.headers,
            first_byte=self._upstream_context.settings.first_byte,
            idle=call.bounds.idle,
            principal=call.principal,
            only_listens=True,
            placed=None if call.listener is None else partial(self._on_event, call),
        )
        return go_on(self._upstream_context.transport, reopening, place, partial(self._read, call), gone=gone)

    def _read(self, call: Call, messages: AsyncIterator[bytes]) -> Coroutine[Any, Any, Response | None]:
        return read_stream(self._upstream_context.observer, self._hear, call, messages)

    async def _refusal(self, call: Call, incoming: Incoming) -> Response:
        """Return the server's answer if an error status carries one; else raise what the status
        means.

        A restarted server answers an unknown session with 404, as it must, or 400, as released SDKs
        do.
        """
        status = incoming.status
        if not self.is_open and failures.tells_nothing(status):
            # Such a status is no answer of the server to the handshake, whatever its body.
            raise failures.refused(status)
        if status == 404 and self.session is not None:
            raise failures.session_lost()
        response = None
        with suppress(UpstreamFailed):
            async for message in incoming.messages():
                response = await response_in(self._upstream_context.dialect, message, call)
                if response is not None:
                    break
        if response is not None and response.error is not None:
            call.was_refused = True
            return response
        if status == 400 and self.session is not None:
            raise failures.session_lost()
        raise failures.unwelcome(status)

    def _take_session(self, session: str | None) -> None:
        """Store the server's session id, if any. Raises UpstreamFailed for an invalid one."""
        if session is None:
            return
        if not (session.isascii() and session.isprintable() and 0 < len(session) <= 1024) or " " in session:
            raise protocol_violation("its session id is invalid")
        self.session = session
        self._add_header(SESSION_HEADER, session)

    def _add_header(self, name: str, value: str) -> None:
        self.headers[name] = value
        self._post_headers = POSTED | self.headers


async def read_stream(
    observer: UpstreamObserver,
    hear: Callable[[bytes, Call], Awaitable[Response | None]],
    call: Call,
    messages: AsyncIterator[bytes],
) -> Response | None:
    """Return the response on a stream of the call; None if the stream ends before it.

    `hear` is called with each message, as in `LegacyExchanges`.
    """
    observer.stream_opened("response")
    try:
        async for message in messages:
            response = await hear(message, call)
            if response is not None and response.id == call.id:
                return response
            clog = None if call.listener is None else call.listener.clog()
            if clog is not None:
                # Backpressure: a slow host makes its server wait, instead of filling the gateway's
                # memory.
                await clog
    except UpstreamFailed as failure:
        # A stream that broke off can be reopened, unless its whole channel has ended.
        if failure.reason != UpstreamReason.CLOSED.value or isinstance(failure, failures.Severed):
            raise
    finally:
        observer.stream_ended("response")
    return None


async def response_in(dialect: LegacyUpstream, message: bytes, call: Call) -> Response | None:
    """Return the response to the call that a message is; None if it is another message."""
    decode = dialect.decode
    heard = decode(message, None) if len(message) <= LARGE else await in_thread(partial(decode, message, None))
    return heard.response if isinstance(heard, CallResponse) and heard.response.id == call.id else None
