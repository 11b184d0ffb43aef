"""The place of one program among those of a server: from before it runs until nothing is left of it.

What must not live here: which program somebody gets, and when one is started (`pool`).
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
    """Whom a place tells of itself. Nothing of it raises or waits."""

    def rested(self, slot: "ProgramSlot") -> None:
        """Nobody waits for an answer of its program now."""
        ...

    def over(self, slot: "ProgramSlot", line: ProgramChannel, ending: Ending) -> None:
        """Its line ended."""
        ...

    def exited(self, slot: "ProgramSlot", line: ProgramChannel) -> None:
        """Its program does not run any more."""
        ...

    def gone(self, slot: "ProgramSlot") -> None:
        """Nothing is left of its line."""
        ...


class ProgramSlot:
    """One place; `key` is who its program is for, and what they declared, `owner` whose it counts as.

    While it `probes`, it is nobody else's, and its end is no sign.
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
        """Whether nothing is left of its line."""
        self._starting: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None

    # --- its program

    def begin(self, start: Callable[["ProgramSlot"], Coroutine[Any, Any, None]]) -> None:
        """Start the program, which goes on whoever stops waiting for it."""
        self._starting = asyncio.get_running_loop().create_task(start(self), context=Context())

    async def settled(self) -> None:
        """Wait until the program runs, or will not; `line` or `failure` is there then."""
        assert self._starting is not None, "begin() comes first"
        if not self._starting.done():
            await asyncio.wait((self._starting,))

    def hold(self) -> None:
        """Somebody more has it, or is about to."""
        self._rest_no_more()
        self.holders += 1
        if self.line is not None:
            self.line.used = asyncio.get_running_loop().time()

    def let_go(self) -> None:
        """One of those has it no more."""
        self.holders -= 1

    async def standing(self) -> ProgramChannel:
        """The line to its program. Raises UpstreamFailed where that did not start, or has ended since."""
        if self.failure is not None:
            raise endings.again(self.failure)
        assert self.line is not None, "a slot without a failure has a channel"
        if not self.line.stands:
            raise await self.line.why_unsent()
        return self.line

    def rest(self, seconds: float) -> None:
        """Nobody has it: end the program unless somebody takes it before so many seconds are over."""
        self._rest_no_more()
        if self.line is not None and self.line.stands:
            self._idle = asyncio.get_running_loop().call_later(seconds, self._rested, seconds, context=Context())

    def _rested(self, seconds: float) -> None:
        if self.line is not None and self.line.in_flight:
            # It works at something that is only looked at now and then.
            self.rest(seconds)
        else:
            self.end()

    def end(self) -> None:
        """End the program where it runs."""
        if self.line is not None:
            self.line.end(endings.OURS)

    # --- how it does

    @property
    def may_be_given(self) -> bool:
        """Whether its program runs, or is about to."""
        return self.failure is None if self.line is None else self.line.stands

    @property
    def load(self) -> tuple[int, int]:
        """How much its program is used: requests that wait for answers, and holders."""
        return (0 if self.line is None else self.line.in_flight), self.holders

    @property
    def pid(self) -> int:
        """Its program's process, for the log; 0 before there is one."""
        return 0 if self.line is None else self.line.pid

    @property
    def is_ending(self) -> bool:
        """Whether its program is about to run no more."""
        return self.line is not None and not self.line.stands

    def idle_since(self) -> float | None:
        """The loop's time since which nothing was said on its line; None where that must not be ended now."""
        line = self.line
        if line is None or self.probes or not line.stands or line.in_flight:
            return None
        return line.used if self.holders else float("-inf")

    # --- what its line tells; see ChannelObserver

    def rested(self, line: ProgramChannel) -> None:
        """See ChannelObserver."""
        self._keeper.rested(self)

    def over(self, line: ProgramChannel, ending: Ending) -> None:
        """See ChannelObserver."""
        self._rest_no_more()
        self._keeper.over(self, line, ending)

    def exited(self, line: ProgramChannel) -> None:
        """See ChannelObserver."""
        self._keeper.exited(self, line)

    def gone(self, line: ProgramChannel) -> None:
        """See ChannelObserver."""
        self.is_gone = True
        self._keeper.gone(self)

    def _rest_no_more(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
