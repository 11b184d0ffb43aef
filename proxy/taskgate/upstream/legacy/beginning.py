"""Opening of connections for one legacy session: `Beginnings`, by a handshake or by adoption.

`begin` sends `initialize`, then opens the GET stream, and restores log level and subscriptions.
`adopt` makes a connection to a server session that another process opened, without a handshake.
`HttpSession` has one `Beginnings`. It calls `begin` on first use and after each lost connection;
`adopting` calls `adopt`.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from taskgate.clock import Clock
from taskgate.domain.versions import find_revision
from taskgate.errors import UpstreamFailed
from taskgate.protocol.discovery import ServerDescription
from taskgate.protocol.vocabulary import INITIALIZE
from taskgate.upstream import failures
from taskgate.upstream.context import UpstreamContext
from taskgate.upstream.lasting import Lasting
from taskgate.upstream.legacy.audience import Audience
from taskgate.upstream.legacy.channel_exchanges import ChannelStream
from taskgate.upstream.legacy.conversation import Conversation
from taskgate.upstream.legacy.handshake import Handshake
from taskgate.upstream.legacy.listening import ServerStream
from taskgate.upstream.legacy.talk import Talk
from taskgate.upstream.resume_points import ResumePoint

STREAM_PATIENCE: Final = 0.1
"""Seconds that a new connection waits for its GET stream: notifications before that are lost."""


class Beginnings:
    """The opener of the connections (`Talk`) of one session.

    The settings in `lasting` are sent again after each handshake. `met` is called with the server's
    identity after each handshake. `unwelcome` is called when the server refused a handshake in a
    way that may mean another era. `lost` is called when the GET stream shows that the server ended
    the session of a conversation.
    """

    def __init__(
        self,
        upstream_context: UpstreamContext,
        audience: Audience,
        *,
        clock: Clock,
        lasting: Lasting,
        met: Callable[[ServerDescription], None],
        unwelcome: Callable[[], None],
        lost: Callable[[Conversation], None],
    ) -> None:
        self._upstream_context = upstream_context
        self._audience = audience
        self._clock = clock
        self._lasting = lasting
        self._met = met
        self._unwelcome = unwelcome
        self._lost = lost

    async def begin(self) -> Talk:
        """Open a new connection, with its handshake. Raises UpstreamFailed."""
        upstream_context = self._upstream_context
        conversation, handshake = Conversation(upstream_context, self._audience), Handshake(upstream_context)
        began = self._clock.elapsed()
        asks, first_byte = handshake.asks(self._audience.host), upstream_context.settings.first_byte
        try:
            server = handshake.read(await conversation.ask(handshake.call, asks, first_byte=first_byte))
            await conversation.begin(server)
        except UpstreamFailed as failure:
            handshake.failed(failure)
            upstream_context.observer.answered(INITIALIZE, self._clock.elapsed() - began, failure.reason)
            await conversation.end()
            if isinstance(failure, failures.Unwelcome):
                self._unwelcome()
            raise
        except asyncio.CancelledError:
            await conversation.end()
            raise
        upstream_context.observer.answered(INITIALIZE, self._clock.elapsed() - began, None)
        self._met(server)
        talk = Talk(upstream_context, conversation, await self._listen(conversation))
        talk.ask_again(self._lasting)
        return talk

    def adopt(self, resume_point: ResumePoint) -> Talk:
        """Return a connection to the server session of a resume point. Nothing is sent for it.

        Raises Gone if its revision is no legacy one.
        """
        revision = find_revision(resume_point.revision)
        if revision is None:
            raise failures.Gone
        conversation = Conversation(self._upstream_context, self._audience)
        conversation.adopt(resume_point.session, revision)
        return Talk(
            self._upstream_context, conversation, conversation.listen(partial(self._lost, conversation), self._clock)
        )

    async def _listen(self, conversation: Conversation) -> ServerStream | ChannelStream | None:
        """Start the GET stream, and give the server a short time to accept it."""
        stream = conversation.listen(partial(self._lost, conversation), self._clock)
        if stream is None:
            return None
        try:
            await stream.known(STREAM_PATIENCE)
        except asyncio.CancelledError:
            await stream.close()
            await conversation.end()
            raise
        return stream
