"""Place of one program among those of a server: `ProgramSlot`, from before its start to its end.

`StdioChannels` owns the slots (`Owner`) and decides who gets which; the slot observes its channel.
A slot is starting, until `line` or `failure` is set. With a `line` it stands until the channel
ends, and is gone when the program and its pipes are. Without a holder `StdioChannels` lets it
rest (`rest`): its program is idle and ends after a time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context
from typing import Any, Protocol

from taskgate.errors import UpstreamFailed
from taskgate.upstream.stdio import endings
from taskgate.upstream.stdio.channel import ProgramChannel
from taskgate.upstream.stdio.endings import Ending


class Owner(Protocol):
    """The receiver of the events of a slot, which are those of its channel (`ChannelObserver`). No method
    raises or waits."""

    def rested(self, slot: "ProgramSlot") -> None:
        """Messages were exchanged, and no request waits for an answer of the program now. Called
        often."""
        ...

    def over(self, slot: "ProgramSlot", line: ProgramChannel, ending: Ending) -> None:
        """The channel ended, and takes no more messages; the program may still run. Called once."""
        ...

    def exited(self, slot: "ProgramSlot", line: ProgramChannel) -> None:
        """The program exited. Called once, before or after `over`."""
        ...

    def gone(self, slot: "ProgramSlot") -> None:
        """The channel ended, and the program and its pipes are gone. Called once, and last."""
        ...


class ProgramSlot:
    """One place. `key` tells which requests may use its program, `owner` whose it counts as.

    `holders` counts the sessions and modern requests that use it. While it `probes`, it is used by
    one request only, and its end is no evidence against the program. `line` is the channel once the
    program runs, `failure` why it did not start.
    """

    def __init__(self, keeper: Owner, key: Hashable, owner: Hashable, *, probes: bool) -> None:
        self._keeper = keeper
        self.key = key
        self.owner = owner
        self.probes = probes
        self.holders = 0
        self.line: ProgramChannel | None = None
        self.failure: UpstreamFailed | None = None
        self.is_gone = False
        """Whether the program and its pipes are gone."""
        self._starting: asyncio.Task[None] | None = None
        # The timer that ends the program; runs while the slot rests.
        self._idle: asyncio.TimerHandle | None = None

    # --- its program --------------------------------------------------------------------------------------------------

    def begin(self, start: Callable[["ProgramSlot"], Coroutine[Any, Any, None]]) -> None:
        """Start the program by `start`, which sets `line` or `failure`; the start continues if its
        waiter is cancelled."""
        self._starting = asyncio.get_running_loop().create_task(start(self), context=Context())

    async def settled(self) -> None:
        """Wait until the start is over; then `line` or `failure` is set."""
        assert self._starting is not None, "begin() comes first"
        if not self._starting.done():
            await asyncio.wait((self._starting,))

    def hold(self) -> None:
        """Count one more holder; a program that rested is not ended."""
        self._rest_no_more()
        self.holders += 1
        if self.line is not None:
            self.line.used = asyncio.get_running_loop().time()

    def let_go(self) -> None:
        """Count one holder less. After the last one the caller calls `rest`."""
        self.holders -= 1

    async def standing(self) -> ProgramChannel:
        """Return the channel to its program. Raises UpstreamFailed if the program did not start, or
        has ended."""
        if self.failure is not None:
            raise endings.again(self.failure)
        assert self.line is not None, "a slot without a failure has a channel"
        if not self.line.stands:
            raise await self.line.why_unsent()
        return self.line

    def rest(self, seconds: float) -> None:
        """End the program after so many seconds, unless it is held again before.

        Called when it has no holder. While the program is starting this does nothing, so
        `StdioChannels` calls it again after the start.
        """
        self._rest_no_more()
        if self.line is not None and self.line.stands:
            self._idle = asyncio.get_running_loop().call_later(seconds, self._end_rest, seconds, context=Context())

    def _end_rest(self, seconds: float) -> None:
        if self.line is not None and self.line.in_flight:
            # A server task runs that is only polled now and then.
            self.rest(seconds)
        else:
            self.end()

    def end(self) -> None:
        """End the program if it runs."""
        if self.line is not None:
            self.line.end(endings.OURS)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def may_be_given(self) -> bool:
        """Whether its program runs or is starting."""
        return self.failure is None if self.line is None else self.line.stands

    @property
    def load(self) -> tuple[int, int]:
        """How much its program is used, for comparison: waiting requests, then holders."""
        return (0 if self.line is None else self.line.in_flight), self.holders

    @property
    def pid(self) -> int:
        """The process id for the log; 0 before the start."""
        return 0 if self.line is None else self.line.pid

    @property
    def is_ending(self) -> bool:
        """Whether its channel has ended, and its program is about to exit."""
        return self.line is not None and not self.line.stands

    def idle_since(self) -> float | None:
        """Return the loop time of the last message, minus infinity without a holder; None while the
        program must not be evicted."""
        line = self.line
        if line is None or self.probes or not line.stands or line.in_flight:
            return None
        return line.used if self.holders else float("-inf")

    # --- the observer of its channel ----------------------------------------------------------------------------------

    def rested(self, line: ProgramChannel) -> None:
        self._keeper.rested(self)

    def over(self, line: ProgramChannel, ending: Ending) -> None:
        self._rest_no_more()
        self._keeper.over(self, line, ending)

    def exited(self, line: ProgramChannel) -> None:
        self._keeper.exited(self, line)

    def gone(self, line: ProgramChannel) -> None:
        self.is_gone = True
        self._keeper.gone(self)

    def _rest_no_more(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
