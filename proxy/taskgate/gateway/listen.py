"""The GET streams of hosts' sessions: `GetStreams`.

A legacy host opens a GET stream for messages that belong to no request: questions of tasks, status
notifications, and notifications of its server. `Resuming` calls `serve` for a new stream and for a
resumed one. The messages come from `StatusNotifier`, `InputDelivery` and the session.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.record import OwnerKey
from taskgate.errors import UpstreamFailed
from taskgate.lifecycle.news import StatusNotifier
from taskgate.lifecycle.offers import InputDelivery
from taskgate.sessions.host_session import MAX_STREAMS, HostSession
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.system.background import Background

LONGEST_TIMER: Final = 86_400.0
"""Seconds of the longest timer. No stream needs to last longer, and event loops bound the delay of
a timer."""


class _Held:
    """An open GET stream, registered in its session. When the session has too many, the oldest
    closes.
    """

    def __init__(
        self, feed: EventStream, host_session: HostSession, caller: AuthContext, offers: InputDelivery
    ) -> None:
        self.feed = feed
        self._host_session = host_session
        self._caller = caller
        self._offers = offers
        self._expiry: asyncio.TimerHandle | None = None
        # The newest stream is last, also if it was registered before.
        host_session.streams.pop(feed, None)
        host_session.streams[feed] = caller
        feed.on_connection_lost(self._lost)
        still_open = [each for each in host_session.streams if not each.is_closed]
        if len(still_open) > MAX_STREAMS:
            still_open[0].close()

    def ends_with(self, until: datetime | None, clock: Clock) -> None:
        """End the stream when the token of its request expires."""
        if until is not None:
            left = (until - clock.wall()).total_seconds()
            self._expiry = asyncio.get_running_loop().call_later(min(left, LONGEST_TIMER), self.feed.close)

    def part(self) -> None:
        """Handle the end of the connection. If another connection has resumed the stream, keep its
        state.
        """
        if self._expiry is not None:
            self._expiry.cancel()
        feed, host_session = self.feed, self._host_session
        feed.remove_callback(self._lost)
        if not feed.is_closed:
            return
        host_session.streams.pop(feed, None)
        if not feed.is_ended:
            host_session.lost_stream = (feed, self._caller)
        self._lost()

    def _lost(self) -> None:
        """Release the questions that this stream delivered, so that another stream delivers them."""
        self._host_session.questions.on_stream_ended(self.feed)
        self._offers.give_back(self.feed)


class GetStreams:
    """The open GET streams of this process."""

    def __init__(self, *, news: StatusNotifier, offers: InputDelivery, clock: Clock) -> None:
        self._news = news
        self._offers = offers
        self._clock = clock
        self.background = Background()
        """Work beside the streams, cancelled at `close`."""

    async def serve(self, exchange: Exchange, host_session: HostSession, caller: AuthContext) -> HttpReply:
        """Serve one GET stream until the host leaves, the session ends, or the request's token
        expires.
        """
        owners = caller.owners(host_session.mount.name)
        held = _Held(exchange.stream(), host_session, caller, self._offers)
        for owner in owners:
            self._news.attend(owner, host_session)
        held.ends_with(caller.expires_at, self._clock)
        meeting = asyncio.get_running_loop().create_task(self._meet(host_session, owners))
        host_session.questions.on_stream_opened()
        try:
            await held.feed.wait_closed()
        finally:
            meeting.cancel()
            held.part()
            for owner in owners:
                self._news.leave(owner, host_session)
        return HttpReply()

    async def close(self) -> None:
        """Cancel the work beside the streams. The streams end with their sessions."""
        await self._news.close()
        await self.background.close()

    async def _meet(self, host_session: HostSession, owners: Sequence[OwnerKey]) -> None:
        """Deliver questions of tasks that waited for a stream, and open the upstream session. After
        a restart the server has no session yet.
        """
        await asyncio.gather(self._news.catch_up(owners, host_session), _greet(host_session))


async def _greet(host_session: HostSession) -> None:
    with suppress(UpstreamFailed):
        await host_session.upstream.open()
