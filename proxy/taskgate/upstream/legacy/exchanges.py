"""HTTP of one conversation: `LegacyExchanges` sends requests and reads their answers.

    POST  request            -> 200, a JSON document, or an event stream with the response
    POST  answer, notice     -> 202
    GET   Last-Event-ID      -> the rest of a stream that ended early (`resuming`)
    DELETE                   -> end of the session

Headers with session id and revision go with every request. `Conversation` handles the messages.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Final

from taskgate.domain.versions import Revision
from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.protocol.messages import Response
from taskgate.protocol.server_messages import CallResponse
from taskgate.protocol.vocabulary import SESSION_HEADER, VERSION_HEADER
from taskgate.system.offload import LARGE, in_thread
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Incoming, Outgoing
from taskgate.upstream.calls import Call, UpstreamContext
from taskgate.upstream.legacy.resuming import EventPosition, behind, end_of, go_on
from taskgate.upstream.principal import Principal

_WITHOUT_VERSION_HEADER: Final = frozenset({Revision.R2024_11_05, Revision.R2025_03_26})


class LegacyExchanges:
    """The requests of one server session.

    `hear` handles a message of a call's stream, and returns it if it is a response. `placed` is
    called with the last event id that was handled.
    """

    def __init__(
        self,
        upstream_context: UpstreamContext,
        hear: Callable[[bytes, Call], Awaitable[Response | None]],
        placed: Callable[[Call, str], None],
    ) -> None:
        self._upstream_context = upstream_context
        self._hear = hear
        self._placed = placed
        self.session: str | None = None
        self.is_open = False
        """Whether the handshake succeeded: from then on the session id is fixed."""
        self.headers: dict[str, str] = {}
        self._posting: dict[str, str] = POSTED

    def welcome(self, revision: Revision) -> None:
        """Mark the session as open, in this revision."""
        self.is_open = True
        if revision not in _WITHOUT_VERSION_HEADER:
            self._send_always(VERSION_HEADER, revision.value)

    def adopt(self, session: str | None, revision: Revision) -> None:
        """Continue a session that another process opened, in this revision."""
        self._take_session(session)
        self.welcome(revision)

    async def take_up(self, call: Call, event: str) -> Response:
        """Return the answer to a request of another process, reading on after `event`. Raises
        UpstreamFailed.

        Gone if the server no longer knows the stream.
        """
        return await self._go_on(call, behind(event), failures.Gone)

    async def ask(self, call: Call, message: str, first_byte: timedelta | None) -> Response:
        """Send a request and return its answer. Raises UpstreamFailed."""
        incoming = await self._post(message, first_byte, call)
        answered = False
        try:
            response = await self._answer(call, incoming)
            answered = True
            return response
        finally:
            await incoming.release(answered=answered)

    async def say(self, message: str, principal: Principal | None = None) -> int:
        """Send a message without an answer; return the HTTP status. Raises UpstreamFailed."""
        incoming = await self._post(message, self._upstream_context.settings.first_byte, principal=principal)
        await incoming.release()
        return incoming.status

    async def part(self) -> None:
        """End the session at the server by DELETE. Raises UpstreamFailed."""
        incoming = await self._upstream_context.transport.send(
            Outgoing(verb="DELETE", headers=self.headers, follows=True)
        )
        await incoming.release()

    def _post(
        self, message: str, first_byte: timedelta | None, call: Call | None = None, principal: Principal | None = None
    ) -> Coroutine[Any, Any, Incoming]:
        outgoing = Outgoing(
            verb="POST",
            headers=self._posting,
            body=message.encode(),
            first_byte=first_byte,
            idle=self._upstream_context.settings.idle if call is None else call.bounds.idle,
            principal=principal if call is None else call.principal,
            left=None if call is None else call.leave,
            follows=call is None,
            placed=None if call is None or call.listener is None else partial(self._placed, call),
        )
        return self._upstream_context.transport.send(outgoing)

    async def _answer(self, call: Call, incoming: Incoming) -> Response:
        if not 200 <= incoming.status < 300:
            return await self._refusal(call, incoming)
        if not self.is_open:
            self._take_session(incoming.session)
        if not incoming.streams:
            return await self._document(call, incoming)
        response = await self._read(call, incoming.messages())
        if response is not None:
            return response
        await incoming.release()
        return await self._go_on(call, end_of(incoming), failures.broke_off)

    def _go_on(
        self, call: Call, place: EventPosition, gone: Callable[[], UpstreamFailed]
    ) -> Coroutine[Any, Any, Response]:
        taking_up = Outgoing(
            verb="GET",
            headers=self.headers,
            first_byte=self._upstream_context.settings.first_byte,
            idle=call.bounds.idle,
            principal=call.principal,
            only_listens=True,
            placed=None if call.listener is None else partial(self._placed, call),
        )
        return go_on(self._upstream_context.transport, taking_up, place, partial(self._read, call), gone=gone)

    async def _read(self, call: Call, messages: AsyncIterator[bytes]) -> Response | None:
        """Return the response on a stream of the call; None if the stream ends before it."""
        self._upstream_context.observer.stream_opened("response")
        try:
            async for message in messages:
                response = await self._hear(message, call)
                if response is not None and response.id == call.id:
                    return response
                clog = None if call.listener is None else call.listener.clog()
                if clog is not None:
                    # Backpressure: a slow host makes its server wait, instead of filling the
                    # gateway's memory.
                    await clog
        except UpstreamFailed as failure:
            if failure.reason != UpstreamReason.CLOSED.value or isinstance(failure, failures.Severed):
                raise
        finally:
            self._upstream_context.observer.stream_ended("response")
        return None

    async def _document(self, call: Call, incoming: Incoming) -> Response:
        async for message in incoming.messages():
            hear = self._upstream_context.dialect.decode
            heard = hear(message, None) if len(message) <= LARGE else await in_thread(partial(hear, message, None))
            if isinstance(heard, CallResponse) and heard.response.id == call.id:
                return heard.response
        raise failures.malformed("its answer matches no request of the gateway")

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
        try:
            response = await self._document(call, incoming)
        except UpstreamFailed:
            response = None
        if response is not None and response.error is not None:
            call.was_refused = True
            return response
        if status == 400 and self.session is not None:
            raise failures.session_lost()
        raise failures.unwelcome(status)

    def _take_session(self, session: str | None) -> None:
        """Store the server's session id. Raises UpstreamFailed for an invalid one."""
        if session is None:
            return
        if not (session.isascii() and session.isprintable() and 0 < len(session) <= 1024) or " " in session:
            raise failures.malformed("its session id is invalid")
        self.session = session
        self._send_always(SESSION_HEADER, session)

    def _send_always(self, name: str, value: str) -> None:
        self.headers[name] = value
        self._posting = POSTED | self.headers
