"""Programs of one server: `StdioChannels` shares, limits, ends and restarts them.

A `ProgramSlot` is the place of one program, from before its start until it has exited. Its `key`
tells which requests may use it, its `owner` whose program it counts as. Callers of different auth
contexts never share a program, unless the server is configured as `shared`. At most `processes`
run, plus one for an era probe.

A request gets a program of its key, or a new one, or waits until there is room. A request does not
wait for the start of another caller's program. `room` chooses the idle program that makes room;
`restarts` delays the next start after failures.
"""

import asyncio
from collections.abc import Hashable
from contextvars import Context
from itertools import count
from logging import getLogger
from typing import Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.duplex.base import ChannelRequest, MessageChannel
from taskgate.upstream.stdio import exits
from taskgate.upstream.stdio.channel import HARD, SOFT, ProgramChannel
from taskgate.upstream.stdio.exits import LIVES, Cause, Ending, Restarts
from taskgate.upstream.stdio.slots import (
    ProgramSlot,
    RoomRequest,
    choose_evicted,
    evictable_from,
    most_of_one,
    spreads_up_to,
)
from taskgate.upstream.stdio.starting import Program, Starter
from taskgate.upstream.stdio.supervisor_client import Supervisor

log = getLogger("taskgate.upstream")

SHORT: Final = 2.0
"""Seconds that a request waits for a delayed start; for a longer delay it is refused."""
_CHECK: Final = 0.1
"""Seconds between checks for an idle program while requests wait for room."""
_SHARE: Final = 0.9
"""The share of a request's timeout that is spent on the wait for room, so that the reason can be
reported."""
_LAST_WAIT: Final = SOFT + HARD + 2.0
"""Seconds for programs to exit before they are left to the supervisor."""


class StdioChannels:
    """The channels to one server whose programs the gateway starts."""

    def __init__(self, program: Program, supervisor: Supervisor) -> None:
        settings = program.settings
        self._program = program
        self._most = settings.processes
        # Shared programs: more than one only to spread the load.
        self._most_of_one = self._most if settings.shared else most_of_one(self._most)
        self._spreads_up_to = spreads_up_to(self._most) if settings.shared else 0
        self._idle = settings.idle.total_seconds()
        self._starter = Starter(program, supervisor)
        self._restarts = Restarts(settings.backoff.total_seconds(), settings.max_backoff.total_seconds())
        # Programs that are starting or run, which count towards the limit.
        self._slots: list[ProgramSlot] = []
        # The slot of each channel, until the program and its pipes are gone.
        self._of: dict[MessageChannel, ProgramSlot] = {}
        # Requests that wait for room, by ticket: lower numbers came first.
        self._tickets = count()
        self._waiting: dict[int, RoomRequest] = {}
        # The timer for the next check for an idle program.
        self._check: asyncio.TimerHandle | None = None
        # Set by `close`, for the end of the last program.
        self._empty: asyncio.Future[None] | None = None
        self._closed = False

    # --- the channel provider -----------------------------------------------------------------------------------------

    async def acquire(self, wanted: ChannelRequest) -> MessageChannel:
        slot = await self._slot(wanted)
        slot.acquire()
        try:
            await slot.started()
            if self._closed:
                raise failures.let_go(dispatched=False)
            return await slot.usable_channel()
        except BaseException:
            self._release(slot)
            raise

    def release(self, channel: MessageChannel) -> None:
        slot = self._of.get(channel)
        if slot is not None:
            self._release(slot)

    def _release(self, slot: ProgramSlot) -> None:
        """End one use of a slot. Without any, its program becomes idle and is ended later."""
        slot.release()
        if slot.holders:
            return
        slot.probes = False
        if len(self._slots) > self._most:
            # With a probe there was one above the limit.
            slot.end()
        slot.start_idle_timer(self._idle)
        self._wake_waiting()

    async def close(self) -> None:
        self._closed = True
        self._wake_waiting()
        self._cancel_check()
        for slot in tuple(self._slots):
            await slot.started()
        for slot in tuple(self._of.values()):
            slot.end()
        try:
            async with asyncio.timeout(_LAST_WAIT):
                while self._of:
                    self._empty = self._empty or asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._empty)
        except TimeoutError:
            log.error("programs of a server did not exit in time", extra={"upstream": self._program.name})

    # --- choice of a program ------------------------------------------------------------------------------------------

    async def _slot(self, wanted: ChannelRequest) -> ProgramSlot:
        """Return the slot of a suitable program that runs or is starting; start one, or wait, if
        there is none.

        Raises UpstreamFailed: the next start is delayed for too long, or there was no room in time.
        """
        key = wanted.declared if self._program.settings.shared else (wanted.context, wanted.declared)
        owner = self._owner(wanted)
        ticket = next(self._tickets)
        try:
            while True:
                if self._closed:
                    raise failures.let_go(dispatched=False)
                slot = self._find_slot(key, wanted)
                if slot is not None:
                    return slot
                if not wanted.probes and await self._waited_for_backoff(key):
                    continue
                if self._may_start(ticket, owner, probes=wanted.probes):
                    return self._start(key, owner, probes=wanted.probes)
                await self._wait_for_room(ticket, wanted)
        finally:
            if self._waiting.pop(ticket, None) is not None:
                self._wake_waiting()

    async def _wait_for_room(self, ticket: int, wanted: ChannelRequest) -> None:
        """Wait until something has changed that may make room, and begin to make room. Raises
        UpstreamFailed if it takes too long."""
        loop, patience = asyncio.get_running_loop(), wanted.outgoing.first_byte
        since = self._waiting[ticket].since if ticket in self._waiting else loop.time()
        self._waiting[ticket] = RoomRequest(self._owner(wanted), since, loop.create_future())
        self._make_room()
        until = None if patience is None else since + patience.total_seconds() * _SHARE
        try:
            async with asyncio.timeout_at(until):
                await self._waiting[ticket].changed
        except TimeoutError:
            log.warning(
                "all programs of a server are in use; a request is refused", extra={"upstream": self._program.name}
            )
            raise exits.no_room() from None

    def _find_slot(self, key: Hashable, wanted: ChannelRequest) -> ProgramSlot | None:
        """Return the least used suitable slot; None if a program is to be started.

        Raises UpstreamFailed for a request that only listens, for which none is started.
        """
        fit = [slot for slot in self._slots if slot.key == key and not slot.probes and slot.is_available]
        least = min(fit, key=lambda slot: slot.load, default=None)
        if wanted.outgoing.only_listens:
            if least is None:
                raise failures.unreachable("no program")
            return least
        if least is None or wanted.probes:
            return None
        # Shared programs are spread: up to a number, one more is started while all others are in
        # use.
        spreads = least.holders > 0 and len(self._slots) < self._spreads_up_to
        return None if spreads and not (self._waiting or self._restarts.wait(key, _now())) else least

    async def _waited_for_backoff(self, key: Hashable) -> bool:
        """Wait out a short delay before the next start; returns whether there was one. Raises
        UpstreamFailed."""
        pause = self._restarts.wait(key, _now())
        if pause > SHORT:
            raise exits.held_back(self._restarts.failures(key), pause)
        if pause:
            await asyncio.sleep(pause)
        return pause > 0

    def _may_start(self, ticket: int, owner: Hashable, *, probes: bool) -> bool:
        """Whether there is room for one more program, and no earlier waiter that could use it."""
        if probes:
            return len(self._slots) <= self._most
        if len(self._slots) >= self._most or not self._may_have_more(owner):
            return False
        before = (other for other, each in self._waiting.items() if self._may_have_more(each.owner))
        return ticket <= next(before, ticket)

    def _owner(self, wanted: ChannelRequest) -> Hashable:
        """Return whose programs count together: those of one subject, or of one set of capabilities if shared."""
        if self._program.settings.shared:
            return wanted.declared
        principal = wanted.outgoing.principal
        return wanted.context if principal is None else principal.counted_as

    def _may_have_more(self, owner: Hashable) -> bool:
        """Whether the owner has fewer programs than one owner may have."""
        return sum(slot.owner == owner for slot in self._slots) < self._most_of_one

    def _wake_waiting(self) -> None:
        """Have requests that wait for room check again."""
        for waiting in self._waiting.values():
            if not waiting.changed.done():
                waiting.changed.set_result(None)

    # --- number of programs -------------------------------------------------------------------------------------------

    @property
    def processes(self) -> int:
        """How many programs run or start."""
        return len(self._slots)

    def _start(self, key: Hashable, owner: Hashable, *, probes: bool) -> ProgramSlot:
        """Begin to start a program, and return its slot."""
        slot = ProgramSlot(self, key, owner, probes=probes)
        self._slots.append(slot)
        self._program.running(len(self._slots))
        slot.begin(self._begin)
        # Waiters for the same key can use it.
        self._wake_waiting()
        return slot

    async def _begin(self, slot: ProgramSlot) -> None:
        """Start the program of a slot, and record the start or its failure."""
        try:
            channel = await self._starter.start(slot)
        except UpstreamFailed as failure:
            slot.failure = failure.copy()
            # With "internal" the gateway was at fault, not the program.
            if not slot.probes and failure.reason != UpstreamReason.INTERNAL.value:
                self._restarts.failed(slot.key, _now())
            self._leave(slot)
            return
        slot.channel = channel
        # It ended during the start.
        if slot.is_gone:
            return
        self._of[channel] = slot
        cause = None if slot.probes else self._restarts.started(slot.key)
        if cause is not None:
            self._program.restarted(cause)
        if not slot.holders:
            slot.start_idle_timer(self._idle)

    def _leave(self, slot: ProgramSlot) -> None:
        """Remove a slot whose program did not start or has exited."""
        self._slots.remove(slot)
        self._program.running(len(self._slots))
        self._wake_waiting()

    def _make_room(self) -> None:
        """End an idle program for the first waiter that can use the room; if none may go yet, check
        again later.

        Nothing is done while a program is ending: its exit makes room.
        """
        if any(slot.is_ending for slot in self._slots):
            return
        now = _now()
        # Waiters whose owners have all that they may have can only replace a program of their own.
        first = next((each for each in self._waiting.values() if self._may_have_more(each.owner)), None)
        wants = first or next(iter(self._waiting.values()))
        slot = choose_evicted(self._slots, wants, now, may_have_more=first is not None)
        # A caller may give up a request without notice: check again even if no program is idle.
        until = now if slot is None else evictable_from(slot, wants)
        if slot is not None and until <= now:
            log.info(
                "an idle program of a server is stopped to make room for another",
                extra={"upstream": self._program.name, "pid": slot.pid},
            )
            slot.end()
        elif self._check is None:
            self._check = asyncio.get_running_loop().call_at(
                max(until, now + _CHECK), self._check_eviction, context=Context()
            )

    def _check_eviction(self) -> None:
        self._check = None
        if self._waiting:
            self._make_room()

    def _cancel_check(self) -> None:
        if self._check is not None:
            self._check.cancel()
            self._check = None

    # --- the owner of its slots ---------------------------------------------------------------------------------------

    def on_idle(self, slot: ProgramSlot) -> None:
        if self._waiting and not self._closed:
            self._make_room()

    def on_closed(self, slot: ProgramSlot, channel: ProgramChannel, ending: Ending) -> None:
        """Log the end of a channel, and note what it says about the next start."""
        of = {"upstream": self._program.name, "pid": channel.pid, "cause": ending.cause.value}
        now = _now()
        was_of_use = channel.spoke is not None and now - channel.spoke >= LIVES
        if ending.is_ours or slot.probes:
            log.info("a server's program is no longer needed", extra=of)
            if was_of_use and not slot.probes:
                self._restarts.served(slot.key)
            return
        log.warning("a server's program failed", extra=of | {"text": ending.text})
        # A program that is ended for a too large answer says nothing about the next one's lifetime.
        is_no_sign = ending.cause is Cause.TOO_LARGE and channel.spoke is not None
        if was_of_use or is_no_sign:
            self._restarts.ended(slot.key, ending.cause)
        else:
            self._restarts.failed(slot.key, now, ending.cause)

    def on_exit(self, slot: ProgramSlot, channel: ProgramChannel) -> None:
        of = {"upstream": self._program.name, "pid": channel.pid, "status": channel.status}
        log.info("a server's program ended", extra=of)
        self._leave(slot)

    def on_gone(self, slot: ProgramSlot) -> None:
        if slot.channel is not None:
            del self._of[slot.channel]
        if self._empty is not None and not self._of:
            self._empty.set_result(None)
            self._empty = None


def _now() -> float:
    return asyncio.get_running_loop().time()
