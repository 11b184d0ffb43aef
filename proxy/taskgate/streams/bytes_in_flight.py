"""The bytes of large messages in memory, of each caller and of all callers: `BytesInFlight`.

A request counts from the arrival of its body until its call is over, an answer until the host has
it. A request that does not fit is refused before its call is sent. An answer is never refused: one
that is stored waits for room, any other counts at once.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from taskgate.errors import TooManyBytes

SMALL: Final = 16 * 1024
"""Bytes up to which a message is not counted; the number of connections limits those."""
_LIMITED: Final = "Messages in flight"
SPARES: Final = 8
"""Bodies that may be received beyond the limit, so that the refusal can have the request's id."""


class ByteBounds(NamedTuple):
    """The most bytes in flight: of one caller (`context`) and of all."""

    context: int = 32 * 2**20
    total: int = 256 * 2**20


USUAL_BOUNDS: Final = ByteBounds()


class BytesInFlight:
    """The count of bytes within the limits that `bounds` returns.

    A caller of this class calls `refusal` or `wait_for_room`, then `add` in the same step without an
    await, and `release` with the same size once.

    A caller with nothing in flight has room for one message of any size, unless all callers
    together have too much.
    """

    def __init__(
        self, bounds: Callable[[], ByteBounds] = ByteBounds, is_memory_short: Callable[[], bool] = lambda: False
    ) -> None:
        self._bounds = bounds
        self.is_memory_short = is_memory_short
        """Whether no body above LARGE is to be read now."""
        self._callers: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()
        self._spares = SPARES
        self.total = 0

    def usage(self, caller: str) -> int:
        """Bytes of one caller."""
        return self._callers.get(caller, 0)

    def refusal(self, caller: str, size: int) -> TooManyBytes | None:
        """The error for a request of that size; None if it fits, and must be counted at once."""
        bounds = self._bounds()
        if self._exceeds(self.usage(caller), size, bounds.context):
            return TooManyBytes(bounds.context, _LIMITED, scope="context")
        if self._exceeds(self.total, size, bounds.total):
            return TooManyBytes(bounds.total, _LIMITED, scope="global")
        return None

    def add(self, caller: str, size: int) -> None:
        """Count `size` bytes."""
        self._callers[caller] = self.usage(caller) + size
        self.total += size

    def release(self, caller: str, size: int) -> None:
        """Stop counting `size` bytes."""
        left = self._callers[caller] - size
        if left:
            self._callers[caller] = left
        else:
            del self._callers[caller]
        self.total -= size
        self._wake()

    async def wait_for_room(self, caller: str, size: int) -> None:
        """Wait until an answer fits, after the caller's earlier ones; then it must be counted at once.

        Callers take turns: each wakes when its first answer fits.
        """
        while caller in self._waiting or self.refusal(caller, size):
            turn = asyncio.get_running_loop().create_future()
            queue = self._waiting.setdefault(caller, deque())
            queue.append((size, turn))
            try:
                await turn
            finally:
                self._dequeue(caller, queue, (size, turn))
            if self.refusal(caller, size) is None:
                return

    def incoming_body(self, caller: str) -> "IncomingBody":
        """The count of one body while it arrives."""
        return IncomingBody(self, caller)

    def acquire_spare(self) -> bool:
        """Whether one more body may be received beyond the limit; `release_spare` must follow."""
        if not self._spares:
            return False
        self._spares -= 1
        return True

    def release_spare(self) -> None:
        """Return the spare of a body that was received."""
        self._spares += 1

    def _wake(self) -> None:
        """Wake the first caller whose answer fits."""
        for caller, turns in self._waiting.items():
            size, turn = turns[0]
            if self.refusal(caller, size) is None:
                if not turn.done():
                    turn.set_result(None)
                return

    def _dequeue(self, caller: str, queue: "deque[tuple[int, asyncio.Future[None]]]", turn: object) -> None:
        queue.remove(turn)  # type: ignore[arg-type]  # one of them
        if not queue:
            del self._waiting[caller]
        else:
            # Other callers come before this one's next answer.
            self._waiting.move_to_end(caller)
        # Later, when this answer is counted or was cancelled: the next one may fit.
        asyncio.get_running_loop().call_soon(self._wake)

    @staticmethod
    def _exceeds(used: int, size: int, limit: int) -> bool:
        return bool(used) and used + size > limit


class IncomingBody:
    """The count of one body while it arrives; it must be closed."""

    __slots__ = ("_budget", "_caller", "_is_spare", "_size")

    def __init__(self, budget: BytesInFlight, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self._size = 0
        self._is_spare = False

    def grow(self, size: int) -> bool:
        """Count the body as `size` bytes, received or announced so far; returns whether it may go on.

        Over the limit it may go on only with one of the few spares. Bytes of a refused body count
        until `close` too.
        """
        more = size - self._size
        has_room = self._is_spare or self._budget.refusal(self._caller, more) is None
        self._budget.add(self._caller, more)
        self._size = size
        if not has_room:
            self._is_spare = has_room = self._budget.acquire_spare()
        return has_room

    def close(self) -> None:
        """Stop counting, because the body is complete or was given up; its message counts next."""
        if self._size:
            self._budget.release(self._caller, self._size)
        if self._is_spare:
            self._budget.release_spare()
