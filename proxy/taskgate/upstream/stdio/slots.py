"""Places of a server's programs: `ProgramSlot`, and `choose_evicted` for the program that makes room.

`StdioChannels` owns the slots (`Owner`) and decides who gets which; the slot observes its channel.
A slot is starting, until `channel` or `failure` is set. With a `channel` it is usable until the
channel ends, and is gone when the program and its pipes are. Without a holder `StdioChannels` lets
it rest (`start_idle_timer`): its program is idle and ends after a time.

At most `processes` programs run. When a request needs one more, `pool` asks here which idle program
to evict for it, and from when (`evictable_from`). Programs count by owner: the caller, or with
shared programs all callers that declare the same. An owner without a program takes the place of one
who has several, rather than of one who has one. Of many programs, some are reserved, so that no
owner gets all.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable
from contextvars import Context
from typing import Any, Final, NamedTuple, Protocol

from taskgate.errors import UpstreamFailed
from taskgate.upstream.stdio import exits
from taskgate.upstream.stdio.channel import ProgramChannel
from taskgate.upstream.stdio.exits import Ending


class Owner(Protocol):
    """The receiver of the events of a slot, which are those of its channel (`ChannelObserver`). No
    method raises or waits."""

    def on_idle(self, slot: "ProgramSlot") -> None:
        """Messages were exchanged, and no request waits for an answer of the program now. Called
        often."""
        ...

    def on_closed(self, slot: "ProgramSlot", channel: ProgramChannel, ending: Ending) -> None:
        """The channel ended, and takes no more messages; the program may still run. Called once."""
        ...

    def on_exit(self, slot: "ProgramSlot", channel: ProgramChannel) -> None:
        """The program exited. Called once, before or after `on_closed`."""
        ...

    def on_gone(self, slot: "ProgramSlot") -> None:
        """The channel ended, and the program and its pipes are gone. Called once, and last."""
        ...


class ProgramSlot:
    """One place. `key` tells which requests may use its program, `owner` whose it counts as.

    `holders` counts the sessions and modern requests that use it. While it `probes`, it is used by
    one request only, and its end is no evidence against the program. `channel` is the channel once
    the program runs, `failure` why it did not start.
    """

    def __init__(self, pool: Owner, key: Hashable, owner: Hashable, *, probes: bool) -> None:
        self._pool = pool
        self.key = key
        self.owner = owner
        self.probes = probes
        self.holders = 0
        self.channel: ProgramChannel | None = None
        self.failure: UpstreamFailed | None = None
        self.is_gone = False
        """Whether the program and its pipes are gone."""
        self._starting: asyncio.Task[None] | None = None
        # The timer that ends the program; runs while the slot rests.
        self._idle: asyncio.TimerHandle | None = None

    # --- its program --------------------------------------------------------------------------------------------------

    def begin(self, start: Callable[["ProgramSlot"], Coroutine[Any, Any, None]]) -> None:
        """Start the program by `start`, which sets `channel` or `failure`; the start continues if
        its waiter is cancelled."""
        self._starting = asyncio.get_running_loop().create_task(start(self), context=Context())

    async def started(self) -> None:
        """Wait until the start is over; then `channel` or `failure` is set."""
        assert self._starting is not None, "begin() comes first"
        if not self._starting.done():
            await asyncio.wait((self._starting,))

    def acquire(self) -> None:
        """Count one more holder; an idle program is then not ended."""
        self._cancel_idle_timer()
        self.holders += 1
        if self.channel is not None:
            self.channel.used = asyncio.get_running_loop().time()

    def release(self) -> None:
        """Count one holder less. After the last one the caller calls `start_idle_timer`."""
        self.holders -= 1

    async def usable_channel(self) -> ProgramChannel:
        """Return the channel to its program. Raises UpstreamFailed if the program did not start, or
        has ended."""
        if self.failure is not None:
            raise exits.again(self.failure)
        assert self.channel is not None, "a slot without a failure has a channel"
        if not self.channel.is_usable:
            raise await self.channel.why_unsent()
        return self.channel

    def start_idle_timer(self, seconds: float) -> None:
        """End the program after so many seconds, unless it is held again before.

        Called when it has no holder. While the program is starting this does nothing, so
        `StdioChannels` calls it again after the start.
        """
        self._cancel_idle_timer()
        if self.channel is not None and self.channel.is_usable:
            self._idle = asyncio.get_running_loop().call_later(
                seconds, self._on_idle_timeout, seconds, context=Context()
            )

    def _on_idle_timeout(self, seconds: float) -> None:
        if self.channel is not None and self.channel.in_flight:
            # A server task runs that is only polled now and then.
            self.start_idle_timer(seconds)
        else:
            self.end()

    def end(self) -> None:
        """End the program if it runs."""
        if self.channel is not None:
            self.channel.end(exits.OURS)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def is_available(self) -> bool:
        """Whether its program runs or is starting."""
        return self.failure is None if self.channel is None else self.channel.is_usable

    @property
    def load(self) -> tuple[int, int]:
        """How much its program is used, for comparison: waiting requests, then holders."""
        return (0 if self.channel is None else self.channel.in_flight), self.holders

    @property
    def pid(self) -> int:
        """The process id for the log; 0 before the start."""
        return 0 if self.channel is None else self.channel.pid

    @property
    def is_ending(self) -> bool:
        """Whether its channel has ended, and its program is about to exit."""
        return self.channel is not None and not self.channel.is_usable

    def idle_since(self) -> float | None:
        """Return the loop time of the last message, minus infinity without a holder; None while the
        program must not be evicted."""
        channel = self.channel
        if channel is None or self.probes or not channel.is_usable or channel.in_flight:
            return None
        return channel.used if self.holders else float("-inf")

    # --- the observer of its channel ----------------------------------------------------------------------------------

    def on_idle(self, channel: ProgramChannel) -> None:
        self._pool.on_idle(self)

    def on_closed(self, channel: ProgramChannel, ending: Ending) -> None:
        self._cancel_idle_timer()
        self._pool.on_closed(self, channel, ending)

    def on_exit(self, channel: ProgramChannel) -> None:
        self._pool.on_exit(self, channel)

    def on_gone(self, channel: ProgramChannel) -> None:
        self.is_gone = True
        self._pool.on_gone(self)

    def _cancel_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


QUIET: Final = 1.0
"""Seconds without a message after which a program that sessions hold may be evicted: a shorter
silence may be a pause between two requests."""
STARVING: Final = 5.0
"""Seconds of waiting after which any moment without a request suffices, and other owners are no
longer protected."""
SETTLING: Final = 0.5
"""Seconds after its start, and after its first message, in which a program that sessions hold is
not evicted. The request that it was started for follows."""
_ONE_RESERVED_OF: Final = 8
"""One of so many programs is reserved for owners that have none."""


class RoomRequest(NamedTuple):
    """A request that waits for room since the loop time `since`. `pool` sets `changed` when it
    should check again."""

    owner: Hashable
    since: float
    changed: "asyncio.Future[None]"


def most_of_one(most: int) -> int:
    """Return how many of `most` programs one owner may have; the rest is reserved for other
    owners."""
    return most - most // _ONE_RESERVED_OF


def spreads_up_to(most: int) -> int:
    """Return up to how many programs another is started although one that is in use could be
    shared.

    For shared programs only, where one could serve all; more spread the load. The rest of `most`,
    at least one, is reserved for owners that have no program.
    """
    return min(most_of_one(most), most - 1)


def choose_evicted(
    slots: Iterable[ProgramSlot], waiter: RoomRequest, now: float, *, may_have_more: bool
) -> ProgramSlot | None:
    """Return the idle program to evict for the waiter, as soon as it is `evictable_from`; None if
    there is none.

    Order: 1. programs that no session holds, 2. programs of the owner that has most, 3. the longest
    idle. A program that a session holds is protected if its owner has no more programs than the
    waiter's owner, unless the waiter starves. If the waiter's owner may not have more
    (`may_have_more`), only a program of its own is evicted.
    """
    slots = tuple(slots)
    owned = Counter(slot.owner for slot in slots)

    def may_go(slot: ProgramSlot) -> bool:
        if slot.owner == waiter.owner:
            return True
        is_protected = slot.holders > 0 and owned[slot.owner] <= owned[waiter.owner] and now - waiter.since < STARVING
        return may_have_more and not is_protected

    idle = [
        (slot.holders > 0, -owned[slot.owner], since, slot)
        for slot in slots
        if (since := slot.idle_since()) is not None
    ]
    return min((each for each in idle if may_go(each[3])), key=lambda each: each[:3], default=_NONE_IDLE)[3]


def evictable_from(slot: ProgramSlot, waiter: RoomRequest) -> float:
    """Return the loop time from which an idle program may be evicted for the waiter; minus infinity
    if no session holds it."""
    since, channel = slot.idle_since(), slot.channel
    if not slot.holders or since is None or channel is None:
        return float("-inf")
    # Before its first message, `used` is the time of its start, or of its last taker.
    settles_from = channel.used if channel.spoke is None else channel.spoke
    return max(settles_from + SETTLING, min(since + QUIET, waiter.since + STARVING))


_NONE_IDLE: Final = (False, 0, 0.0, None)
"""The choice if there is no program to evict."""
