"""The handover of resumable streams to the replica that their host reconnects to
(docs/decisions/0032).

A host resumes a stream here that another replica, its *holder*, has. The steps are:

1. `claim` reads the stream's entries in the shared log, and sends the holder a `StreamClaim`.
2. The holder gives up its own connection to the host (`ResumableStreams.hand_over`). A GET stream,
   or one that waits for a task, it discards, which writes RELEASED into the log. The stream of a
   plain call it keeps, because the call runs there. It then writes a confirmation for the forwarder
   that the claim names.
3. `claim` sees either in the log, and returns a `StreamHandover`. The caller (`gateway.get_streams`)
   continues a released stream as one of its own. For that of a plain call it runs a
   `StreamForwarder`, which sends new entries to the host.

So no two replicas send a stream at once (H-LEG-8). If the holder is gone, or does not answer within
HANDOVER seconds, the log is used as far as it goes.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from taskgate.clock import Clock
from taskgate.errors import StoreUnavailable
from taskgate.protocol import sse
from taskgate.stores.shared import StreamLog, StreamSegment
from taskgate.streams.event_log import EventBudget
from taskgate.streams.event_stream import ForwardedEventStream
from taskgate.streams.log_entries import (
    FINAL,
    NOTE,
    RELEASED,
    StreamOrigin,
    are_consecutive,
    decode_origin,
    event_for,
    is_addressed_to,
    is_stop_for,
    note_number,
)
from taskgate.streams.resumable import ResumableStreams, StreamPosition
from taskgate.streams.shared_log import EventLogWriter, SharedEventLog
from taskgate.system.background import cancel_and_wait

HANDOVER: Final = 2.0
"""Seconds that a replica has to release a stream which its host resumes elsewhere."""
POLL: Final = timedelta(seconds=1)
"""How long a forwarded stream may be silent until its replica is checked: it may be gone."""
HEARTBEAT: Final = 15.0
"""Seconds between heartbeats to the replica whose stream is forwarded."""
RETRY: Final = 0.5
"""Seconds until the next attempt after the store failed."""


class StreamClaim(NamedTuple):
    """A bus message: a host resumes a stream at the sender, which wants to continue or forward it.

    `forwarder` is the name under which the sender would forward it. While it does, it repeats the
    message as a heartbeat.
    """

    session: str
    stream: str
    forwarder: str


class StreamRelease(NamedTuple):
    """A bus message: the sender no longer forwards a stream, because its host has disconnected."""

    session: str
    stream: str
    forwarder: str


class ReplicaBus(Protocol):
    """The bus to the other replicas (`cluster.bus.ClusterBus`)."""

    holder: str

    @property
    def has_peers(self) -> bool:
        """Whether there are other replicas, as far as is known."""
        ...

    def subscribe(self, kind: Any, handler: Callable[[Any, str], None]) -> None:
        """Call `handler` for each message of a kind."""
        ...

    def send(self, message: tuple[Any, ...], *, to: str | None = None) -> None:
        """Send a message to one replica, or to all."""
        ...


class QuestionTable(Protocol):
    """The open questions of a session (`sessions.questions.SessionQuestions`)."""

    def on_stream_opened(self) -> None:
        """Handle that there is a new stream."""
        ...


class LocalSession(Protocol):
    """A host session in this process."""

    @property
    def resumable(self) -> ResumableStreams | None: ...

    @property
    def questions(self) -> QuestionTable: ...


class StreamHandover(NamedTuple):
    """A stream of another replica: its origin, and its entries after the requested one.

    - `is_whole`: whether no entry is missing.
    - `forwarder`: the name under which this replica can forward the stream. None if no live replica
      has the stream any more.
    - `holder`: the replica that has, or had, the stream.
    - `ahead`: how many events the host has received beyond the log's newest. The holder sent them,
      but could not store them.
    """

    origin: StreamOrigin
    entries: Sequence[tuple[int, bytes]]
    is_whole: bool
    forwarder: str | None
    holder: str
    ahead: int

    @property
    def is_over(self) -> bool:
        """Whether the last event of the stream is among the entries."""
        return bool(self.entries) and self.entries[-1][1][:1] == FINAL

    @property
    def is_ready(self) -> bool:
        """Whether the stream may be sent from here now.

        No replica has it any more, or its holder has confirmed the forwarder.
        """
        return self.forwarder is None or any(is_addressed_to(entry, self.forwarder) for _, entry in self.entries)


class SharedResumableStreams:
    """The handover of streams from other replicas to this one, and from this one to others."""

    def __init__(self, *, log: StreamLog, bus: ReplicaBus, clock: Clock) -> None:
        self.log = log
        self.bus = bus
        self.writer = EventLogWriter(log, bus.holder)
        self._clock = clock
        self._numbers = count(1)
        self._find: Callable[[str], LocalSession | None] = lambda _: None
        self._on_released: Callable[[str, StreamOrigin], None] = lambda _session, _origin: None
        bus.subscribe(StreamClaim, self._on_claim)
        bus.subscribe(StreamRelease, self._on_release)

    def connect(self, find: Callable[[str], LocalSession | None]) -> None:
        """Set the look-up of a session in this process by its id."""
        self._find = find

    def on_released(self, callback: Callable[[str, StreamOrigin], None]) -> None:
        """Set the callback for a stream of this replica that another one continues from now on.

        It gets the session and the origin, right after the stream was discarded here.
        """
        self._on_released = callback

    def open_log(self, session: str, budget: EventBudget, caller: str) -> SharedEventLog:
        """The event log of a session in this process."""
        return SharedEventLog(self._clock, budget=budget, caller=caller, session=session, writer=self.writer)

    async def claim(self, session: str, position: StreamPosition) -> StreamHandover | None:
        """Get a stream that another replica has, after that replica stopped sending it.

        Returns None if the stream is unknown or not whole. Raises StoreUnavailable. The caller must
        then continue or forward the stream.
        """
        loop, forwarder = asyncio.get_running_loop(), f"{self.bus.holder}/{next(self._numbers)}"
        until, has_claimed = loop.time() + HANDOVER, False
        while True:
            segment = await self.log.read(session, position.stream, after=position.number)
            handover = None if segment is None else _handover(segment, position.number, forwarder, self.bus.holder)
            if handover is not None and handover.is_ready:
                return await self._complete(session, position, handover)
            if segment is None and not self.bus.has_peers:
                return None
            if not has_claimed:
                has_claimed = True
                # Without an entry in the log any replica may have it: its log may be written late.
                to = None if handover is None else handover.holder
                self.bus.send(StreamClaim(session, position.stream, forwarder), to=to)
            patience = until - loop.time()
            if patience <= 0:
                # Its replica does not answer: use the log as far as it goes, or the stream never existed.
                return None if handover is None else await self._complete(session, position, handover)
            await self.log.wait_for_events(session, position.stream, timeout=timedelta(seconds=patience))

    async def _complete(
        self, session: str, position: StreamPosition, handover: StreamHandover
    ) -> StreamHandover | None:
        """The handover, if it is whole, with the number of the last note that the host received."""
        if not handover.is_whole:
            return None
        origin, entries = handover.origin, handover.entries
        if origin.task is not None and position.number and not any(entry[:1] == NOTE for _, entry in entries):
            # The host missed no note, so its last one is among the entries before.
            segment = await self.log.read(session, position.stream, after=0)
            entries = () if segment is None else segment.events
        notes = [number for number in (note_number(entry) for _, entry in entries) if number is not None]
        return handover._replace(origin=origin._replace(last_note=max([origin.last_note, *notes])))

    async def flush(self, within: timedelta) -> bool:
        """Write everything that was sent on streams here to the log; returns whether that was done
        in time.
        """
        return await self.writer.flush(within)

    async def close(self) -> None:
        """Flush for a short time, then stop."""
        await self.writer.flush(timedelta(seconds=HANDOVER))
        await self.writer.close()

    def _on_claim(self, claim: StreamClaim, _: str) -> None:
        host_session = self._find(claim.session)
        if host_session is None or host_session.resumable is None:
            return
        stream = host_session.resumable.hand_over(claim.stream, claim.forwarder)
        if stream is not None and not stream.is_ended:
            # A forwarder is a new connection: questions that waited for one can go out.
            host_session.questions.on_stream_opened()
        elif stream is not None and stream.origin is not None:
            self._on_released(claim.session, stream.origin)
        self.writer.write_now(claim.session, claim.stream)

    def _on_release(self, release: StreamRelease, _: str) -> None:
        host_session = self._find(release.session)
        if host_session is not None and host_session.resumable is not None:
            host_session.resumable.stop_forwarding(release.stream, release.forwarder)


def _handover(segment: StreamSegment, after: int, forwarder: str, holder: str) -> StreamHandover:
    is_held = segment.lives and not segment.over and segment.holder != holder
    return StreamHandover(
        origin=decode_origin(segment.about),
        entries=segment.events,
        is_whole=are_consecutive(segment.events, after) and (bool(segment.events) or segment.newest <= after),
        forwarder=forwarder if is_held else None,
        holder=segment.holder,
        ahead=max(0, after - segment.newest),
    )


class StreamForwarder:
    """The sender of a plain call's stream at another replica to its host, from the shared log.

    It sends the entries after `number` as they were written, in order. If some are missing, it
    closes the connection. `lost` is the message for the host if no replica has the call any more.
    `_is_over` is set if the stream ended, or another connection has it.
    """

    def __init__(
        self,
        shared: SharedResumableStreams,
        session: str,
        stream: str,
        handover: StreamHandover,
        *,
        number: int,
        lost: str,
    ) -> None:
        self._shared = shared
        self._session = session
        self._name = stream
        self._forwarder = handover.forwarder or ""
        self._holder = handover.holder
        self._number = number
        self._lost = lost
        self._heartbeat_at = asyncio.get_running_loop().time()
        self._is_over = False

    async def forward(self, stream: ForwardedEventStream) -> None:
        """Send new entries until the stream ends, another connection has it, or the host
        disconnects.
        """
        pump = asyncio.get_running_loop().create_task(self._pump(stream))
        try:
            await stream.wait_closed()
        finally:
            await cancel_and_wait(pump)
            if not self._is_over:
                release = StreamRelease(self._session, self._name, self._forwarder)
                self._shared.bus.send(release, to=self._holder)

    async def _pump(self, stream: ForwardedEventStream) -> None:
        while not stream.is_closed:
            try:
                segment = await self._shared.log.read(self._session, self._name, after=self._number)
                if not self._send(segment, stream):
                    return
                await self._shared.log.wait_for_events(self._session, self._name, timeout=POLL)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)
            self._send_heartbeat()
            while (pause := stream.backpressure()) is not None:
                await pause

    def _send(self, segment: StreamSegment | None, stream: ForwardedEventStream) -> bool:
        """Send the new entries; returns whether there may be more."""
        if segment is None or not are_consecutive(segment.events, self._number):
            # The rest is not whole. The host learns that when it reconnects.
            stream.close()
            return False
        for self._number, entry in segment.events:
            if is_stop_for(entry, self._forwarder):
                self._is_over = True
                stream.end()
                return False
            piece = event_for(entry, self._forwarder)
            if piece:
                stream.forward(piece)
        ending = segment.events[-1][1][:1] if segment.events else b""
        if segment.over or ending in (FINAL, RELEASED) or not segment.lives:
            self._is_over = True
            if ending != FINAL:
                stream.forward(sse.event(self._lost))
            stream.end()
            return False
        return True

    def _send_heartbeat(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._heartbeat_at > HEARTBEAT:
            self._heartbeat_at = now
            claim = StreamClaim(self._session, self._name, self._forwarder)
            self._shared.bus.send(claim, to=self._holder)
