"""Concurrency limits: `Bulkhead` for the calls at one server, `OpenStreams` for streams and waits
of callers.

A bulkhead runs a number of calls at once, shares them fairly between persons, and queues the rest.
`Bulkhead.acquire` returns a `Permit`, which is granted at once, or queued and granted later. Its
owner waits until it is granted, makes the call, and must release it in any case. The permit has a
slot from the grant to the release. No slot is free while a context waits that may have it. Slots that
are reserved for other callers are lent to one that calls alone.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from taskgate.admission.rules import CallerLimit, RuntimeConfig
from taskgate.auth.context import AuthContext
from taskgate.domain.fair_queue import FairQueue, reserved_permits
from taskgate.errors import QueueFull, TooManyTasks
from taskgate.telemetry.events import CapRefused, ConcurrencyChanged, EventSink, QueueRefused
from taskgate.telemetry.request_context import no_request

POSITIONS_EVERY: Final = 1.0
"""Seconds between two updates of the positions in the queue."""
REPORT_EVERY: Final = 0.25
"""Seconds between two ConcurrencyChanged events: an event for each call would cost more than its
permit.
"""
LEND_AFTER: Final = 30.0
"""Seconds without a call of another caller after which a caller gets the reserved slots, too."""
BRIEF_WAIT: Final = timedelta(seconds=10)
"""How long a call may wait for a permit while its host waits for the answer itself."""
USUAL_PACE: Final = 2.0
"""Seconds between two grants until one was measured."""
LEAST_ADVICE: Final = timedelta(seconds=1)
NEWEST: Final = 0.2
"""The weight of the newest interval in the measured pace."""

FULL: Final = "The queue of the server {} is full (limit {}): the call was not sent"
NO_QUEUE: Final = "The server {} has reached its concurrency limit ({} calls at once): the call was not sent"
HELD: Final = "An operator holds the server {}: no new call is sent"
HELD_ADVICE: Final = timedelta(seconds=30)
"""The retry delay for a call that is refused because of a hold."""
TOO_LONG: Final = "The call waited {:g} s in the queue of the server {}, and was not sent"

PositionCallback = Callable[[int], Awaitable[None]]
"""Called with the number of permits that are granted before this one."""

ShareOf = Callable[[AuthContext], int | None]
"""How many calls of a caller run while others wait; None for the usual share."""


def queue_status(ahead: int) -> str:
    """The status message of a task that waits for a permit."""
    return f"Queued ({ahead} ahead)"


def queue_position(status_message: str | None) -> int | None:
    """The number in a status message that `queue_status` made; None for any other text."""
    match = _QUEUED.fullmatch(status_message or "")
    return None if match is None else int(match[1])


_QUEUED: Final = re.compile(r"Queued \(([0-9]{1,9}) ahead\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkheadSettings:
    """The limits of one server: calls at once, calls in the queue, and the wait of a task.

    `share` is how many calls of one caller may run while callers with fewer wait. `is_shared` is
    False without authentication: all hosts are one caller, and no slot is reserved for others.
    """

    concurrency: int
    queue: int
    max_wait: timedelta
    share: int = 8
    is_shared: bool = True

    @property
    def reserved(self) -> int:
        """The number of slots that only callers without a running call get."""
        return reserved_permits(self.concurrency) if self.is_shared else 0


class Bulkhead:
    """The slots of the server `name`, and the queue for them. Belongs to one event loop.

    `share` returns the share of a caller that has one of its own. Reserved slots are lent to a caller
    that has called alone for `lend_after` seconds.
    """

    def __init__(
        self,
        name: str,
        settings: BulkheadSettings,
        *,
        event_sink: EventSink,
        share: ShareOf | None = None,
        lend_after: float = LEND_AFTER,
    ) -> None:
        self.name = name
        self._settings = settings
        self._share = share
        self._lend_after = lend_after
        self._event_sink = event_sink
        # Permits use both directly: one without waiters behind it is then released without a call of
        # this object, which matters for speed.
        self.permits: FairQueue[Permit] = FairQueue(
            settings.concurrency, settings.queue, share=settings.share, reserved=settings.reserved
        )
        self.is_held = False
        """Whether an operator holds the server: no new call gets a permit."""
        self.report_timer: asyncio.TimerHandle | None = None
        self._position_timer: asyncio.TimerHandle | None = None
        self._lend_timer: asyncio.TimerHandle | None = None
        self._grant_interval: float | None = None
        # While permits wait: the time of the last grant, or of the first wait.
        self._last_grant: float | None = None

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
        """How many permits wait."""
        return len(self.permits)

    @property
    def reserved(self) -> tuple[int, int]:
        """How many slots are for callers without a running call, and how many of them are lent now."""
        return self.permits.reserved, self.permits.reserved - self.permits.kept

    @property
    def share(self) -> int:
        """How many calls of one caller run while a caller with fewer waits."""
        return self._settings.share

    @property
    def places(self) -> int:
        """How many permits may wait."""
        return self._settings.queue

    def usage(self) -> dict[str, tuple[int, int]]:
        """How many slots and places in the queue each person has now."""
        return self.permits.usage()

    @property
    def utilization(self) -> float:
        """Running and waiting calls as a part of the limit: above 1 while calls wait."""
        waiting = 0 if self._last_grant is None else len(self.permits)
        return (self.permits.in_use + waiting) / self._settings.concurrency

    @property
    def max_wait(self) -> timedelta:
        """How long a task may wait for a permit."""
        return self._settings.max_wait

    def acquire(self, subject: str, caller: AuthContext | None = None, *, force: bool = False) -> "Permit":
        """A permit for a person (`AuthContext.subject`), which must be released.

        It is granted at once if a slot is free for the person, and queued otherwise. `caller`, if
        known, may have a share of its own. Raises QueueFull if the queue is full. With `force` it
        is queued all the same, for a call that was accepted before.
        """
        permit = Permit(self, subject)
        if self.permits.acquire(subject):
            # A permit that waits and comes first would already have this slot.
            permit.is_granted = True
        else:
            self._enqueue(permit, caller, force)
        if self.report_timer is None:
            self._report_soon()
        return permit

    def adjust(self, settings: BulkheadSettings) -> None:
        """Apply other limits. Running calls keep their slots and waiting ones their places; what
        fits is granted.
        """
        self._settings = settings
        self._apply()

    def hold(self, is_held: bool) -> None:
        """Refuse all new calls, or no longer. Running calls go on, and waiting ones keep their
        places.
        """
        self.is_held = is_held
        self._apply()

    def _apply(self) -> None:
        settings = self._settings
        # A limit of 0 is looked up at no cost for calls to other servers, or without a hold.
        limit, reserved = (0, 0) if self.is_held else (settings.concurrency, settings.reserved)
        self.permits.adjust(limit, settings.queue, share=settings.share, reserved=reserved)
        self._grant()
        self._lend_if_alone()
        self._report_soon()

    # --- for permits --------------------------------------------------------------------------------------------------

    def ahead(self, permit: "Permit") -> int:
        """How many permits are granted before a waiting one; never too few."""
        return self.permits.ahead(permit) if permit in self.permits else 0

    def on_release(self) -> None:
        """Grant what fits after a slot or a place in the queue was released, and report it."""
        if self._last_grant is not None:
            # Permits wait, or waited until this release.
            self._grant()
            if not self.permits:
                self._last_grant = None
            else:
                self._lend_if_alone()
        if self.report_timer is None:
            self._report_soon()

    def expire(self, permit: "Permit", waited: timedelta) -> QueueFull:
        """Release a permit that waited too long, and return the error to raise."""
        permit.release()
        self._event_sink.emit(QueueRefused(self.name, "timeout"))
        text = TOO_LONG.format(round(waited.total_seconds(), 1), self.name)
        return QueueFull(text, retry_after=self._advice(len(self.permits) + 1))

    def watch_queue(self) -> None:
        """Start to update the positions of watched permits once a second, if that is not done yet.

        It ends when no watched permit waits any more.
        """
        if self._position_timer is None:
            with no_request():
                self._position_timer = asyncio.get_running_loop().call_later(POSITIONS_EVERY, self._update_positions)

    def _enqueue(self, permit: "Permit", caller: AuthContext | None, force: bool) -> None:
        if self.is_held and not force:
            self._event_sink.emit(QueueRefused(self.name, "held"))
            raise QueueFull(HELD.format(self.name), retry_after=HELD_ADVICE)
        permits = self.permits
        if permits.can_lend and permits.changes == 1:
            # No other caller ever came: what is reserved for others is lent at once.
            permits.lend()
            permit.is_granted = permits.acquire(permit.subject)
            if permit.is_granted:
                return
        share = None if caller is None or self._share is None else self._share(caller)
        if not self.permits.enqueue(permit.subject, permit, share=share, must=force):
            self._event_sink.emit(QueueRefused(self.name, "full"))
            places, at_once = self._settings.queue, self._settings.concurrency
            text = FULL.format(self.name, places) if places else NO_QUEUE.format(self.name, at_once)
            raise QueueFull(text, retry_after=self._advice(1))
        if self._last_grant is None:
            self._last_grant = asyncio.get_running_loop().time()
        self._lend_if_alone()

    def _lend_if_alone(self, changes: int | None = None) -> None:
        """Lend reserved slots if permits wait beside them, and no other caller has called since the
        count of changes of callers was `changes`. Else this is checked again after a while."""
        permits = self.permits
        if self.is_held or not permits or permits.in_use >= permits.limit - 1 or not permits.can_lend:
            return
        if permits.changes == changes:
            permits.lend()
            self._grant()
        elif self._lend_timer is None:
            with no_request():
                self._lend_timer = asyncio.get_running_loop().call_later(
                    self._lend_after, self._lend_later, permits.changes
                )

    def _lend_later(self, changes: int) -> None:
        self._lend_timer = None
        self._lend_if_alone(changes)

    def _grant(self) -> None:
        while (permit := self.permits.grant()) is not None:
            self._measure()
            permit.grant()

    def _measure(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._last_grant is not None:
            interval = now - self._last_grant
            self._grant_interval = (
                interval
                if self._grant_interval is None
                else self._grant_interval + NEWEST * (interval - self._grant_interval)
            )
        self._last_grant = now

    def _advice(self, grants: int) -> timedelta:
        """The estimated time until that many grants, as the retry delay for a refused call.

        If the last grant is longer ago than the usual interval, that time counts as the interval.
        """
        interval = USUAL_PACE if self._grant_interval is None else self._grant_interval
        if self._last_grant is not None:
            interval = max(interval, asyncio.get_running_loop().time() - self._last_grant)
        return max(LEAST_ADVICE, min(timedelta(seconds=interval * grants), self._settings.max_wait))

    def _update_positions(self) -> None:
        self._position_timer = None
        for position, permit in enumerate(self.permits.order()):
            if permit.is_watched:
                self.watch_queue()
                permit.set_position(position)

    def _report_soon(self) -> None:
        if self.report_timer is None:
            with no_request():
                self.report_timer = asyncio.get_running_loop().call_later(REPORT_EVERY, self._report)

    def _report(self) -> None:
        self.report_timer = None
        self._event_sink.emit(ConcurrencyChanged(self.name, self.in_use, self._settings.concurrency, len(self.permits)))


class Permit:
    """The right to make one call, now (`is_granted`) or after a wait; it must be released.

    While a call waits with `on_moved`, `_position` is the position that was last reported.
    """

    __slots__ = ("_bulkhead", "_position", "_waiter", "is_granted", "is_released", "subject")

    def __init__(self, bulkhead: Bulkhead, subject: str) -> None:
        self.subject = subject
        self.is_granted = False
        self._bulkhead = bulkhead
        self.is_released = False
        self._position: int | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ahead(self) -> int:
        """How many permits are granted before it; never too few."""
        return self._bulkhead.ahead(self)

    @property
    def max_wait(self) -> timedelta:
        """How long a task may wait for a permit."""
        return self._bulkhead.max_wait

    @property
    def is_watched(self) -> bool:
        """Whether its position is reported."""
        return self._position is not None

    def renewed(self) -> "Permit":
        """Return another permit for the same person, in even a full queue. It must be released too."""
        return self._bulkhead.acquire(self.subject, force=True)

    async def wait(self, timeout: timedelta, on_moved: PositionCallback | None = None) -> None:
        """Wait until it is granted. Raises QueueFull after `timeout`, when it has left the queue.

        `on_moved` is awaited at most once a second, after a move of at least a tenth of the
        position. The timeout cuts it short.
        """
        if not (self.is_granted or await self.wait_granted(timeout, on_moved)):
            raise self._bulkhead.expire(self, timeout)

    async def wait_granted(self, timeout: timedelta, on_moved: PositionCallback | None = None) -> bool:
        """Wait as `wait` does, but after `timeout` return False and stay in the queue."""
        if on_moved is not None:
            self._position = self.ahead
            self._bulkhead.watch_queue()
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                while not self.is_granted:
                    self._waiter = asyncio.get_running_loop().create_future()
                    await self._waiter
                    if on_moved is not None and self._position is not None and not self.is_granted:
                        await on_moved(self._position)
        except TimeoutError:
            # The grant may have come in the last moment, so `is_granted` decides.
            pass
        finally:
            self._waiter = self._position = None
        return self.is_granted

    async def wait_briefly(self, waited: float = 0.0) -> None:
        """Wait as `wait` does, at most BRIEF_WAIT, for a call whose host waits for the answer.

        `waited` seconds of that have passed before. If this raises, the permit is released.
        """
        try:
            before = timedelta(seconds=waited)
            left = max(min(BRIEF_WAIT, self.max_wait) - before, timedelta())
            if not (self.is_granted or await self.wait_granted(left)):
                raise self._bulkhead.expire(self, before + left)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the slot, or leave the queue. A second call does nothing."""
        if not self.is_released:
            self.is_released = True
            bulkhead = self._bulkhead
            permits = bulkhead.permits
            concerns_others = permits.release(self.subject) if self.is_granted else permits.withdraw(self)
            if concerns_others or bulkhead.report_timer is None:
                bulkhead.on_release()

    # --- for its bulkhead ---------------------------------------------------------------------------------------------

    def grant(self) -> None:
        """Grant it, and wake its waiter."""
        self.is_granted = True
        self._wake()

    def set_position(self, position: int) -> None:
        """Set its position in the queue; a move of at least a tenth wakes its waiter."""
        if self._position is not None and abs(position - self._position) >= max(1, self._position // 10):
            self._position = position
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


# --- streams and waits of callers -------------------------------------------------------------------------------------


class OpenStreams:
    """The number of open streams, and of waits for task results, of each caller and of each person
    with all clients. Idle callers take no memory.
    """

    def __init__(self, *, live: RuntimeConfig, event_sink: EventSink) -> None:
        self._live = live
        self._event_sink = event_sink
        self._streams = _Opened()
        self._waits = _Opened()
        self._of_extensions = _Opened()

    def acquire_stream(self, caller: AuthContext) -> "CountedBlock":
        """One more stream, in a `with` block. Raises TooManyTasks, of streams."""
        return self._acquire("streams", self._streams, caller.key, caller.subject, self._live.current.streams)

    def acquire_extension_stream(self, caller: AuthContext, mount: str) -> "CountedBlock":
        """One more stream of an extension at a mount, in a `with` block (X-EXT-32).

        These count apart from the others, with the same limit. Raises as `acquire_stream`.
        """
        keys = f"{mount} {caller.key}", f"{mount} {caller.subject}"
        return self._acquire("streams", self._of_extensions, *keys, self._live.current.streams)

    def acquire_wait(self, caller: AuthContext) -> "CountedBlock":
        """One more wait for a task result, in a `with` block. Raises TooManyTasks, of waits."""
        all_limit = self._live.current.all_waits
        block = self._acquire("waits", self._waits, caller.key, caller.subject, self._live.current.waits)
        if all_limit is not None and self.waits >= all_limit:
            raise self._refused("waits", "global", all_limit)
        return block

    def has_room_for_wait(self, caller: AuthContext) -> bool:
        """Whether `acquire_wait` would let the caller wait."""
        limits, all_limit, waits = self._live.current.waits, self._live.current.all_waits, self._waits
        return (
            waits.contexts[caller.key] < limits.context
            and waits.subjects[caller.subject] < limits.subject
            and (all_limit is None or waits.total < all_limit)
        )

    def count(self, caller: AuthContext) -> int:
        """How many streams the caller has."""
        return self._streams.contexts[caller.key]

    def usage(self) -> dict[str, tuple[int, int]]:
        """How many streams and waits each caller with any has, by its key."""
        streams, waits = self._streams.contexts, self._waits.contexts
        return {key: (streams[key], waits[key]) for key in streams.keys() | waits.keys()}

    @property
    def waits(self) -> int:
        """How many requests wait for results."""
        return self._waits.total

    @property
    def callers(self) -> int:
        """How many callers have a stream or a wait."""
        return len(self._streams.contexts.keys() | self._waits.contexts.keys())

    def _acquire(self, what: str, opened: "_Opened", context: str, subject: str, limits: CallerLimit) -> "CountedBlock":
        if opened.contexts[context] >= limits.context:
            raise self._refused(what, "context", limits.context)
        if opened.subjects[subject] >= limits.subject:
            raise self._refused(what, "subject", limits.subject)
        return CountedBlock(opened, context, subject)

    def _refused(self, what: str, scope: str, limit: int) -> TooManyTasks:
        self._event_sink.emit(CapRefused(what, scope))
        return TooManyTasks(limit, _NAMES[what], scope=scope, used=limit, advice="close one, or wait until one ends")


class _Opened:
    """The numbers of open streams or waits: of each caller, of each person, and of all."""

    __slots__ = ("contexts", "subjects", "total")

    def __init__(self) -> None:
        self.contexts: Counter[str] = Counter()
        self.subjects: Counter[str] = Counter()
        self.total = 0


class CountedBlock:
    """A `with` block that counts one more of a caller and of its person."""

    __slots__ = ("_context", "_opened", "_subject")

    def __init__(self, opened: _Opened, context: str, subject: str) -> None:
        self._opened = opened
        self._context = context
        self._subject = subject

    def __enter__(self) -> None:
        opened = self._opened
        opened.contexts[self._context] += 1
        opened.subjects[self._subject] += 1
        opened.total += 1

    def __exit__(self, *raised: object) -> None:
        opened = self._opened
        opened.total -= 1
        for counts, key in ((opened.contexts, self._context), (opened.subjects, self._subject)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]


_NAMES: Final = {"streams": "streams", "waits": "waits for task results"}
