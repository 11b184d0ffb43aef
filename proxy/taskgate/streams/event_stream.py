"""One event stream of a host, as those see it who say something on it.

A stream is more than its connection where its host can take it up again: then its events are numbered and rest in a
log, and one connection after the other carries them, never two at once (H-LEG-8). What must not live here: when to
stream or what to say, sockets (`listener/stream`), which streams a session has (`resumable`).
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from taskgate.clock import Clock
from taskgate.jsontext.large import MessageText
from taskgate.protocol import sse
from taskgate.streams.entries import About
from taskgate.streams.event_log import EventLog
from taskgate.streams.sse_connection import SseConnection

PAUSE: Final = sse.pause(1000)
"""What a host is told of whose stream the gateway ends though it can be taken up again: when to come back."""


class EventStream:
    """One event stream, without a log: over when its connection is."""

    __slots__ = ("_line", "_losses")

    def __init__(self, line: SseConnection | None = None) -> None:
        self._line = line
        self._losses: list[Callable[[], None]] = []

    @property
    def line(self) -> SseConnection | None:
        """The connection that carries it now."""
        return self._line

    @property
    def closed(self) -> bool:
        """Whether no connection carries it: its writers, its host or too much that was waiting ended the last one."""
        return self._line is None

    @property
    def is_given_up(self) -> bool:
        """Whether nobody will ever read what is said now."""
        return self._line is None

    def put(self, message: MessageText) -> bool:
        """Say something; False where nobody will hear it. A host too slow for what waits loses its connection."""
        return self.put_now(message)

    def put_now(self, message: MessageText) -> bool:
        """Say something on the connection as it is; False where there is none. It has no id and is never repeated."""
        if self._line is None:
            return False
        try:
            piece = sse.event(message)
        except UnicodeEncodeError:
            # Half a stream would be worse than its end.
            self.close()
            return False
        return self._send(piece)

    def put_answer(self, message: MessageText) -> None:
        """Say what must not be lost for its size; nothing where there is no connection."""
        if self._line is not None:
            self._line.load([sse.event(message)])

    @property
    def is_clogged(self) -> bool:
        """Whether so much waits for a slow host that nothing more should be said for now."""
        return self._line is not None and self._line.is_clogged

    def clog(self) -> Coroutine[Any, Any, None] | None:
        """A wait until more should be said; None where there is no need to."""
        return self._line.room() if self._line is not None and self._line.is_clogged else None

    def finish(self, last: MessageText | None) -> None:
        """End the stream for good, after `last`, whatever its size."""
        if last is not None and self._line is not None:
            self._part(sse.event(last))
        else:
            self._part()

    def close(self) -> None:
        """End the connection after what was said."""
        self._part()

    def lost(self, line: SseConnection) -> None:
        """A connection is gone: does nothing where another carries the stream by now."""
        if line is self._line:
            self._part()

    def attach(self, line: SseConnection, missed: Iterable[bytes]) -> None:
        """Go on with another connection, after what it missed; one that is there is ended before."""
        if self._line is not None:
            self._line.cut()
            self._part()
        line.load(missed)
        self._line = line

    def when_lost(self, note: Callable[[], None]) -> None:
        """Call `note` whenever the stream loses its connection."""
        self._losses.append(note)

    def forget(self, note: Callable[[], None]) -> None:
        """Do not call it any more."""
        if note in self._losses:
            self._losses.remove(note)

    async def ended(self) -> None:
        """Wait until the connection that carries it now has ended. For one waiter."""
        if self._line is not None:
            await self._line.ended()

    def _send(self, piece: bytes) -> bool:
        assert self._line is not None
        if self._line.put(piece):
            return True
        self.close()
        return False

    def _part(self, goodbye: bytes = b"") -> None:
        line, self._line = self._line, None
        if line is None:
            return
        line.end(goodbye)
        for note in tuple(self._losses):
            note()


class ForwardedEventStream(EventStream):
    """The connection of a stream that is another process's: what is said on it was said there."""

    __slots__ = ()

    def pass_on(self, piece: bytes) -> None:
        """Send what was said, as it was written."""
        if self._line is not None:
            self._line.load([piece])

    def close(self) -> None:
        """End the connection after what was said; the host may come back, here or elsewhere."""
        self._part(PAUSE)

    def part(self) -> None:
        """End the connection: the stream is over, or another has it."""
        self._part()


class ResumableEventStream(EventStream):
    """A stream that its host can take up again: what is said without a connection waits in the log.

    `closed` tells that there is no connection now; see `is_given_up` for the end, at which `over` is called.
    """

    __slots__ = (
        "_clock",
        "_given_up",
        "_is_over",
        "_log",
        "_newest",
        "_number",
        "_over",
        "about",
        "ends_when_lost",
        "lost_at",
        "name",
    )

    def __init__(
        self,
        line: SseConnection | None,
        *,
        name: str,
        log: EventLog,
        clock: Clock,
        over: Callable[["ResumableEventStream"], None],
        about: About | None = None,
    ) -> None:
        super().__init__(line)
        self._log = log
        self._clock = clock
        self._number = 0
        self._newest = 0
        self._is_over = False
        self._over = over
        self._given_up: list[Callable[[], None]] = []
        self.name = name
        self.about = about
        """What it answers, where other processes may come to have it."""
        self.lost_at: float | None = None
        self.ends_when_lost = False
        """Whether nobody can come back to it: its session has ended."""
        if line is not None:
            line.put(self.priming)

    @property
    def priming(self) -> bytes:
        """What it begins with."""
        return sse.priming(f"{self.name}-0")

    @property
    def is_given_up(self) -> bool:
        """See EventStream."""
        return self._is_over

    @property
    def is_of_call(self) -> bool:
        """Whether it ends with an answer; a GET stream ends when somebody ends it."""
        return self.name.startswith("p")

    @property
    def is_movable(self) -> bool:
        """Whether another process can go on with it, because nothing is held here for it alone."""
        return self.about is not None and (not self.is_of_call or self.about.task is not None)

    @property
    def is_optional(self) -> bool:
        """Whether it ends some time after its host was seen last; a call goes on instead (H-LEG-10)."""
        return not self.is_of_call or bool(self._given_up)

    def missed_since(self, number: int) -> list[bytes] | None:
        """What was said after that event; None where that cannot be told wholly."""
        return [] if self._newest <= number <= self._number else self._log.since(self.name, number)

    def number(self) -> int:
        """The number of what is said next, though it is no event that anybody comes back to."""
        self._number += 1
        return self._number

    def repeat(self, event: bytes) -> None:
        """Say what was an event of another stream, which this one goes on for."""
        self._number = self._newest = number = self._number + 1
        piece = event if not event.startswith(b"id: ") else event.partition(b"\n")[2]
        piece = f"id: {self.name}-{number}\n".encode() + piece
        self._log.append(self.name, number, piece)

    def put(self, message: MessageText) -> bool:
        """Say something, now or when the host comes back; False after the end."""
        if self._is_over:
            return False
        self._number = self._newest = number = self._number + 1
        try:
            piece = sse.event(message, f"{self.name}-{number}")
        except UnicodeEncodeError:
            self.give_up()
            return False
        self._log.append(self.name, number, piece)
        if self._line is not None and not self._line.is_distant:
            self._send(piece)
        return True

    def finish(self, last: MessageText | None) -> None:
        """End the stream for good; a host that comes back later gets what it missed, and the end."""
        if self._is_over:
            return
        self._is_over = True
        self._over(self)
        piece = b""
        if last is not None:
            self._number = self._newest = self._number + 1
            piece = sse.event(last, f"{self.name}-{self._number}")
        self._log.end(self.name, self._number, piece or None)
        self._part(piece)

    def close(self) -> None:
        """End the connection after what was said; the host may come back."""
        self._part(PAUSE)

    def attach(self, line: SseConnection, missed: Iterable[bytes]) -> None:
        """See EventStream."""
        super().attach(line, missed)
        self.lost_at = None

    def when_given_up(self, forget: Callable[[], None]) -> None:
        """Call `forget` when the host does not come back in time; at once where it cannot."""
        self._given_up.append(forget)
        if self.ends_when_lost and self.closed:
            self.give_up()

    def give_up(self) -> None:
        """Nobody comes back: end the stream and forget it."""
        self._is_over = True
        self._over(self)
        self._log.forget(self.name)
        self._part()
        waiting, self._given_up = self._given_up, []
        for forget in waiting:
            forget()

    def _part(self, goodbye: bytes = b"") -> None:
        if self._line is not None:
            self.lost_at = self._clock.elapsed()
        super()._part(goodbye)
        if self.ends_when_lost and self.is_optional and not self._is_over:
            self.give_up()
