"""The resumable streams of one host session, and the ids of their events: `ResumableStreams`.

An event id such as `p3-5f0c9a7e21d4-17` is the stream's kind and number, a mark, and the event's
number. The mark is unique to the session and process. An id is no secret: it is looked up only in
the session of the host that sends it.

A stream is opened for a GET request, or for a request whose answer becomes a stream. After its
connection is lost, `find` returns it with the missed events, and its host resumes it. The stream of
a plain call waits for that until the call ends; any other is discarded after RETENTION (`sweep`).
With a log that replicas share, streams also store their origin, and can be handed over to another
replica (`handover`).
"""

import re
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final, Literal, NamedTuple

from taskgate.clock import Clock
from taskgate.domain.record import RequestId
from taskgate.streams.event_log import RETENTION, EventLog
from taskgate.streams.event_stream import ResumableEventStream
from taskgate.streams.log_entries import StreamOrigin, note_number, replayable_event
from taskgate.streams.shared_log import RemoteConnection, SharedEventLog
from taskgate.streams.sse_connection import SseConnection

MARK_BYTES: Final = 6
DISCONNECTED_GET_STREAMS: Final = 8
"""GET streams of one session that may wait for their host at once."""

FORWARDER_TIMEOUT: Final = 60.0
"""Seconds without a heartbeat after which a forwarder counts as gone."""

Kind = Literal["g", "p"]
"""A GET stream, or the stream that answers a POST."""

_NO_ORIGIN: Final = StreamOrigin()


class StreamPosition(NamedTuple):
    """A position in a stream: the last event that a host received."""

    stream: str
    number: int

    @property
    def is_get_stream(self) -> bool:
        """Whether the stream is a GET stream."""
        return self.stream.startswith("g")


class FoundStream(NamedTuple):
    """A stream to resume, and the events that the host missed.

    `stream` is None if it has ended: then the missed events are all that is left to send.
    """

    stream: ResumableEventStream | None
    missed: list[bytes]


StreamOpener = Callable[[Kind, SseConnection], ResumableEventStream]
"""Opens the resumable stream of one exchange, if it needs one: `ResumableStreams.open`, or
`open_for` with the request bound to it.
"""


class ResumableStreams:
    """The resumable streams of one session; `mark` makes their names unique across processes.

    With a SharedEventLog as `log`, hosts can resume them at other replicas. The host session owns
    the object, sweeps it at intervals, and closes it when it ends.
    """

    def __init__(self, *, mark: str, log: EventLog, clock: Clock) -> None:
        self._mark = mark
        self._log = log
        self._shared = log if isinstance(log, SharedEventLog) else None
        self._clock = clock
        self._numbers = count(1)
        # All open streams, and the GET streams among them: few, because disconnected ones are discarded.
        self._open: dict[str, ResumableEventStream] = {}
        self._gets: dict[str, ResumableEventStream] = {}
        self._closed = False

    def open(
        self, kind: Kind, connection: SseConnection | None, origin: StreamOrigin = _NO_ORIGIN
    ) -> ResumableEventStream:
        """A new stream on a connection, on which it sends the priming event.

        With a shared log it stores `origin`, what the stream is for, for other replicas.
        """
        name = f"{kind}{next(self._numbers)}-{self._mark}"
        if self._shared is None:
            stream = ResumableEventStream(
                connection, name=name, log=self._log, clock=self._clock, on_end=self._on_stream_end
            )
        else:
            if origin.task is not None and origin.wait is None:
                # A new wait for a task: it has the name of its first stream from now on.
                origin = origin._replace(wait=name)
            self._shared.open(name, origin)
            stream = ResumableEventStream(
                connection, name=name, log=self._log, clock=self._clock, on_end=self._on_stream_end, origin=origin
            )
        self._open[name] = stream
        if kind == "g":
            self._gets[name] = stream
            disconnected = [each for each in self._gets.values() if each.is_closed]
            for each in disconnected[:-DISCONNECTED_GET_STREAMS]:
                each.discard()
        stream.ends_on_disconnect = self._closed
        return stream

    def open_for(
        self, request: RequestId, task: str | None, kind: Kind, connection: SseConnection | None
    ) -> ResumableEventStream:
        """A new stream that answers a request; `task` is the task whose result it waits for, if any."""
        return self.open(kind, connection, StreamOrigin(request, task))

    def find(self, position: StreamPosition) -> FoundStream | None:
        """The stream and what its host missed; None if it is unknown or missed events are gone.

        A number beyond the newest one of an open stream is unknown too.
        """
        stream = self._open.get(position.stream)
        missed = self._log.events_after(*position) if stream is None else stream.missed_since(position.number)
        return None if missed is None else FoundStream(stream, missed)

    def is_open(self, position: StreamPosition) -> bool:
        """Whether the stream is open in this process."""
        return position.stream in self._open

    def sweep(self) -> None:
        """Discard streams whose host did not reconnect in time, and purge the log."""
        self._log.purge()
        now = self._clock.elapsed()
        oldest = now - RETENTION.total_seconds()
        for stream in tuple(self._open.values()):
            connection = stream.connection
            if isinstance(connection, RemoteConnection) and connection.seen_at < now - FORWARDER_TIMEOUT:
                stream.connection_lost(connection)
            if stream.disconnected_at is not None and stream.disconnected_at <= oldest and stream.is_expendable:
                stream.discard()

    def close(self) -> None:
        """Handle that the session has ended: no host can resume its streams any more.

        Streams without a connection are discarded now, the others when they lose it. The streams of
        plain calls go on until the calls end.
        """
        self._closed = True
        for stream in tuple(self._open.values()):
            stream.ends_on_disconnect = True
            if stream.is_closed and stream.is_expendable:
                stream.discard()
        self._log.close()

    # --- handover between replicas ------------------------------------------------------------------------------------

    def adopt(self, kind: Kind, origin: StreamOrigin, missed: Iterable[bytes]) -> ResumableEventStream:
        """A new stream, without a connection, that continues one of another replica.

        `missed` are the entries of that stream which the host has not received: they are the first
        of this one.
        """
        assert self._shared is not None, "only replicas with a shared log take over streams"
        stream = self.open(kind, None, origin)
        for entry in missed:
            self._shared.note_number = note_number(entry)
            event = replayable_event(entry)
            if event:
                stream.replay(event)
        self._shared.note_number = None
        return stream

    def send_note(self, stream: ResumableEventStream, message: str, number: int) -> None:
        """Send a note of a task, and store its number, so that a later stream does not repeat it."""
        assert self._shared is not None, "notes come only from other replicas"
        self._shared.note_number = number
        stream.send(message)
        self._shared.note_number = None

    def hand_over(self, stream: str, forwarder: str) -> ResumableEventStream | None:
        """Let another replica have a stream, at the request of its `forwarder`.

        A stream that the other can continue alone is discarded here; the log says so. The stream of
        a plain call stays, and its connection is from now on that of the forwarder. A connection
        that it has here is aborted first. Each heartbeat of the forwarder calls this again, which
        changes nothing. Returns the stream, or None if nothing changed.
        """
        found, log = self._open.get(stream), self._shared
        if found is None or log is None:
            return None
        if found.is_transferable:
            found.discard()
            return found
        now, present = self._clock.elapsed(), found.connection
        if isinstance(present, RemoteConnection) and present.forwarder == forwarder:
            present.seen_at = now
            return None
        connection = RemoteConnection(
            forwarder, lambda entry: log.append_direct(found.name, found.next_number(), entry), seen_at=now
        )
        log.set_forwarded(stream, is_forwarded=True)
        found.attach(connection, ())
        connection.announce()
        return found

    def stop_forwarding(self, stream: str, forwarder: str) -> None:
        """Handle that a forwarder has stopped: the stream has no connection, unless it has another."""
        found = self._open.get(stream)
        connection = None if found is None else found.connection
        if found is not None and isinstance(connection, RemoteConnection) and connection.forwarder == forwarder:
            found.connection_lost(connection)

    def _on_stream_end(self, stream: ResumableEventStream) -> None:
        self._open.pop(stream.name, None)
        self._gets.pop(stream.name, None)


def parse_event_id(id: str) -> StreamPosition | None:
    """The position in an event id; None if the text is no event id of taskgate."""
    found = _ID(id)
    return None if found is None else StreamPosition(found[1], int(found[2]))


_ID: Final = re.compile(rf"([gp][1-9][0-9]{{0,11}}-[0-9a-f]{{{2 * MARK_BYTES}}})-(0|[1-9][0-9]{{0,11}})").fullmatch
