"""The turns at one server: so many calls at once, shared fairly between contexts, and a bounded queue for the rest.

A bulkhead knows no call: whoever wants to make one has a ticket, and gives it back. What holds: a slot belongs to the
ticket that it was granted to until that is closed, whatever ends the call; and none is free for a context that waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from taskgate.auth.context import AuthContext
from taskgate.domain.fair_queue import FairQueue, reserved_permits
from taskgate.errors import QueueFull
from taskgate.telemetry.events import ConcurrencyChanged, EventSink, QueueRefused
from taskgate.telemetry.request_context import no_request

MOVED_EVERY: Final = 1.0
"""Seconds between two looks at who has moved up, for those who want to be told."""
NOTED_EVERY: Final = 0.25
"""Seconds within which what is noted of slots is noted once: an event for each call would cost more than its turn."""
BRIEFLY: Final = timedelta(seconds=10)
"""How long a call may wait for its turn whose host waits for the answer itself."""
USUAL_PACE: Final = 2.0
"""Seconds between two turns as long as none has told better."""
LEAST_ADVICE: Final = timedelta(seconds=1)
NEWEST: Final = 0.2
"""How much the newest turn tells of the pace."""

FULL: Final = "Too many calls wait for the server"
NO_QUEUE: Final = "The server has reached its concurrency limit"
TOO_LONG: Final = "The call waited too long in the queue for the server"


def queued(ahead: int) -> str:
    """What a task that waits for its turn says of itself."""
    return f"Queued ({ahead} ahead)"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkheadSettings:
    """How many calls of a server may run at once, how many may wait for a turn, and for how long a task may.

    `share` is how many of one caller run while callers with fewer wait. Where all callers are one (`is_shared` is
    False), nothing is kept free for others.
    """

    concurrency: int
    queue: int
    max_wait: timedelta
    share: int = 8
    is_shared: bool = True

    @property
    def kept(self) -> int:
        """How many slots are for callers who have none."""
        return reserved_permits(self.concurrency) if self.is_shared else 0


class Bulkhead:
    """The slots of the server `name`, and who waits for one. For one thread, and inside an event loop.

    `share` knows the callers who have a share of their own.
    """

    def __init__(
        self, name: str, settings: BulkheadSettings, *, event_sink: EventSink, share: "OwnShare | None" = None
    ) -> None:
        self.name = name
        self._settings = settings
        self._share = share
        self._event_sink = event_sink
        # Tickets close without a call of ours, as long as none waits: `permits` and `noting` are for them, too.
        self.permits: FairQueue[Ticket] = FairQueue(
            settings.concurrency, settings.queue, share=settings.share, reserved=settings.kept
        )
        self.noting: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._pace: float | None = None
        # While somebody waits: when the last turn was, or else when they began to.
        self._last_turn: float | None = None

    @property
    def limit(self) -> int:
        """How many calls may run at once."""
        return self._settings.concurrency

    @property
    def in_use(self) -> int:
        """How many calls run."""
        return self.permits.in_use

    @property
    def queued(self) -> int:
        """How many wait for a turn."""
        return len(self.permits)

    @property
    def utilization(self) -> float:
        """How much is asked of the server, as a part of what it may be asked at once: above 1 where somebody waits."""
        waiting = 0 if self._last_turn is None else len(self.permits)
        return (self.permits.in_use + waiting) / self._settings.concurrency

    @property
    def max_wait(self) -> timedelta:
        """How long a task may wait for its turn."""
        return self._settings.max_wait

    def ask(self, context: str, caller: AuthContext | None = None, *, must: bool = False) -> "Ticket":
        """A ticket of a context, to be closed: granted at once where a slot is free that it may have, else it waits.

        `caller` is who asks, None where that is not known. Raises QueueFull where no more may wait; `must` lets it wait
        all the same.
        """
        ticket = Ticket(self, context)
        if self.permits.acquire(context):
            # No ticket waits that comes before it, or the slot would be that one's.
            ticket.granted = True
        else:
            self._enqueue(ticket, caller, must)
        if self.noting is None:
            self._note_soon()
        return ticket

    def adjust(self, settings: BulkheadSettings) -> None:
        """Have other bounds from now on. No slot is taken away, nor a place in the queue; what fits is granted."""
        self._settings = settings
        self.permits.adjust(settings.concurrency, settings.queue, share=settings.share, reserved=settings.kept)
        self._grant()
        self._note_soon()

    # --- for tickets

    def ahead(self, ticket: "Ticket") -> int:
        """How many have their turn before one that waits; see FairQueue."""
        return self.permits.ahead(ticket) if ticket in self.permits else 0

    def settle(self) -> None:
        """A slot was given back, or a place in the queue: grant what may be granted now, and have it noted."""
        if self._last_turn is not None:
            # Somebody waits, or did until now.
            self._grant()
            if not self.permits:
                self._last_turn = None
        if self.noting is None:
            self._note_soon()

    def overdue(self, ticket: "Ticket") -> QueueFull:
        """That one has waited for too long; it leaves the queue."""
        ticket.close()
        self._event_sink.emit(QueueRefused(self.name, "timeout"))
        return QueueFull(TOO_LONG, retry_after=self._advice(len(self.permits) + 1))

    def look(self) -> None:
        """Let those who want to know be told now and then how far they have moved."""
        if self._looking is None:
            with no_request():
                self._looking = asyncio.get_running_loop().call_later(MOVED_EVERY, self._tell_moved)

    def _enqueue(self, ticket: "Ticket", caller: AuthContext | None, must: bool) -> None:
        share = None if caller is None or self._share is None else self._share(caller)
        if not self.permits.enqueue(ticket.context, ticket, share=share, must=must):
            self._event_sink.emit(QueueRefused(self.name, "full"))
            raise QueueFull(FULL if self._settings.queue else NO_QUEUE, retry_after=self._advice(1))
        if self._last_turn is None:
            self._last_turn = asyncio.get_running_loop().time()

    def _grant(self) -> None:
        while (ticket := self.permits.grant()) is not None:
            self._measure()
            ticket.grant()

    def _measure(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._last_turn is not None:
            took = now - self._last_turn
            self._pace = took if self._pace is None else self._pace + NEWEST * (took - self._pace)
        self._last_turn = now

    def _advice(self, turns: int) -> timedelta:
        """When so many have had their turn, if it goes on as it went, and none comes sooner than the last one did."""
        pace = USUAL_PACE if self._pace is None else self._pace
        if self._last_turn is not None:
            pace = max(pace, asyncio.get_running_loop().time() - self._last_turn)
        return max(LEAST_ADVICE, min(timedelta(seconds=pace * turns), self._settings.max_wait))

    def _tell_moved(self) -> None:
        self._looking = None
        for place, ticket in enumerate(self.permits.order()):
            if ticket.cares:
                self.look()
                ticket.moved_to(place)

    def _note_soon(self) -> None:
        if self.noting is None:
            with no_request():
                self.noting = asyncio.get_running_loop().call_later(NOTED_EVERY, self._note)

    def _note(self) -> None:
        self.noting = None
        self._event_sink.emit(ConcurrencyChanged(self.name, self.in_use, self._settings.concurrency, len(self.permits)))


class Ticket:
    """The right to make one call, now or in its turn; to be closed, whatever comes of it."""

    __slots__ = ("_bulkhead", "_closed", "_place", "_waiter", "context", "granted")

    def __init__(self, bulkhead: Bulkhead, context: str) -> None:
        self.context = context
        self.granted = False
        self._bulkhead = bulkhead
        self._closed = False
        self._place: int | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ahead(self) -> int:
        """How many have their turn before it; never too few, as it is now."""
        return self._bulkhead.ahead(self)

    @property
    def max_wait(self) -> timedelta:
        """How long a task may wait for its turn."""
        return self._bulkhead.max_wait

    @property
    def cares(self) -> bool:
        """Whether somebody wants to know where it is."""
        return self._place is not None

    async def turn(self, within: timedelta, moved: "Moved | None" = None) -> None:
        """Wait for its turn. Raises QueueFull where it is not there in time; then it has left the queue.

        `moved` is told, at most once a second, that it moved by a tenth of its place or more; what it does is cut short
        when the time is over.
        """
        if not (self.granted or await self.comes(within, moved)):
            raise self._bulkhead.overdue(self)

    async def comes(self, within: timedelta, moved: "Moved | None" = None) -> bool:
        """Wait for its turn as `turn`, but where it is not there in time it only says so, and stays in its place."""
        if moved is not None:
            self._place = self.ahead
            self._bulkhead.look()
        try:
            async with asyncio.timeout(within.total_seconds()):
                while not self.granted:
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
                    if moved is not None and self._place is not None and not self.granted:
                        await moved(self._place)
        except TimeoutError:
            # It may have come with the last moment; see below.
            pass
        finally:
            self._waiter = self._place = None
        return self.granted

    async def brief_turn(self, waited: float = 0.0) -> None:
        """As `turn`, while a host waits for the answer itself; where it does not come to its turn, it is closed.

        `waited` is for how many seconds it did before.
        """
        try:
            await self.turn(max(min(BRIEFLY, self.max_wait) - timedelta(seconds=waited), timedelta()))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the slot back, or leave the queue. A second close does nothing."""
        if not self._closed:
            self._closed = True
            bulkhead = self._bulkhead
            permits = bulkhead.permits
            concerns_others = permits.release(self.context) if self.granted else permits.withdraw(self)
            if concerns_others or bulkhead.noting is None:
                bulkhead.settle()

    # --- for its bulkhead

    def grant(self) -> None:
        """It is its turn."""
        self.granted = True
        self._wake()

    def moved_to(self, place: int) -> None:
        """So many are before it now."""
        if self._place is not None and abs(place - self._place) >= max(1, self._place // 10):
            self._place = place
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


Moved = Callable[[int], Awaitable[None]]
"""Told how many are before a ticket."""

OwnShare = Callable[[AuthContext], int | None]
"""How many calls of a caller run while others wait; None where that is as for everybody."""
