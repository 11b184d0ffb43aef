"""The GET streams of hosts' sessions: `GetStreams`.

A legacy host opens a GET stream for messages that belong to no request: questions of tasks, status
notifications, and notifications of its server. `Resuming` calls `serve` for a new stream and for a
resumed one. While it serves, the stream is registered in its session. There `StatusNotifier`,
`InputDelivery` and the session itself find it, and send on it. A stream ends when the host
disconnects, the token of its request expires, the session ends, or the session has too many
streams. If a resumed stream goes on in another connection, only the service of this one ends.
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
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.status_notifications import StatusNotifier
from taskgate.sessions.host_session import MAX_STREAMS, HostSession
from taskgate.streams.event_stream import EventStream
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.system.background import Background

LONGEST_TIMER: Final = 86_400.0
"""The most seconds that a stream lasts if its token expires later: event loops bound the delay of a
timer."""


class _ServedStream:
    """A GET stream during its service on one connection.

    Its creation registers the stream in its session, where senders find it. If the session then has
    too many open streams, the oldest one closes. `part` must follow once, when the service ends.
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
        feed.on_connection_lost(self._on_lost)
        still_open = [each for each in host_session.streams if not each.is_closed]
        if len(still_open) > MAX_STREAMS:
            still_open[0].close()

    def ends_with(self, until: datetime | None, clock: Clock) -> None:
        """Close the stream's connection at `until`, when the token of its request expires."""
        if until is not None:
            left = (until - clock.wall()).total_seconds()
            self._expiry = asyncio.get_running_loop().call_later(min(left, LONGEST_TIMER), self.feed.close)

    def part(self) -> None:
        """Handle the end of the service: remove the stream from its session, if it has closed.

        A stream that another connection has resumed is still open, and stays.
        """
        if self._expiry is not None:
            self._expiry.cancel()
        feed, host_session = self.feed, self._host_session
        feed.remove_callback(self._on_lost)
        # Another connection has resumed it, and its service has registered it anew.
        if not feed.is_closed:
            return
        host_session.streams.pop(feed, None)
        # The host may resume it. Until then the session sends on it what has no open stream, and the
        # stream stores that.
        if not feed.is_ended:
            host_session.lost_stream = (feed, self._caller)
        self._on_lost()

    def _on_lost(self) -> None:
        """Let another stream deliver the questions sent on this one, which has no connection now."""
        self._host_session.questions.on_stream_ended(self.feed)
        self._offers.give_back(self.feed)


class GetStreams:
    """The open GET streams of this process."""

    def __init__(self, *, news: StatusNotifier, offers: InputDelivery, clock: Clock) -> None:
        self._news = news
        self._offers = offers
        self._clock = clock
        self.background = Background()
        """Work of `Resuming` beside the streams, cancelled at `close`."""

    async def serve(self, exchange: Exchange, host_session: HostSession, caller: AuthContext) -> HttpReply:
        """Serve one GET stream until its connection ends, or another connection has resumed it.

        The stream is that of `exchange`: a new one, or the one that `Exchange.resume` continued.
        """
        owners = caller.owners(host_session.mount.name)
        served = _ServedStream(exchange.stream(), host_session, caller, self._offers)
        for owner in owners:
            self._news.attend(owner, host_session)
        served.ends_with(caller.expires_at, self._clock)
        greeting = asyncio.get_running_loop().create_task(self._greet_host(host_session, owners))
        host_session.questions.on_stream_opened()
        try:
            await served.feed.wait_closed()
        finally:
            greeting.cancel()
            served.part()
            for owner in owners:
                self._news.leave(owner, host_session)
        return HttpReply()

    async def close(self) -> None:
        """Cancel the work beside the streams. The streams end with their sessions."""
        await self._news.close()
        await self.background.close()

    async def _greet_host(self, host_session: HostSession, owners: Sequence[OwnerKey]) -> None:
        """Send the questions of tasks that waited for a stream, and open the upstream session.

        After a restart of the gateway the session has none yet, and the server could send nothing.
        """
        await asyncio.gather(self._news.catch_up(owners, host_session), _open_upstream(host_session))


async def _open_upstream(host_session: HostSession) -> None:
    with suppress(UpstreamFailed):
        await host_session.upstream.open()
