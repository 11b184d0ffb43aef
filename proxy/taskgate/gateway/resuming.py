"""A GET of a host: a stream for what belongs to no request, or one that it lost and takes up again (H-LEG-12).

What must not live here: who may ask (`gateway`: the owner of the session, and no id of another session means anything
in it), how events are kept (`streams/resumable`, `event_log`), how another process lets go of its streams
(`shared_resumable`), what goes on a GET stream (`listen`).
"""

from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.domain.record import FaultReason
from taskgate.errors import StoreUnavailable, StreamNotFound
from taskgate.gateway.listen import GetStreams
from taskgate.lifecycle.following import Moved, ResultWaiter
from taskgate.protocol.faults import call_ended
from taskgate.protocol.jsonrpc import error_text
from taskgate.sessions.registry import HostSession
from taskgate.streams.event_stream import EventStream, ForwardedEventStream, ResumableEventStream
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.streams.handover import SharedResumableStreams, StreamForwarder, StreamHandover
from taskgate.streams.log_entries import StreamOrigin, event_for, replayable_event
from taskgate.streams.resumable import FoundStream, StreamPosition, parse_event_id

UNKNOWN: Final = "The stream is unknown or has expired"
LOST: Final = "The gateway that ran the call is gone; the call may or may not have completed"


class Resuming:
    """Finds the stream that a GET asks for. `shared` are those of all processes, None where there is one alone."""

    def __init__(
        self, *, listening: GetStreams, following: ResultWaiter, shared: SharedResumableStreams | None = None
    ) -> None:
        self._listening = listening
        self._following = following
        self._shared = shared

    async def serve(self, exchange: Exchange, host_session: HostSession, caller: AuthContext) -> HttpReply:
        """Hold a stream until its host leaves or it ends.

        A stream of a call that is not there any more, or not wholly, is StreamNotFound; of GET streams only one that is
        there, but not wholly: what they carry nobody depends on, and a new one takes the place of one that is unknown.
        Raises StoreUnavailable where another process may have the stream of a call.
        """
        id_, resumable = exchange.head.last_event_id, host_session.resumable
        if resumable is None:
            # Older revisions know of resumption, too, but have had no ids of us.
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
        # Whoever has left again takes it from nobody.
        if trail is not None and trail.stream is not None and not exchange.resume(trail.stream, trail.missed):
            return HttpReply()
        return await self._listening.serve(exchange, host_session, caller)

    async def _carry(
        self, exchange: Exchange, host_session: HostSession, caller: AuthContext, trail: FoundStream
    ) -> HttpReply:
        """The stream of a call goes on here, to its end."""
        feed = trail.stream
        if feed is None:
            return _repeat(exchange, trail.missed)
        if not exchange.resume(feed, trail.missed):
            return HttpReply()
        return await self._hold(host_session, caller, feed)

    async def _hold(self, host_session: HostSession, caller: AuthContext, feed: ResumableEventStream) -> HttpReply:
        host_session.questions.stream_opened()
        self._listening.background.run(lambda: self._following.go_on(feed, host_session.peer))
        await self._following.hold(feed, caller)
        return HttpReply()

    # --- streams of other processes ---------------------------------------------------------------------------------

    async def _left_elsewhere(
        self, shared: SharedResumableStreams, host_session: HostSession, place: StreamPosition
    ) -> StreamHandover | None:
        try:
            return await shared.claim(host_session.id, place)
        except StoreUnavailable:
            if place.is_get_stream:
                # What comes from now on is better than nothing.
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
        """What another process left of a stream goes on here, as far as that can be."""
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
    """What a host missed of a stream that is over."""
    over = EventStream()
    exchange.resume(over, missed)
    over.close()
    return HttpReply()


def _lost(about: StreamOrigin) -> str:
    """What a host is told of a call whose process is gone."""
    return error_text(about.request, call_ended(FaultReason.CALL_LOST, LOST, dispatched=True).error)
