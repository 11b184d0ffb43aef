"""The streams of one host session that can be taken up again, and the ids of their events.

An id is the stream's kind and number, a mark that no other process makes again, and the event's number, such as
`p3-5f0c9a7e21d4-17`: nothing in it is a secret, and it is looked for in the session of who shows it alone. With a log
that other processes share, streams begin with what they are about there, and can be handed over. What must not live
here: what becomes of a stream that is found (`resuming`), and of those of other processes (`elsewhere`).
"""

import re
from collections.abc import Iterable
from functools import partial
from itertools import count
from typing import Final, Literal, NamedTuple, Protocol

from taskgate.clock import Clock
from taskgate.streams.entries import About, heard_in, repeated
from taskgate.streams.event_log import KEEP, EventLog
from taskgate.streams.event_stream import ResumableEventStream
from taskgate.streams.shared_log import RemoteConnection, SharedEventLog
from taskgate.streams.sse_connection import SseConnection

MARK_BYTES: Final = 6
MOST_LOST: Final = 8
"""GET streams of one session that may wait at once for their host to come back."""

CARRIER_SILENT: Final = 60.0
"""Seconds until a carrier elsewhere that gives no sign of life is taken for gone."""

Kind = Literal["g", "p"]
"""A GET stream, or the stream that answers a POST."""


_NOTHING: Final = About()


class StreamPosition(NamedTuple):
    """Where in a stream a host stopped to hear."""

    stream: str
    number: int

    @property
    def is_of_get(self) -> bool:
        """Whether it is a GET stream's."""
        return self.stream.startswith("g")


class FoundStream(NamedTuple):
    """How a stream goes on: `feed` is None where it has ended after what was missed."""

    feed: ResumableEventStream | None
    missed: list[bytes]


class Opener(Protocol):
    """Makes streams that can be taken up again."""

    def open(self, kind: Kind, line: SseConnection) -> ResumableEventStream:
        """A new stream on a connection, which it begins with the event that says so."""
        ...


class ResumableStreams:
    """The resumable streams of one session; `mark` is what tells them from those of any other process.

    With a `log` that is a SharedEventLog they can be taken up at other processes, too.
    """

    def __init__(self, *, mark: str, log: EventLog, clock: Clock) -> None:
        self._mark = mark
        self._log = log
        self._shared = log if isinstance(log, SharedEventLog) else None
        self._clock = clock
        self._numbers = count(1)
        # Those that go on, and of these once more the GET streams: few, because lost ones are given up.
        self._open: dict[str, ResumableEventStream] = {}
        self._gets: dict[str, ResumableEventStream] = {}
        self._closed = False

    def of(self, about: About) -> Opener:
        """The same, for the stream of a request."""
        return self if self._shared is None else _Course(self, about)

    def open(self, kind: Kind, line: SseConnection | None, about: About = _NOTHING) -> ResumableEventStream:
        """A new stream on a connection, which it begins with the event that says so."""
        name = f"{kind}{next(self._numbers)}-{self._mark}"
        if self._shared is None:
            feed = ResumableEventStream(line, name=name, log=self._log, clock=self._clock, over=self._forget)
        else:
            if about.task is not None and about.wait is None:
                about = about._replace(wait=name)
            self._shared.begin(name, about)
            feed = ResumableEventStream(
                line, name=name, log=self._log, clock=self._clock, over=self._forget, about=about
            )
        self._open[name] = feed
        if kind == "g":
            self._gets[name] = feed
            lost = [each for each in self._gets.values() if each.closed]
            for each in lost[:-MOST_LOST]:
                each.give_up()
        feed.ends_when_lost = self._closed
        return feed

    def go_on(self, kind: Kind, about: About, missed: Iterable[bytes]) -> ResumableEventStream:
        """A new stream, without a connection, that goes on for one of another process after these entries of it."""
        assert self._shared is not None, "only replicas with a shared log take over streams"
        feed = self.open(kind, None, about)
        for entry in missed:
            self._shared.heard = heard_in(entry)
            event = repeated(entry)
            if event:
                feed.repeat(event)
        self._shared.heard = None
        return feed

    def note(self, feed: ResumableEventStream, message: str, place: int) -> None:
        """Say a note of a task on one of these streams; its place goes along, so that it is heard once."""
        assert self._shared is not None, "notes come only from other replicas"
        self._shared.heard = place
        feed.put(message)
        self._shared.heard = None

    def hand_over(self, stream: str, carrier: str) -> ResumableEventStream | None:
        """Let another process have a stream: it goes on there, given up here, or is carried there.

        A connection that it has here is ended before. To be said again every now and then while it is carried; None
        where that changes nothing.
        """
        feed = self._open.get(stream)
        if feed is None or self._shared is None:
            return None
        if feed.is_movable:
            feed.give_up()
            return feed
        now, line = self._clock.elapsed(), feed.line
        if isinstance(line, RemoteConnection) and line.carrier == carrier:
            line.seen_at = now
            return None
        line = RemoteConnection(carrier, partial(_say_aside, self._shared, feed), seen_at=now)
        self._shared.carry(stream, is_carried=True)
        feed.attach(line, ())
        line.greet()
        return feed

    def put_down(self, stream: str, carrier: str) -> None:
        """That process carries it no more."""
        feed = self._open.get(stream)
        if feed is not None and isinstance(feed.line, RemoteConnection) and feed.line.carrier == carrier:
            feed.lost(feed.line)

    def close(self) -> None:
        """The session has ended, so nobody comes back; a call that runs goes on to its end."""
        self._closed = True
        for feed in tuple(self._open.values()):
            feed.ends_when_lost = True
            if feed.closed and feed.is_optional:
                feed.give_up()
        self._log.close()

    def find(self, place: StreamPosition) -> FoundStream | None:
        """The stream, as far as it can be told wholly from there; None where it cannot."""
        feed = self._open.get(place.stream)
        missed = self._log.since(*place) if feed is None else feed.missed_since(place.number)
        return None if missed is None else FoundStream(feed, missed)

    def knows(self, place: StreamPosition) -> bool:
        """Whether the stream goes on."""
        return place.stream in self._open

    def sweep(self) -> None:
        """Give up the streams that nobody came back for, and drop what was kept for long enough."""
        self._log.trim()
        oldest = self._clock.elapsed() - KEEP.total_seconds()
        for feed in tuple(self._open.values()):
            if isinstance(feed.line, RemoteConnection) and feed.line.seen_at < self._clock.elapsed() - CARRIER_SILENT:
                feed.lost(feed.line)
            if feed.lost_at is not None and feed.lost_at <= oldest and feed.is_optional:
                feed.give_up()

    def _forget(self, feed: ResumableEventStream) -> None:
        self._open.pop(feed.name, None)
        self._gets.pop(feed.name, None)


class _Course(NamedTuple):
    """See ResumableStreams.of."""

    resumable: ResumableStreams
    about: About

    def open(self, kind: Kind, line: SseConnection) -> ResumableEventStream:
        """See Opener."""
        return self.resumable.open(kind, line, self.about)


def _say_aside(log: SharedEventLog, feed: ResumableEventStream, entry: bytes) -> None:
    log.aside(feed.name, feed.number(), entry)


def read_place(id: str) -> StreamPosition | None:
    """What an event id says; None for what can be no id of ours."""
    written = _ID(id)
    return None if written is None else StreamPosition(written[1], int(written[2]))


_ID: Final = re.compile(rf"([gp][1-9][0-9]{{0,11}}-[0-9a-f]{{{2 * MARK_BYTES}}})-(0|[1-9][0-9]{{0,11}})").fullmatch
