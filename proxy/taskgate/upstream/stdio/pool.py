"""The programs of one server: who gets which, how many there are, and when one is ended or started again.

What must not live here: how a program is started (`starting`) and how it ends (`channel`). What holds: whoever has
another context never gets the same program, unless the server is declared to keep nothing of anybody; no more programs
run than the operator said, but for one that probes; and nobody waits for another's program to start.
"""

import asyncio
from collections.abc import Hashable
from contextvars import Context
from itertools import count
from logging import getLogger
from typing import Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.duplex.base import MessageChannel, Wish
from taskgate.upstream.stdio import endings
from taskgate.upstream.stdio.channel import HARD, SOFT, ProgramChannel
from taskgate.upstream.stdio.endings import Cause, Ending
from taskgate.upstream.stdio.nurse import Nurse
from taskgate.upstream.stdio.restarts import LIVES, Restarts
from taskgate.upstream.stdio.room import RoomWaiter, due, first_to_go, most_of_one, spreads_up_to
from taskgate.upstream.stdio.slots import ProgramSlot
from taskgate.upstream.stdio.starting import Program, Starter

log = getLogger("taskgate.upstream")

SHORT: Final = 2.0
"""Seconds for which a request waits until a program may be started again; where it is longer, it is refused."""
_LOOK: Final = 0.1
"""Seconds between looks for a program that is idle, while somebody waits for that."""
_SHARE: Final = 0.9
"""Of the patience of a request, for room: so that whoever is out of it is told why."""
_LAST_WAIT: Final = SOFT + HARD + 2.0
"""Seconds that programs have to end before they are left to the nursery."""


class StdioChannels:
    """The lines to one server whose programs we start; see ChannelProvider."""

    def __init__(self, program: Program, nurse: Nurse) -> None:
        settings = program.settings
        self._program = program
        self._most = settings.processes
        # Those who share programs have more than one only where they spread.
        self._most_of_one = self._most if settings.shared else most_of_one(self._most)
        self._spreads_up_to = spreads_up_to(self._most) if settings.shared else 0
        self._idle = settings.idle.total_seconds()
        self._starter = Starter(program, nurse)
        self._restarts = Restarts(settings.backoff.total_seconds(), settings.max_backoff.total_seconds())
        self._slots: list[ProgramSlot] = []
        self._of: dict[MessageChannel, ProgramSlot] = {}
        self._tickets = count()
        self._waiting: dict[int, RoomWaiter] = {}
        self._looking: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None
        self._closed = False

    # --- Lines

    async def take(self, wish: Wish) -> MessageChannel:
        """See ChannelProvider."""
        slot = await self._slot(wish)
        slot.hold()
        try:
            await slot.settled()
            if self._closed:
                raise failures.let_go(dispatched=False)
            return await slot.standing()
        except BaseException:
            self._let_go(slot)
            raise

    def give_back(self, line: MessageChannel) -> None:
        """See ChannelProvider."""
        slot = self._of.get(line)
        if slot is not None:
            self._let_go(slot)

    def _let_go(self, slot: ProgramSlot) -> None:
        slot.let_go()
        if slot.holders:
            return
        slot.probes = False
        if len(self._slots) > self._most:
            # It was one above.
            slot.end()
        slot.rest(self._idle)
        self._tell_waiting()

    async def close(self) -> None:
        """See ChannelProvider."""
        self._closed = True
        self._tell_waiting()
        self._look_no_more()
        for slot in tuple(self._slots):
            await slot.settled()
        for slot in tuple(self._of.values()):
            slot.end()
        try:
            async with asyncio.timeout(_LAST_WAIT):
                while self._of:
                    self._empty = self._empty or asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._empty)
        except TimeoutError:
            log.error("programs of a server did not exit in time", extra={"upstream": self._program.name})

    # --- which program, and when there may be one

    async def _slot(self, wish: Wish) -> ProgramSlot:
        """Where there is a program as wished for, or is about to be. Raises UpstreamFailed."""
        key = wish.declared if self._program.settings.shared else (wish.context, wish.declared)
        owner = self._owner(wish)
        ticket = next(self._tickets)
        try:
            while True:
                if self._closed:
                    raise failures.let_go(dispatched=False)
                slot = self._present(key, wish)
                if slot is not None:
                    return slot
                if not wish.probes and await self._was_held_back(key):
                    continue
                if self._may_start(ticket, owner, probes=wish.probes):
                    return self._start(key, owner, probes=wish.probes)
                await self._change(ticket, wish)
        finally:
            if self._waiting.pop(ticket, None) is not None:
                self._tell_waiting()

    async def _change(self, ticket: int, wish: Wish) -> None:
        """Wait until there may be room, and see to it. Raises UpstreamFailed where that takes too long."""
        loop, patience = asyncio.get_running_loop(), wish.outgoing.first_byte
        since = self._waiting[ticket].since if ticket in self._waiting else loop.time()
        self._waiting[ticket] = RoomWaiter(self._owner(wish), since, loop.create_future())
        self._make_room()
        until = None if patience is None else since + patience.total_seconds() * _SHARE
        try:
            async with asyncio.timeout_at(until):
                await self._waiting[ticket].told
        except TimeoutError:
            log.warning(
                "all programs of a server are in use; a request is refused", extra={"upstream": self._program.name}
            )
            raise endings.no_room() from None

    def _present(self, key: Hashable, wish: Wish) -> ProgramSlot | None:
        """What is there already; None where another is to be started. Raises UpstreamFailed where none may be."""
        fit = [slot for slot in self._slots if slot.key == key and not slot.probes and slot.may_be_given]
        least = min(fit, key=lambda slot: slot.load, default=None)
        if wish.outgoing.only_listens:
            if least is None:
                raise failures.unreachable()
            return least
        if least is None or wish.probes:
            return None
        # Who shares programs shares none before as many run as may be spread over.
        spreads = least.holders > 0 and len(self._slots) < self._spreads_up_to
        return None if spreads and not (self._waiting or self._restarts.wait(key, _now())) else least

    async def _was_held_back(self, key: Hashable) -> bool:
        """Whether there was a pause before another may be started. Raises UpstreamFailed where that is long."""
        pause = self._restarts.wait(key, _now())
        if pause > SHORT:
            raise endings.held_back(self._restarts.failures(key), pause)
        if pause:
            await asyncio.sleep(pause)
        return pause > 0

    def _may_start(self, ticket: int, owner: Hashable, *, probes: bool) -> bool:
        """Whether there is room, and nobody who may have it has waited for it for longer."""
        if probes:
            return len(self._slots) <= self._most
        if len(self._slots) >= self._most or not self._may_have_more(owner):
            return False
        before = (other for other, each in self._waiting.items() if self._may_have_more(each.owner))
        return ticket <= next(before, ticket)

    def _owner(self, wish: Wish) -> Hashable:
        return wish.declared if self._program.settings.shared else wish.context

    def _may_have_more(self, owner: Hashable) -> bool:
        return sum(slot.owner == owner for slot in self._slots) < self._most_of_one

    def _tell_waiting(self) -> None:
        """Have whoever waits for room look again."""
        for waiting in self._waiting.values():
            if not waiting.told.done():
                waiting.told.set_result(None)

    # --- how many there are

    def _start(self, key: Hashable, owner: Hashable, *, probes: bool) -> ProgramSlot:
        slot = ProgramSlot(self, key, owner, probes=probes)
        self._slots.append(slot)
        self._program.running(len(self._slots))
        slot.begin(self._begin)
        # Who waits for the same has it now.
        self._tell_waiting()
        return slot

    async def _begin(self, slot: ProgramSlot) -> None:
        try:
            line = await self._starter.start(slot)
        except UpstreamFailed as failure:
            slot.failure = failure
            if not slot.probes and failure.reason != UpstreamReason.INTERNAL.value:
                self._restarts.failed(slot.key, _now())
            self._leave(slot)
            return
        slot.line = line
        if slot.is_gone:
            return
        self._of[line] = slot
        cause = None if slot.probes else self._restarts.started(slot.key)
        if cause is not None:
            self._program.restarted(cause)
        if not slot.holders:
            slot.rest(self._idle)

    def _leave(self, slot: ProgramSlot) -> None:
        self._slots.remove(slot)
        self._program.running(len(self._slots))
        self._tell_waiting()

    def _make_room(self) -> None:
        """End a program that is idle, unless one ends anyway; or look again when there is one."""
        if any(slot.is_ending for slot in self._slots):
            return
        now = _now()
        first = next((each for each in self._waiting.values() if self._may_have_more(each.owner)), None)
        wants = first or next(iter(self._waiting.values()))
        slot = first_to_go(self._slots, wants, now, may_have_more=first is not None)
        # Whoever gives a request up may do so without a word: so it is looked again also where none is idle.
        until = now if slot is None else due(slot, wants)
        if slot is not None and until <= now:
            log.info(
                "an idle program of a server is stopped to make room for another",
                extra={"upstream": self._program.name, "pid": slot.pid},
            )
            slot.end()
        elif self._looking is None:
            self._looking = asyncio.get_running_loop().call_at(max(until, now + _LOOK), self._look, context=Context())

    def _look(self) -> None:
        self._looking = None
        if self._waiting:
            self._make_room()

    def _look_no_more(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    # --- what places tell; see Owner

    def rested(self, slot: ProgramSlot) -> None:
        """See Owner."""
        if self._waiting and not self._closed:
            self._make_room()

    def over(self, slot: ProgramSlot, line: ProgramChannel, ending: Ending) -> None:
        """See Owner."""
        of = {"upstream": self._program.name, "pid": line.pid, "cause": ending.cause.value}
        now = _now()
        was_of_use = line.spoke is not None and now - line.spoke >= LIVES
        if ending.is_ours or slot.probes:
            log.info("a server's program is no longer needed", extra=of)
            if was_of_use and not slot.probes:
                self._restarts.served(slot.key)
            return
        log.warning("a server's program failed", extra=of | {"text": ending.text})
        # That of which it is ended for an answer says nothing of how long the next one lives.
        is_no_sign = ending.cause is Cause.TOO_LARGE and line.spoke is not None
        if was_of_use or is_no_sign:
            self._restarts.ended(slot.key, ending.cause)
        else:
            self._restarts.failed(slot.key, now, ending.cause)

    def exited(self, slot: ProgramSlot, line: ProgramChannel) -> None:
        """See Owner."""
        of = {"upstream": self._program.name, "pid": line.pid, "status": line.status}
        log.info("a server's program ended", extra=of)
        self._leave(slot)

    def gone(self, slot: ProgramSlot) -> None:
        """See Owner."""
        if slot.line is not None:
            del self._of[slot.line]
        if self._empty is not None and not self._of:
            self._empty.set_result(None)
            self._empty = None


def _now() -> float:
    return asyncio.get_running_loop().time()
