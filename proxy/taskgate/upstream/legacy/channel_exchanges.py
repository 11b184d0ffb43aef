"""Messages of one conversation over a message channel: `ChannelExchanges`, and its `ChannelStream`.

It has the members of `LegacyExchanges`, which is for Streamable HTTP. A channel has no session ids,
no headers of the revision and no GET stream: the `ChannelSession` stands for the session. Messages
besides answers come to the session, and a `ChannelStream` passes them on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import Context
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.domain.versions import Revision
from taskgate.errors import UpstreamFailed
from taskgate.jsontext.large import MessageText
from taskgate.protocol.faults import protocol_violation
from taskgate.protocol.messages import Response
from taskgate.system.background import cancel_and_wait
from taskgate.upstream import failures
from taskgate.upstream.base import POSTED, Outgoing
from taskgate.upstream.calls import Principal, RunningCall
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.duplex.pending import OK, PendingRequest, Receipt
from taskgate.upstream.duplex.session import ChannelSession, NotificationReader
from taskgate.upstream.duplex.transport import ChannelSender, ChannelTransport
from taskgate.upstream.legacy.event_streams import read_part, response_in
from taskgate.upstream.settings import UpstreamObserver


class ChannelStream:
    """Messages of a session besides answers, passed to `hear` in a background task until `close`.

    Messages for which `hear` raises UpstreamFailed are skipped. `lost` is called once if the
    channel is lost.
    """

    def __init__(
        self,
        reader: NotificationReader,
        *,
        hear: Callable[[bytes], Awaitable[None]],
        lost: Callable[[], None],
        observer: UpstreamObserver,
    ) -> None:
        self._reader = reader
        self._hear = hear
        self._lost = lost
        self._has_begun = asyncio.Event()
        # Counted as a GET stream, which it replaces.
        observer.stream_opened("get")
        # An empty context: the stream serves all later uses of the session.
        self._task = asyncio.get_running_loop().create_task(self._listen(), context=Context())
        self._task.add_done_callback(lambda _: observer.stream_ended("get"))
        self._task.add_done_callback(lambda _: reader.release())

    async def known(self, within: float) -> None:
        """Wait until the messages so far are read, so that a channel that is lost already is
        noticed."""
        await self._has_begun.wait()

    async def close(self) -> None:
        """End the stream, and wait for its end."""
        await cancel_and_wait(self._task)

    async def _listen(self) -> None:
        self._has_begun.set()
        try:
            async for message in self._reader:
                # An invalid message answers no call, and the stream is still usable.
                with suppress(UpstreamFailed):
                    await self._hear(message)
        except UpstreamFailed:
            self._lost()


class ChannelExchanges:
    """The messages of one server session. `hear` is as in `LegacyExchanges`.

    `transport` adds principal and credentials to each message, and has `channels`.
    """

    session: Final = None
    headers: Final[Mapping[str, str]] = MappingProxyType({})

    def __init__(
        self,
        upstream_context: UpstreamContext,
        transport: ChannelSender,
        channels: ChannelTransport,
        hear: Callable[[bytes, RunningCall], Awaitable[Response | None]],
    ) -> None:
        self._upstream_context = upstream_context
        self._transport = transport
        self._channels = channels
        self._hear = hear
        # None until the server has welcomed the session, and for an adopted session.
        self._session: ChannelSession | None = None
        self._is_open = False

    @property
    def has_session(self) -> bool:
        """Whether there is a session to end."""
        return self._session is not None

    def welcome(self, revision: Revision) -> None:
        """Mark the session as open: the handshake succeeded."""
        self._is_open = True

    def adopt(self, session: str | None, revision: Revision) -> None:
        """Mark a session of another process as open. It ended with the channel of that process."""
        self._is_open = True

    async def take_up(self, call: RunningCall, event: str) -> Response:
        """Raise Gone: the call ended with the channel of the process that sent it."""
        raise failures.Gone

    def send(
        self, call: RunningCall, message: MessageText, first_byte: timedelta | None
    ) -> Coroutine[Any, Any, PendingRequest | Receipt]:
        """Send a request, and return its answer, for `read`, when its first message has arrived.

        Raises UpstreamFailed, for a session that is lost at once.
        """
        session = self._session
        if session is None and self._is_open:
            raise failures.session_lost()
        return self._transport.send(
            Outgoing(
                verb="POST",
                headers=POSTED,
                body=message.encode(),
                first_byte=first_byte,
                idle=call.bounds.idle,
                principal=call.principal,
                call=call,
            ),
            by=partial(self._channels.open, opened=self._opened) if session is None else session.ask,
        )

    async def read(self, call: RunningCall, request: PendingRequest | Receipt) -> Response:
        """Return the response that an answer has. Raises UpstreamFailed."""
        if isinstance(request, Receipt) or request.status != OK:
            raise self._refusal(request.status, request.retry_after)
        upstream_context = self._upstream_context
        if request.streams:
            response = await read_part(upstream_context.observer, self._hear, call, request)
            if response is None:
                raise failures.broke_off()
            return response
        document = await request.document()
        response = None if document is None else await response_in(upstream_context.dialect, document, call)
        if response is None:
            raise protocol_violation("its answer matches no request of the gateway")
        return response

    async def say(self, message: str, principal: Principal | None = None, *, runs_nothing: bool = False) -> int:
        """Send a message that gets no response; return the HTTP status, or one like it. Raises
        UpstreamFailed."""
        session, settings = self._session, self._upstream_context.settings
        if session is None:
            raise failures.session_lost()
        outgoing = Outgoing(
            verb="POST",
            headers=POSTED,
            body=message.encode(),
            first_byte=settings.first_byte,
            idle=settings.idle,
            principal=principal,
            # It is about something that the server has begun.
            follows=True,
            runs_nothing=runs_nothing,
        )
        return (await self._transport.send(outgoing, by=session.send)).status

    async def part(self) -> None:
        """End the session: the channel is given back."""
        self.give_back()

    def give_back(self) -> None:
        """Give the channel back: no call needs it any more."""
        if self._session is not None:
            self._session.end()

    def listen(
        self, hear: Callable[[bytes], Awaitable[None]], lost: Callable[[], None], clock: Clock
    ) -> ChannelStream | None:
        """Start to pass on the messages besides answers; None without a session."""
        if self._session is None:
            return None
        return ChannelStream(self._session.listen(), hear=hear, lost=lost, observer=self._upstream_context.observer)

    def _opened(self, session: ChannelSession) -> None:
        self._session = session

    def _refusal(self, status: int, pause: timedelta | None) -> UpstreamFailed:
        """Return what it means that an SSE server refused a message with this HTTP status."""
        has_credentials = self._upstream_context.settings.has_credentials
        if not self._is_open and failures.tells_nothing(status):
            return failures.refused(status, has_credentials=has_credentials, retry_after=pause)
        if status in failures.CHANNEL_REFUSALS and self._session is not None:
            return failures.SessionDoubted(failures.refused(status, has_credentials=has_credentials))
        return failures.unwelcome(status, has_credentials=has_credentials, retry_after=pause)
