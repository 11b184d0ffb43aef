"""GET streams of hosts: opened, held, and given up. What is told on them is the business of others (`news`)."""

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
from taskgate.sessions.registry import MAX_STREAMS, HostSession
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.system.background import Background

LONGEST_TIMER: Final = 86_400.0
"""Seconds; no stream needs to outlive that, and no event loop counts much further."""


class _Held:
    """One GET stream of a session while it is held."""

    def __init__(
        self, feed: EventStream, host_session: HostSession, caller: AuthContext, offers: InputDelivery
    ) -> None:
        self.feed = feed
        self._host_session = host_session
        self._caller = caller
        self._offers = offers
        self._expiry: asyncio.TimerHandle | None = None
        # The newest, though it may have been there before.
        host_session.streams.pop(feed, None)
        host_session.streams[feed] = caller
        feed.on_connection_lost(self._lost)
        still_open = [each for each in host_session.streams if not each.is_closed]
        if len(still_open) > MAX_STREAMS:
            still_open[0].close()

    def ends_with(self, until: datetime | None, clock: Clock) -> None:
        """End the stream when the token does that it was asked for with."""
        if until is not None:
            left = (until - clock.wall()).total_seconds()
            self._expiry = asyncio.get_running_loop().call_later(min(left, LONGEST_TIMER), self.feed.close)

    def part(self) -> None:
        """The connection is over; where another carries the stream by now, all that is of the stream stays as it is."""
        if self._expiry is not None:
            self._expiry.cancel()
        feed, host_session = self.feed, self._host_session
        feed.remove_callback(self._lost)
        if not feed.is_closed:
            return
        host_session.streams.pop(feed, None)
        if not feed.is_ended:
            host_session.parted = (feed, self._caller)
        self._lost()

    def _lost(self) -> None:
        """What the stream carried is for another one."""
        self._host_session.questions.stream_ended(self.feed)
        self._offers.give_back(self.feed)


class GetStreams:
    """The open GET streams of this process."""

    def __init__(self, *, news: StatusNotifier, offers: InputDelivery, clock: Clock) -> None:
        self._news = news
        self._offers = offers
        self._clock = clock
        self.background = Background()
        """What is done beside streams, and given up with them."""

    async def serve(self, exchange: Exchange, host_session: HostSession, caller: AuthContext) -> HttpReply:
        """Hold one GET stream until the host leaves, the session ends, or the token that it was asked for with."""
        owners = caller.owners(host_session.mount.name)
        held = _Held(exchange.stream(), host_session, caller, self._offers)
        for owner in owners:
            self._news.attend(owner, host_session)
        held.ends_with(caller.expires_at, self._clock)
        meeting = asyncio.get_running_loop().create_task(self._meet(host_session, owners))
        host_session.questions.stream_opened()
        try:
            await held.feed.wait_closed()
        finally:
            meeting.cancel()
            held.part()
            for owner in owners:
                self._news.leave(owner, host_session)
        return HttpReply()

    async def close(self) -> None:
        """Give up what is done beside the streams; they end with their sessions."""
        await self._news.close()
        await self.background.close()

    async def _meet(self, host_session: HostSession, owners: Sequence[OwnerKey]) -> None:
        """What waited for the stream: questions of tasks, and the server, which has to be met again after a restart."""
        await asyncio.gather(self._news.catch_up(owners, host_session), _greet(host_session))


async def _greet(host_session: HostSession) -> None:
    with suppress(UpstreamFailed):
        await host_session.upstream.open()
