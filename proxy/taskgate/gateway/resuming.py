"""The answer to a GET request of a legacy host: `Resuming`. It opens a new stream, or resumes one
that the host lost (H-LEG-12).

A host resumes with the header `Last-Event-ID: p3-<random>-17`. It names a stream (`p` of a POST,
`g` of a GET), and the number of the last event that the host received. `InSessionMessages` calls
`serve`, after a check of the session's owner; an id of another session has no meaning here. The
cases are:

- a GET stream: `GetStreams` continues it, or serves a new one (`listen`);
- a stream of a call in this process: the missed events, then the stream itself;
- a stream of another replica that waits for a task: that replica releases it, this one continues;
- a stream of a plain call in another replica: its events are forwarded until the call ends.

`streams.resumable`, `streams.event_log` and `streams.handover` store the events.
"""

from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.domain.record import FaultReason
from taskgate.errors import StoreUnavailable, StreamNotFound
from taskgate.gateway.listen import GetStreams
from taskgate.lifecycle.following import Moved, ResultWaiter
from taskgate.protocol.faults import call_ended
from taskgate.protocol.jsonrpc import error_text
from taskgate.sessions.host_session import HostSession
from taskgate.streams.event_stream import EventStream, ForwardedEventStream, ResumableEventStream
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.streams.handover import SharedResumableStreams, StreamForwarder, StreamHandover
from taskgate.streams.log_entries import StreamOrigin, event_for, replayable_event
from taskgate.streams.resumable import FoundStream, StreamPosition, parse_event_id

UNKNOWN: Final = "The stream is unknown or has expired"
LOST: Final = "The gateway that ran the call is gone; the call may or may not have completed"


class Resuming:
    """The finder of the stream that a GET request asks for. `shared` are the streams of all
    replicas; None without other replicas.
    """

    def __init__(
        self, *, listening: GetStreams, following: ResultWaiter, shared: SharedResumableStreams | None = None
    ) -> None:
        self._listening = listening
        self._following = following
        self._shared = shared

    async def serve(self, exchange: Exchange, host_session: HostSession, caller: AuthContext) -> HttpReply:
        """Serve a stream until its host leaves or it ends.

        Raises StreamNotFound for a stream of a call that is unknown or incomplete. It is also
        raised for a GET stream that is known but incomplete; an unknown one is replaced by a new
        stream. Raises StoreUnavailable if another replica may have the stream of a call.
        """
        id_, resumable = exchange.head.last_event_id, host_session.resumable
        if resumable is None:
            # Older revisions have resumption too, but the gateway gives their streams no event ids.
            return await self._listening.serve(exchange, host_session, caller)
        exchange.make_resumable(resumable)
        if id_ is None:
            return await self._listening.serve(exchange, host_session, caller)
        place = parse_event_id(id_)
        if place is None:
            raise StreamNotFound(UNKNOWN)
        trail = resumable.find(place)
        if trail is None and self._shared is not None and not resumable.is_open(place):
            left = await self._left_elsewhere(self._shared, host_session, place)
            if left is not None:
                return await self._go_on(exchange, host_session, caller, place, left)
        if place.is_get_stream and (trail is not None or not resumable.is_open(place)):
            return await self._listen(exchange, host_session, caller, trail)
        if trail is None:
            raise StreamNotFound(UNKNOWN)
        return await self._carry(exchange, host_session, caller, trail)

    async def _listen(
        self, exchange: Exchange, host_session: HostSession, caller: AuthContext, trail: FoundStream | None
    ) -> HttpReply:
        # If the host has left again, the stream stays with the connection that has it.
        if trail is not None and trail.stream is not None and not exchange.resume(trail.stream, trail.missed):
            return HttpReply()
        return await self._listening.serve(exchange, host_session, caller)

    async def _carry(
        self, exchange: Exchange, host_session: HostSession, caller: AuthContext, trail: FoundStream
    ) -> HttpReply:
        """Continue the stream of a call to its end."""
        feed = trail.stream
        if feed is None:
            return _repeat(exchange, trail.missed)
        if not exchange.resume(feed, trail.missed):
            return HttpReply()
        return await self._hold(host_session, caller, feed)

    async def _hold(self, host_session: HostSession, caller: AuthContext, feed: ResumableEventStream) -> HttpReply:
        host_session.questions.on_stream_opened()
        self._listening.background.run(lambda: self._following.go_on(feed, host_session.peer))
        await self._following.hold(feed, caller)
        return HttpReply()

    # --- streams of other replicas ------------------------------------------------------------------------------------

    async def _left_elsewhere(
        self, shared: SharedResumableStreams, host_session: HostSession, place: StreamPosition
    ) -> StreamHandover | None:
        try:
            return await shared.claim(host_session.id, place)
        except StoreUnavailable:
            if place.is_get_stream:
                # A new stream, without the missed events, is better than an error.
                return None
            raise

    async def _go_on(
        self,
        exchange: Exchange,
        host_session: HostSession,
        caller: AuthContext,
        place: StreamPosition,
        left: StreamHandover,
    ) -> HttpReply:
        """Continue a stream of another replica, as far as possible."""
        resumable, about = host_session.resumable, left.origin
        assert resumable is not None
        if left.is_over:
            return _repeat(exchange, [*filter(None, (replayable_event(entry) for _, entry in left.entries))])
        if not place.is_get_stream and about.task is None:
            if about.request is None:
                raise StreamNotFound(UNKNOWN)
            return await self._carry_for_another(exchange, host_session, place, left)
        feed = resumable.adopt("g" if place.is_get_stream else "p", about, [entry for _, entry in left.entries])
        if not exchange.resume(feed, [feed.priming, *(feed.missed_since(0) or ())]):
            feed.discard()
            return HttpReply()
        if place.is_get_stream:
            return await self._listening.serve(exchange, host_session, caller)
        moved = Moved(feed, about, left.ahead)
        self._listening.background.run(lambda: self._following.take_up(exchange, caller, host_session, moved))
        return await self._hold(host_session, caller, feed)

    async def _carry_for_another(
        self, exchange: Exchange, host_session: HostSession, place: StreamPosition, left: StreamHandover
    ) -> HttpReply:
        assert self._shared is not None
        feed, carrier = ForwardedEventStream(), left.forwarder or ""
        missed = [*filter(None, (event_for(entry, carrier) for _, entry in left.entries))]
        if not exchange.resume(feed, missed):
            return HttpReply()
        number = left.entries[-1][0] if left.entries else place.number
        lost = _lost(left.origin)
        carriage = StreamForwarder(self._shared, host_session.id, place.stream, left, number=number, lost=lost)
        await carriage.forward(feed)
        return HttpReply()


def _repeat(exchange: Exchange, missed: list[bytes]) -> HttpReply:
    """Send what a host missed of a stream that has ended."""
    over = EventStream()
    exchange.resume(over, missed)
    over.close()
    return HttpReply()


def _lost(about: StreamOrigin) -> str:
    """Return the error for a call whose process is gone."""
    return error_text(about.request, call_ended(FaultReason.CALL_LOST, LOST, dispatched=True).error)
