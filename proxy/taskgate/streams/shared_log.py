"""Streams that a host can take up again at any process: a log in memory whose events are written behind, too.

What must not live here: when that happens (`behind`), and what another process makes of it (`elsewhere`).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar, Final

from taskgate.clock import Clock
from taskgate.streams.behind import WriteBehind
from taskgate.streams.entries import ASIDE, HALT, LAST, LEFT, About, kept, write_about
from taskgate.streams.event_log import EventBudget, MemoryEventLog
from taskgate.streams.sse_connection import SseConnection

QUIET: Final = 120.0
"""Seconds without an entry after which a stream that goes on is touched."""


class SharedEventLog(MemoryEventLog):
    """The EventLog of one session, which others find by its id."""

    def __init__(self, clock: Clock, *, budget: EventBudget, caller: str, session: str, behind: WriteBehind) -> None:
        super().__init__(clock, budget=budget, caller=caller)
        self._session = session
        self._behind = behind
        # Of each stream that goes on: the newest number, and when it was given; longest ago first.
        self._newest: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._carried: set[str] = set()
        self.heard: int | None = None
        """While a note of a task is put on a stream: its place among these."""

    def begin(self, stream: str, about: About) -> None:
        """A stream begins."""
        self._note(stream, 0)
        self._behind.begin(self._session, stream, write_about(about))

    def append(self, stream: str, number: int, event: bytes) -> None:
        """See EventLog."""
        super().append(stream, number, event)
        self._note(stream, number)
        entry = kept(event, self.heard)
        self._behind.append(self._session, stream, number, entry, at_once=stream in self._carried)

    def end(self, stream: str, number: int, event: bytes | None) -> None:
        """See EventLog."""
        super().end(stream, number, event)
        self._over(stream, number if event is not None else number + 1, LAST + (event or b""))

    def forget(self, stream: str) -> None:
        """See EventLog. Who finds what is left of it goes on with it, or tells that it is over."""
        super().forget(stream)
        if stream in self._newest:
            self._over(stream, self._newest[stream][0] + 1, LEFT)

    def aside(self, stream: str, number: int, entry: bytes) -> None:
        """Say something to one carrier; nothing of it is kept here."""
        self._note(stream, number)
        self._behind.append(self._session, stream, number, entry, at_once=True)

    def carry(self, stream: str, *, is_carried: bool) -> None:
        """Whether another process sends what is said on it, which is not to wait then."""
        if is_carried and stream in self._newest:
            self._carried.add(stream)
            self._behind.hurry(self._session, stream)
        else:
            self._carried.discard(stream)

    def trim(self) -> None:
        """See EventLog. What goes on is kept in the log of all, too, however little is said on it."""
        super().trim()
        quiet = self._clock.elapsed() - QUIET
        while self._newest:
            stream, (number, since) = next(iter(self._newest.items()))
            if since >= quiet:
                return
            self._note(stream, number)
            self._behind.touch(self._session, stream)

    def _note(self, stream: str, number: int) -> None:
        self._newest[stream] = number, self._clock.elapsed()
        self._newest.move_to_end(stream)

    def _over(self, stream: str, number: int, entry: bytes) -> None:
        self._newest.pop(stream, None)
        self._carried.discard(stream)
        self._behind.end(self._session, stream, number, entry)


class RemoteConnection(SseConnection):
    """The connection that another process has to the host: `carrier` is its name.

    What is kept of the stream gets there through the log; only what is not is written for it alone, by `write`.
    """

    __slots__ = ("_name", "_write", "carrier", "seen_at")

    is_distant: ClassVar[bool] = True

    def __init__(self, carrier: str, write: Callable[[bytes], None], *, seen_at: float) -> None:
        super().__init__()
        self.carrier = carrier
        self.seen_at = seen_at
        self._name = carrier.encode()
        self._write = write

    def greet(self) -> None:
        """Let the carrier know that no other connection has the stream any more."""
        self._write(b"%b%b " % (ASIDE, self._name))

    def put(self, piece: bytes) -> bool:
        """See SseConnection."""
        self._write(b"%b%b %b" % (ASIDE, self._name, piece))
        return True

    def cut(self) -> None:
        """See SseConnection."""
        self._write(HALT + self._name)
        super().cut()

    def end(self, last: bytes = b"") -> None:
        """See SseConnection. The end of the stream itself is in the log."""
        super().end()
