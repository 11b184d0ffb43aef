"""How many bytes of large messages are in memory: of each caller, and of all. `BytesInFlight` counts them.

A message counts from when its body arrives until its call is over, an answer until the host has it. A request for
which there is no room is refused before anything is called. An answer is never refused: one that is only stored waits
for room, any other is counted as it comes.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from taskgate.errors import TooManyBytes

SMALL: Final = 16 * 1024
"""Bytes up to which a message is not counted: how many of these there are is bounded by the connections."""
_OF: Final = "Messages in flight"
SPARES: Final = 8
"""Bodies that may be received at once although there is no room, so that the refusal can name the request."""


class ByteBounds(NamedTuple):
    """The most bytes in flight: those of one caller, and those of all."""

    context: int = 32 * 2**20
    everyone: int = 256 * 2**20


USUAL_BOUNDS: Final = ByteBounds()


class BytesInFlight:
    """Counts them, within the bounds that `bounds` tells at any time.

    A caller with nothing in flight always has room for one message, unless all together have too much.
    """

    def __init__(self, bounds: Callable[[], ByteBounds] = ByteBounds) -> None:
        self._bounds = bounds
        self._callers: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()
        self._spares = SPARES
        self.total = 0

    def of(self, caller: str) -> int:
        """Bytes of one caller."""
        return self._callers.get(caller, 0)

    def refusal(self, caller: str, size: int) -> TooManyBytes | None:
        """Why a request of that size is not served; None where there is room for it, which is to be counted at once."""
        bounds = self._bounds()
        if self._exceeds(self.of(caller), size, bounds.context):
            return TooManyBytes(bounds.context, _OF, scope="context")
        if self._exceeds(self.total, size, bounds.everyone):
            return TooManyBytes(bounds.everyone, _OF, scope="global")
        return None

    def add(self, caller: str, size: int) -> None:
        """Count so much more."""
        self._callers[caller] = self.of(caller) + size
        self.total += size

    def give(self, caller: str, size: int) -> None:
        """Let go of what was counted."""
        left = self._callers[caller] - size
        if left:
            self._callers[caller] = left
        else:
            del self._callers[caller]
        self.total -= size
        self._wake()

    async def room(self, caller: str, size: int) -> None:
        """Wait, in turn with the caller's others, until there is room for an answer; it is to be counted at once."""
        while caller in self._waiting or self.refusal(caller, size):
            turn = asyncio.get_running_loop().create_future()
            mine = self._waiting.setdefault(caller, deque())
            mine.append((size, turn))
            try:
                await turn
            finally:
                self._leave(caller, mine, (size, turn))
            if self.refusal(caller, size) is None:
                return

    def receipt(self, caller: str) -> "Receipt":
        """Counts one body while it arrives."""
        return Receipt(self, caller)

    def spare(self) -> bool:
        """Whether one more body may be received without room; `return_spare` has to follow."""
        if not self._spares:
            return False
        self._spares -= 1
        return True

    def return_spare(self) -> None:
        """That body is received."""
        self._spares += 1

    def _wake(self) -> None:
        """Let on the first of the callers for whom there is room."""
        for caller, turns in self._waiting.items():
            size, turn = turns[0]
            if self.refusal(caller, size) is None:
                if not turn.done():
                    turn.set_result(None)
                return

    def _leave(self, caller: str, mine: "deque[tuple[int, asyncio.Future[None]]]", turn: object) -> None:
        mine.remove(turn)  # type: ignore[arg-type]  # one of them
        if not mine:
            del self._waiting[caller]
        else:
            # The other callers come before this one's next.
            self._waiting.move_to_end(caller)
        # Once this one is counted, or has gone without: there may be room for the next.
        asyncio.get_running_loop().call_soon(self._wake)

    @staticmethod
    def _exceeds(held: int, size: int, limit: int) -> bool:
        return bool(held) and held + size > limit


class Receipt:
    """One body that is on its way, as far as it has come."""

    __slots__ = ("_budget", "_caller", "_is_spare", "_size")

    def __init__(self, budget: BytesInFlight, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self._size = 0
        self._is_spare = False

    def grow(self, size: int) -> bool:
        """So much has come; whether more of it may be received."""
        more = size - self._size
        has_room = self._is_spare or self._budget.refusal(self._caller, more) is None
        self._budget.add(self._caller, more)
        self._size = size
        if not has_room:
            self._is_spare = has_room = self._budget.spare()
        return has_room

    def close(self) -> None:
        """It is received, or never will be: from here on its message counts, if anything."""
        if self._size:
            self._budget.give(self._caller, self._size)
        if self._is_spare:
            self._budget.return_spare()
