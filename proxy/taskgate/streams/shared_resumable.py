"""The streams of all processes: handed over to whichever a host comes back to (docs/decisions/0032).

A stream that waits for a task, and a GET stream, are given up by the process that had them, and go on here. That of a
plain call stays with the process that holds the call; it is carried here, out of the log. What must not live here: what
a host is answered (`resuming`). What holds: before a stream is sent from here, the process that had it has said in the
log that it sends it no more, or is gone, or did not say so in time (H-LEG-8).
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from taskgate.clock import Clock
from taskgate.stores.shared import StreamLog, StreamSegment
from taskgate.streams.behind import WriteBehind
from taskgate.streams.entries import LAST, NOTE, About, follow_on, greets, heard_in, read_about
from taskgate.streams.event_log import EventBudget
from taskgate.streams.resumable import ResumableStreams, StreamPosition
from taskgate.streams.shared_log import SharedEventLog

HANDOVER: Final = 2.0
"""Seconds that a process has to let go of a stream which its host asks for elsewhere."""


class TakenUp(NamedTuple):
    """A host has come to the sender with a stream: it goes on there, or is carried there under that name.

    It is said again while it is carried.
    """

    session: str
    stream: str
    carrier: str


class PutDown(NamedTuple):
    """The sender carries a stream no more."""

    session: str
    stream: str
    carrier: str


class ReplicaBus(Protocol):
    """The other processes; see ClusterBus."""

    holder: str

    @property
    def has_company(self) -> bool:
        """Whether there are any, as far as is known."""
        ...

    def hear(self, kind: Any, take: Callable[[Any, str], None]) -> None:
        """Have words of a kind."""
        ...

    def say(self, word: tuple[Any, ...], *, to: str | None = None) -> None:
        """Say something to one, or to all."""
        ...


class QuestionTable(Protocol):
    """The questions of a session; see Questions."""

    def stream_opened(self) -> None:
        """There is a stream that was not there before."""
        ...


class AliveSession(Protocol):
    """A host session that is alive here."""

    @property
    def resumable(self) -> ResumableStreams | None: ...

    @property
    def questions(self) -> QuestionTable: ...


class Left(NamedTuple):
    """What another process left of a stream: what it is about, its entries after the one that was asked for.

    `is_whole` is whether none of these is missing.
    `carrier` is the name under which it can be carried here, None where nobody holds it any more. `ahead` is how many
    events the host has that are not in the log.
    """

    about: About
    entries: Sequence[tuple[int, bytes]]
    is_whole: bool
    carrier: str | None
    holder: str
    ahead: int

    @property
    def is_over(self) -> bool:
        """Whether the last that it will ever say is among the entries."""
        return bool(self.entries) and self.entries[-1][1][:1] == LAST


class SharedResumableStreams:
    """What this process has to do with the streams of others, and they with its own."""

    def __init__(self, *, log: StreamLog, company: ReplicaBus, clock: Clock) -> None:
        self.log = log
        self.company = company
        self.behind = WriteBehind(log, company.holder)
        self._clock = clock
        self._numbers = count(1)
        self._find: Callable[[str], AliveSession | None] = lambda _: None
        self._left: Callable[[str, About], None] = lambda _session, _about: None
        company.hear(TakenUp, self._taken_up)
        company.hear(PutDown, self._put_down)

    def serve(self, find: Callable[[str], AliveSession | None]) -> None:
        """Have sessions by their ids: those that are alive here."""
        self._find = find

    def when_left(self, note: Callable[[str, About], None]) -> None:
        """Call `note` when a stream of a session of this process goes on elsewhere, with what it is about."""
        self._left = note

    def log_of(self, session: str, budget: EventBudget, caller: str) -> SharedEventLog:
        """The log of a session of this process, to make its Trails with."""
        return SharedEventLog(self._clock, budget=budget, caller=caller, session=session, behind=self.behind)

    async def take_up(self, session: str, place: StreamPosition) -> Left | None:
        """What is there of a stream that this process does not have, after whoever has it let go of it.

        None where it is not known, or cannot be told wholly from there. Raises StoreUnavailable.
        """
        loop, carrier = asyncio.get_running_loop(), f"{self.company.holder}/{next(self._numbers)}"
        until, has_said = loop.time() + HANDOVER, False
        while True:
            passage = await self.log.read(session, place.stream, after=place.number)
            left = None if passage is None else _left_of(passage, place.number, carrier, self.company.holder)
            if left is not None and _is_ready(left):
                return await self._told(session, place, left)
            if passage is None and not self.company.has_company:
                return None
            if not has_said:
                has_said = True
                self.company.say(TakenUp(session, place.stream, carrier), to=None if left is None else left.holder)
            patience = until - loop.time()
            if patience <= 0:
                # Whoever has it does not answer: it is told from the log as far as that goes, or it never was.
                return None if left is None else await self._told(session, place, left)
            await self.log.wait_for_events(session, place.stream, timeout=timedelta(seconds=patience))

    async def _told(self, session: str, place: StreamPosition, left: Left) -> Left | None:
        """What is left, if it is whole; with the last note of a task that was heard on it."""
        if not left.is_whole:
            return None
        entries = left.entries
        if left.about.task is not None and place.number and not any(entry[:1] == NOTE for _, entry in entries):
            passage = await self.log.read(session, place.stream, after=0)
            entries = () if passage is None else passage.events
        heard = [place for place in (heard_in(entry) for _, entry in entries) if place is not None]
        return left._replace(about=left.about._replace(heard=max([left.about.heard, *heard])))

    async def flush(self, within: timedelta) -> bool:
        """Have all in the log that was said on streams here; whether that came to be in time."""
        return await self.behind.flush(within)

    async def close(self) -> None:
        """Flush, if that is soon, and write nothing any more."""
        await self.behind.flush(timedelta(seconds=HANDOVER))
        await self.behind.close()

    def _taken_up(self, word: TakenUp, _: str) -> None:
        host_session = self._find(word.session)
        if host_session is None or host_session.resumable is None:
            return
        feed = host_session.resumable.hand_over(word.stream, word.carrier)
        if feed is not None and not feed.is_given_up:
            host_session.questions.stream_opened()
        elif feed is not None and feed.about is not None:
            self._left(word.session, feed.about)
        self.behind.hurry(word.session, word.stream)

    def _put_down(self, word: PutDown, _: str) -> None:
        host_session = self._find(word.session)
        if host_session is not None and host_session.resumable is not None:
            host_session.resumable.put_down(word.stream, word.carrier)


def _left_of(passage: StreamSegment, after: int, carrier: str, us: str) -> Left:
    is_held = passage.lives and not passage.over and passage.holder != us
    return Left(
        about=read_about(passage.about),
        entries=passage.events,
        is_whole=follow_on(passage.events, after) and (bool(passage.events) or passage.newest <= after),
        carrier=carrier if is_held else None,
        holder=passage.holder,
        ahead=max(0, after - passage.newest),
    )


def _is_ready(left: Left) -> bool:
    """Whether nobody has a stream any more, or whoever has it knows that it goes on here."""
    return left.carrier is None or any(greets(entry, left.carrier) for _, entry in left.entries)
