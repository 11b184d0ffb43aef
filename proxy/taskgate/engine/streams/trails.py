"""The streams of one host session that can be taken up again, and the ids of their events.

An id is the stream's kind and number, a mark that no other process makes again, and the event's number, such as
`p3-5f0c9a7e21d4-17`: nothing in it is a secret, and it is looked for in the session of who shows it alone. What must
not live here: what becomes of a stream that is found (`resuming`).
"""

import re
from itertools import count
from typing import Final, Literal, NamedTuple

from taskgate.clock import Clock
from taskgate.engine.streams.event_log import KEEP, EventLog
from taskgate.engine.streams.feed import LastingFeed
from taskgate.engine.streams.line import Line

MARK_BYTES: Final = 6
MOST_LOST: Final = 8
"""GET streams of one session that may wait at once for their host to come back."""

Kind = Literal["g", "p"]
"""A GET stream, or the stream that answers a POST."""


class Place(NamedTuple):
    """Where in a stream a host stopped to hear."""

    stream: str
    number: int

    @property
    def is_of_get(self) -> bool:
        """Whether it is a GET stream's."""
        return self.stream.startswith("g")


class Trail(NamedTuple):
    """How a stream goes on: `feed` is None where it has ended after what was missed."""

    feed: LastingFeed | None
    missed: list[bytes]


class Trails:
    """The resumable streams of one session; `mark` is what tells them from those of any other process."""

    def __init__(self, *, mark: str, log: EventLog, clock: Clock) -> None:
        self._mark = mark
        self._log = log
        self._clock = clock
        self._numbers = count(1)
        self._open: dict[str, LastingFeed] = {}
        self._closed = False

    def open(self, kind: Kind, line: Line) -> LastingFeed:
        """A new stream on a connection, which it begins with the event that says so."""
        name = f"{kind}{next(self._numbers)}-{self._mark}"
        feed = self._open[name] = LastingFeed(line, name=name, log=self._log, clock=self._clock)
        feed.ends_when_lost = self._closed
        lost = [each for each in self._open.values() if each.closed and not each.is_of_call and not each.is_given_up]
        for each in lost[:-MOST_LOST]:
            each.give_up()
        return feed

    def close(self) -> None:
        """The session has ended, so nobody comes back; a call that runs goes on to its end."""
        self._closed = True
        for feed in self._open.values():
            feed.ends_when_lost = True
            if feed.closed and feed.is_optional and not feed.is_given_up:
                feed.give_up()

    def find(self, place: Place) -> Trail | None:
        """The stream, as far as it can be told wholly from there; None where it cannot."""
        feed = self._live(place.stream)
        missed = self._log.since(*place) if feed is None else feed.missed_since(place.number)
        return None if missed is None else Trail(feed, missed)

    def knows(self, place: Place) -> bool:
        """Whether the stream goes on."""
        return self._live(place.stream) is not None

    def sweep(self) -> None:
        """Give up the streams that nobody came back for, and drop what was kept for long enough."""
        self._log.trim()
        oldest = self._clock.elapsed() - KEEP.total_seconds()
        for name, feed in tuple(self._open.items()):
            if feed.lost_at is not None and feed.lost_at <= oldest and feed.is_optional:
                feed.give_up()
            if feed.is_given_up:
                del self._open[name]

    def _live(self, name: str) -> LastingFeed | None:
        feed = self._open.get(name)
        return None if feed is None or feed.is_given_up else feed


def read_place(id: str) -> Place | None:
    """What an event id says; None for what can be no id of ours."""
    written = _ID(id)
    return None if written is None else Place(written[1], int(written[2]))


_ID: Final = re.compile(rf"([gp][1-9][0-9]{{0,11}}-[0-9a-f]{{{2 * MARK_BYTES}}})-(0|[1-9][0-9]{{0,11}})").fullmatch
