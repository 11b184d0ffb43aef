"""Storms: many hosts at once that break their connections at random moments, and gateways that end meanwhile."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from handoff.hosts import Conversation, Model
from handoff.server import Books
from helpers.host.host import Host

AT_ONCE = 24
"""How many hosts call at a time."""
AFTER, CEILING = 0.2, 0.4
"""Seconds until a call becomes a task, and the longest wait of a host."""
LONGEST = 1.2
"""Seconds of the longest call, which is several ceilings."""
LOST = "The gateway stopped while the call was running"


@dataclass(slots=True)
class Storm:
    """All conversations of a run, until so many `cuts` of connections."""

    seed: str
    cuts: int
    books: Books
    address: Callable[[Random], str]
    calls: list[Conversation] = field(default_factory=list)
    kills: int = 0
    """How many gateways were killed."""

    async def rage(self, hosts: Sequence[Host]) -> None:
        """Have hosts call until so many connections were cut, and every call has ended."""
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(self._use(hosts[number % len(hosts)], Random(f"{self.seed} {number}")))

    async def _use(self, host: Host, chance: Random) -> None:
        address, cut = partial(self.address, chance), partial(self._draw, chance)
        model = Model(host, address, cut, chance)
        while not self.is_over:
            call = Conversation(len(self.calls), seconds=chance.random() ** 2 * LONGEST)
            self.calls.append(call)
            await model.get(call, self.books.answered.__contains__)

    def _draw(self, chance: Random, call: Conversation) -> float | None:
        """Draw when a connection is cut: at any moment, or close to the end of the call, or to its handle."""
        if self.is_over or chance.random() < 0.2:
            return None
        since = asyncio.get_running_loop().time() - call.began
        close = chance.choice((call.seconds - since, AFTER)) + chance.gauss(0, 0.004)
        return close if close > 0 and chance.random() < 0.5 else chance.random() * CEILING

    @property
    def cut(self) -> int:
        """How many connections were cut."""
        return sum(call.cuts for call in self.calls)

    @property
    def is_over(self) -> bool:
        """Whether that is enough."""
        return self.cut >= self.cuts

    def note_kill(self) -> None:
        """Note that a gateway was killed, and so that the outcome of the calls which run may stay unknown."""
        self.kills += 1
        for call in self.calls:
            if call.end is None:
                call.may_be_lost = True

    def wrong(self) -> list[str]:
        """What went wrong with a call: it ran twice, was lost, or brought something else than its result."""
        return [f"{call} ran {self.books.runs[call.number]} times" for call in self.calls if not self._is_right(call)]

    def _is_right(self, call: Conversation) -> bool:
        runs, is_told = self.books.runs[call.number], call.end is not None and LOST in call.end.words
        return (self.kills > 0 and runs <= 1) if is_told else (call.is_delivered and runs == 1)

    def __str__(self) -> str:
        ends = Counter("lost" if call.end and LOST in call.end.words else "delivered" for call in self.calls)
        again = sum(self.books.runs[call.number] > 1 for call in self.calls)
        handles = sum(call.handles for call in self.calls)
        return f"{self.cut} connections cut, {handles} handles, {dict(ends)}, {again} ran again"
