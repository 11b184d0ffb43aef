"""A GET of a host: a stream for what belongs to no request, or one that it lost and takes up again (H-LEG-12).

What must not live here: who may ask (`gateway`: the owner of the session, and no id of another session means anything
in it), how events are kept (`trails`, `event_log`), what goes on a GET stream (`listen`).
"""

from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.engine.listen import Listening
from taskgate.engine.messages import Exchange, Reply
from taskgate.engine.sessions import HostSession
from taskgate.engine.streams.feed import Feed
from taskgate.engine.streams.trails import Trail, read_place
from taskgate.engine.telling.following import Following
from taskgate.errors import StreamNotFound

UNKNOWN: Final = "The stream is not known any more"


class Resuming:
    """Finds the stream that a GET asks for."""

    def __init__(self, *, listening: Listening, following: Following) -> None:
        self._listening = listening
        self._following = following

    async def serve(self, exchange: Exchange, host_session: HostSession, caller: AuthContext) -> Reply:
        """Hold a stream until its host leaves or it ends.

        A stream of a call that is not there any more, or not wholly, is StreamNotFound; of GET streams only one that is
        there, but not wholly: what they carry nobody depends on, and a new one takes the place of one that is unknown.
        """
        id_, trails = exchange.inbound.last_event_id, host_session.trails
        if trails is None:
            # Older revisions know of resumption, too, but have had no ids of us.
            return await self._listening.serve(exchange, host_session, caller)
        exchange.keep(trails)
        if id_ is None:
            return await self._listening.serve(exchange, host_session, caller)
        place = read_place(id_)
        if place is None:
            raise StreamNotFound(UNKNOWN)
        trail = trails.find(place)
        if place.is_of_get and (trail is not None or not trails.knows(place)):
            return await self._listen(exchange, host_session, caller, trail)
        if trail is None:
            raise StreamNotFound(UNKNOWN)
        return await self._carry(exchange, host_session, trail)

    async def _listen(
        self, exchange: Exchange, host_session: HostSession, caller: AuthContext, trail: Trail | None
    ) -> Reply:
        # Whoever has left again takes it from nobody.
        if trail is not None and trail.feed is not None and not exchange.resume(trail.feed, trail.missed):
            return Reply()
        return await self._listening.serve(exchange, host_session, caller)

    async def _carry(self, exchange: Exchange, host_session: HostSession, trail: Trail) -> Reply:
        """The stream of a call goes on here, to its end."""
        feed = trail.feed
        if feed is None:
            over = Feed()
            exchange.resume(over, trail.missed)
            over.close()
            return Reply()
        if not exchange.resume(feed, trail.missed):
            return Reply()
        host_session.questions.stream_opened()
        self._listening.background.run(lambda: self._following.go_on(feed, host_session.peer))
        await feed.ended()
        return Reply()
