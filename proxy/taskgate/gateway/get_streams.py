"""The GET streams of legacy hosts: `GetStreams` serves them, `GetRequests` resumes the streams whose
connection a host lost.

A legacy host opens a GET stream for messages that belong to no request: questions of tasks, status
notifications, and notifications of its server. While it is served, the stream is registered in its
session. There `StatusNotifier`, `InputDelivery` and the session itself find it, and send on it. A
stream ends when the host disconnects, the token of its request expires, the session ends, or the
session has too many streams.

A host resumes with the header `Last-Event-ID: p3-<random>-17` (H-LEG-12). It names a stream (`p` of
a POST, `g` of a GET), and the number of the last event that the host received. Streams are looked
up within the host's session. In each case the host first gets the events that it missed:

- A GET stream continues. If it is unknown, a new one is served.
- The stream of a call in this process continues on the new connection.
- The stream of a call that has ended: only the missed events.
- A GET stream, or one that waits for a task, of another replica: that replica releases it, and this
  one continues it.
- The stream of a plain call in another replica: the call and its stream stay there. The events are
  forwarded here until the call ends.

`streams.resumable`, `streams.event_log` and `streams.handover` store the events.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.clock import Clock
from taskgate.domain.record import FaultReason, OwnerKey
from taskgate.errors import StoreUnavailable, StreamNotFound, UpstreamFailed
from taskgate.lifecycle.input_delivery import InputDelivery
from taskgate.lifecycle.result_wait import Moved, ResultWaiter
from taskgate.lifecycle.status_notifications import StatusNotifier
from taskgate.protocol.faults import call_ended
from taskgate.protocol.jsonrpc import error_text
from taskgate.sessions.host_session import MAX_STREAMS, HostSession
from taskgate.streams.event_stream import EventStream, ForwardedEventStream, ResumableEventStream
from taskgate.streams.exchange import Exchange, HttpReply
from taskgate.streams.handover import SharedResumableStreams, StreamForwarder, StreamHandover
from taskgate.streams.log_entries import StreamOrigin, event_for, replayable_event
from taskgate.streams.resumable import FoundStream, StreamPosition, parse_event_id
from taskgate.system.background import Background

LONGEST_TIMER: Final = 86_400.0
"""The most seconds that a stream lasts if its token expires later: event loops bound the delay of a
timer."""
UNKNOWN: Final = "The stream is unknown or has expired"
LOST: Final = "The gateway that ran the call is gone; the call may or may not have completed"


class _ServedStream:
    """A GET stream during its service on one connection.

    Its creation registers the stream in its session, where senders find it. If the session then has
    too many open streams, the oldest one closes. `part` must follow once, when the service ends.
    """

    def __init__(
        self, feed: EventStream, host_session: HostSession, caller: AuthContext, input_delivery: InputDelivery
    ) -> None:
        self.feed = feed
        self._host_session = host_session
        self._caller = caller
        self._input_delivery = input_delivery
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
        self._on_lost()

    def _on_lost(self) -> None:
        """Let another stream deliver the questions sent on this one, which has no connection now.

        The host may resume it. Until then the session sends on it what has no open stream, and the
        stream stores that.
        """
        # Not only in `part`: the server's messages may come before it.
        if not self.feed.is_ended:
            self._host_session.lost_stream = (self.feed, self._caller)
        self._host_session.questions.on_stream_ended(self.feed)
        self._input_delivery.give_back(self.feed)


class GetStreams:
    """The open GET streams of this process."""

    def __init__(self, *, status_notifier: StatusNotifier, input_delivery: InputDelivery, clock: Clock) -> None:
        self._status_notifier = status_notifier
        self._input_delivery = input_delivery
        self._clock = clock
        self.background = Background()
        """Work of `GetRequests` beside the streams, cancelled at `close`."""

    async def serve(self, exchange: Exchange, host_session: HostSession, caller: AuthContext) -> HttpReply:
        """Serve one GET stream until its connection ends, or another connection has resumed it.

        The stream is that of `exchange`: a new one, or the one that `Exchange.resume` continued.
        """
        owners = caller.owners(host_session.mount.name)
        served = _ServedStream(exchange.stream(), host_session, caller, self._input_delivery)
        for owner in owners:
            self._status_notifier.attend(owner, host_session)
        served.ends_with(caller.expires_at, self._clock)
        greeting = asyncio.get_running_loop().create_task(self._greet_host(host_session, owners))
        host_session.questions.on_stream_opened()
        try:
            await served.feed.wait_closed()
        finally:
            greeting.cancel()
            served.part()
            for owner in owners:
                self._status_notifier.leave(owner, host_session)
        return HttpReply()

    async def close(self) -> None:
        """Cancel the work beside the streams. The streams end with their sessions."""
        await self._status_notifier.close()
        await self.background.close()

    async def _greet_host(self, host_session: HostSession, owners: Sequence[OwnerKey]) -> None:
        """Send the questions of tasks that waited for a stream, and open the upstream session.

        After a restart of the gateway the session has none yet, and the server could send nothing.
        """
        await asyncio.gather(self._status_notifier.catch_up(owners, host_session), _open_upstream(host_session))


async def _open_upstream(host_session: HostSession) -> None:
    with suppress(UpstreamFailed):
        await host_session.upstream.open()


# --- resumption ------------------------------------------------------------------------------------------------------


class GetRequests:
    """The handler of GET requests. `shared` are the streams of all replicas; None without others."""

    def __init__(
        self, *, get_streams: GetStreams, results: ResultWaiter, shared: SharedResumableStreams | None = None
    ) -> None:
        self._get_streams = get_streams
        self._results = results
        self._shared = shared

    async def serve(self, exchange: Exchange, host_session: HostSession, caller: AuthContext) -> HttpReply:
        """Serve a stream until its host disconnects or it ends.

        Raises StreamNotFound for the stream of a call that is unknown, or whose missed events are
        gone. That holds also for an open GET stream whose missed events are gone; an unknown one is
        replaced by a new stream. Raises StoreUnavailable if another replica may have the stream of
        a call, which cannot be found out now.
        """
        id_, resumable = exchange.head.last_event_id, host_session.resumable
        if resumable is None:
            # Older revisions have resumption too, but the gateway gives their streams no event ids.
            return await self._get_streams.serve(exchange, host_session, caller)
        exchange.opener = resumable.open
        if id_ is None:
            return await self._get_streams.serve(exchange, host_session, caller)
        position = parse_event_id(id_)
        if position is None:
            raise StreamNotFound(UNKNOWN)
        # None if the stream is unknown in this process, or its missed events are gone.
        found = resumable.find(position)
        if found is None and self._shared is not None and not resumable.is_open(position):
            handover = await self._claim(self._shared, host_session, position)
            if handover is not None:
                return await self._continue_claimed(exchange, host_session, caller, position, handover)
        # An open GET stream without its missed events falls through to StreamNotFound.
        if position.is_get_stream and (found is not None or not resumable.is_open(position)):
            return await self._continue_get_stream(exchange, host_session, caller, found)
        if found is None:
            raise StreamNotFound(UNKNOWN)
        return await self._continue_call(exchange, host_session, caller, found)

    async def _continue_get_stream(
        self, exchange: Exchange, host_session: HostSession, caller: AuthContext, found: FoundStream | None
    ) -> HttpReply:
        """Continue a GET stream that was found, or serve a new one."""
        # If the host has disconnected again, the stream stays with its present connection.
        if found is not None and found.stream is not None and not exchange.resume(found.stream, found.missed):
            return HttpReply()
        return await self._get_streams.serve(exchange, host_session, caller)

    async def _continue_call(
        self, exchange: Exchange, host_session: HostSession, caller: AuthContext, found: FoundStream
    ) -> HttpReply:
        """Continue the stream of a call of this process; without a stream, the call has ended."""
        feed = found.stream
        if feed is None:
            return _send_missed(exchange, found.missed)
        if not exchange.resume(feed, found.missed):
            return HttpReply()
        return await self._serve_resumed(host_session, caller, feed)

    async def _serve_resumed(
        self, host_session: HostSession, caller: AuthContext, feed: ResumableEventStream
    ) -> HttpReply:
        """Serve a resumed stream until its new connection ends; questions that wait are sent on it.

        The wait or the call that feeds the stream goes on when the connection ends.
        """
        host_session.questions.on_stream_opened()
        self._get_streams.background.run(lambda: self._results.go_on(feed, host_session.peer))
        await self._results.hold(feed, caller)
        return HttpReply()

    # --- streams of other replicas ------------------------------------------------------------------------------------

    async def _claim(
        self, shared: SharedResumableStreams, host_session: HostSession, position: StreamPosition
    ) -> StreamHandover | None:
        """Claim a stream of another replica: ask that replica to release it to this one.

        Returns None if no replica has it, and for a GET stream also if the shared store cannot be
        reached. Raises StoreUnavailable for other streams then.
        """
        try:
            return await shared.claim(host_session.id, position)
        except StoreUnavailable:
            if position.is_get_stream:
                # A new stream, without the missed events, is better than an error.
                return None
            raise

    async def _continue_claimed(
        self,
        exchange: Exchange,
        host_session: HostSession,
        caller: AuthContext,
        position: StreamPosition,
        handover: StreamHandover,
    ) -> HttpReply:
        """Continue a claimed stream of another replica, in the way that fits its kind.

        One that is over: only its missed events. A plain call: its events are forwarded. Others: a
        new stream of this process takes over their events (`adopt`).
        """
        resumable, origin = host_session.resumable, handover.origin
        assert resumable is not None
        if handover.is_over:
            return _send_missed(exchange, [*filter(None, (replayable_event(entry) for _, entry in handover.entries))])
        # A plain call: it cannot move to this process.
        if not position.is_get_stream and origin.task is None:
            if origin.request is None:
                raise StreamNotFound(UNKNOWN)
            return await self._forward(exchange, host_session, position, handover)
        feed = resumable.adopt("g" if position.is_get_stream else "p", origin, [entry for _, entry in handover.entries])
        # The new stream has ids of its own, so the host gets its first id, then the missed events.
        if not exchange.resume(feed, [feed.priming, *(feed.missed_since(0) or ())]):
            feed.discard()
            return HttpReply()
        if position.is_get_stream:
            return await self._get_streams.serve(exchange, host_session, caller)
        moved = Moved(feed, origin, handover.ahead)
        self._get_streams.background.run(lambda: self._results.take_up(exchange, caller, host_session, moved))
        return await self._serve_resumed(host_session, caller, feed)

    async def _forward(
        self, exchange: Exchange, host_session: HostSession, position: StreamPosition, handover: StreamHandover
    ) -> HttpReply:
        """Forward the events of a plain call that stays in another replica."""
        assert self._shared is not None
        feed, forwarder = ForwardedEventStream(), handover.forwarder or ""
        missed = [*filter(None, (event_for(entry, forwarder) for _, entry in handover.entries))]
        if not exchange.resume(feed, missed):
            return HttpReply()
        number = handover.entries[-1][0] if handover.entries else position.number
        lost = _lost(handover.origin)
        stream_forwarder = StreamForwarder(
            self._shared, host_session.id, position.stream, handover, number=number, lost=lost
        )
        await stream_forwarder.forward(feed)
        return HttpReply()


def _send_missed(exchange: Exchange, missed: list[bytes]) -> HttpReply:
    """Send what a host missed of a stream that has ended."""
    ended = EventStream()
    exchange.resume(ended, missed)
    ended.close()
    return HttpReply()


def _lost(origin: StreamOrigin) -> str:
    """Return the error for a call whose process is gone."""
    return error_text(origin.request, call_ended(FaultReason.CALL_LOST, LOST, dispatched=True).error)
