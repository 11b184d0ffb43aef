"""Interfaces of message channels: `MessageChannel`, its listener `ChannelListener`, and `ChannelProvider`.

A message channel carries whole messages to one server and back: the pipes of a process, or an event
stream with its POSTs. `stdio` and `sse` implement channels and providers; `ChannelTransport` takes
channels from a provider and gives each back after use. A channel is open until
`ChannelListener.on_closed` is called. In this folder a variable `channel` is a message channel.
"""

from datetime import timedelta
from typing import NamedTuple, Protocol

from taskgate.errors import UpstreamFailed
from taskgate.upstream.base import Outgoing


class ChannelRefusal(NamedTuple):
    """The HTTP status by which an SSE server refused a message or its event stream, and the pause that it
    asks for."""

    status: int
    retry_after: timedelta | None = None


class ChannelUnavailable(Exception):
    """The server answered the request for a channel with an HTTP error status."""

    def __init__(self, refusal: ChannelRefusal) -> None:
        super().__init__(f"HTTP status {refusal.status}")
        self.refusal = refusal


class ChannelRequest(NamedTuple):
    """A request for a message channel.

    - `context`: the auth context that it is for. Another context never gets the same channel,
      unless the operator declared that the server keeps no state of callers.
    - `declared`: the text of the parameters of the `initialize` that comes first. Sessions with the
      same text may share a channel. None for the modern era, which has no such message.
    - `outgoing`: the request that will be sent on the channel. `ChannelTransport` cancels `acquire`
      when its time is over. For one that `only_listens`, no channel is opened or ended: an existing
      one is given, or unreachable is raised.
    - `probes`: the request is a `server/discover` that a legacy server may not survive. The channel
      is new, and no other request gets it before it is given back. It may be one more than the
      limit, and its end is no evidence against the server. If the server does not survive, the user
      drops it before it gives it back.
    """

    context: str
    declared: bytes | None
    outgoing: Outgoing
    probes: bool = False


class ChannelListener(Protocol):
    """Listener of a channel, implemented by `Dispatcher`. No method raises, and only
    `on_large_message` waits."""

    @property
    def in_flight(self) -> int:
        """How many requests wait for answers on the channel; 0 if it could be closed unnoticed."""
        ...

    def on_message(self, message: bytes) -> bool:
        """Receive a message. False if it is no valid message: it is skipped, and the message
        channel may log it."""
        ...

    async def on_large_message(self, message: bytes) -> bool:
        """Receive a large message, which is read on another thread. No other message may be
        delivered meanwhile."""
        ...

    def on_truncated(self, ends: bytes) -> bool:
        """Receive the ends of a message that is too large to store. False as for `on_message`.

        `ends` is the beginning and the end with a zero byte between them, or the beginning alone if
        the channel is closed because of it.
        """
        ...

    def on_closed(self, failure: UpstreamFailed) -> None:
        """The channel is closed, and nothing else arrives. Called once, and never within a call of
        the channel.

        `failure` is for every request in flight: reason closed or too_large, dispatched. Its text
        says what happened, without the server's address.
        """
        ...


class MessageChannel(Protocol):
    """One message channel to a server. Channels are compared by identity."""

    @property
    def acknowledges(self) -> bool:
        """Whether `send` returns when the server accepts the message, which may be after it
        answered."""
        ...

    def listen(self, listener: ChannelListener) -> None:
        """Set the listener. Called once, right after the channel was first taken; earlier messages
        are not lost."""
        ...

    async def send(self, outgoing: Outgoing) -> ChannelRefusal | None:
        """Send the message `outgoing.body`. Returns None, or how an SSE server refused it.

        `outgoing.call` is marked as sent before the first byte may be sent, with no wait between.
        The body may contain newlines between its tokens, but not within a string. Messages go out
        in the order of the calls. Raises UpstreamFailed, dispatched if a byte may have been sent.
        If the wait is cancelled, the message is sent whole or not at all.
        """
        ...

    def pause(self) -> None:
        """Stop reading: messages then wait at the server and not in memory."""
        ...

    def resume(self) -> None:
        """Continue reading."""
        ...

    def answered(self, size: int) -> None:
        """Report that the message just delivered, of `size` bytes, answers a request.

        The message channel limits what the server sends besides answers.
        """
        ...

    def drop(self) -> None:
        """Close the channel in the background; `ChannelListener.on_closed` is called then. Its user
        must still give it back."""
        ...


class ChannelProvider(Protocol):
    """Source of the channels to one server: opens, shares and closes them."""

    async def acquire(self, wanted: ChannelRequest) -> MessageChannel:
        """Return a channel for the request, new or shared; the caller must give it back.

        `ChannelListener.on_closed` was not called for it yet. Raises UpstreamFailed, not
        dispatched, if there is none; ChannelUnavailable.
        """
        ...

    def release(self, channel: MessageChannel) -> None:
        """End one use of a channel, without a wait. Must be called once for each `acquire`, also
        after the channel was lost."""
        ...

    async def close(self) -> None:
        """Close every channel, and wait until they are gone; `on_closed` is called, and no more are
        given."""
        ...
