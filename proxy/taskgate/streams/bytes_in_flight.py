"""The bytes of large messages in memory, of each caller, each person and all: `BytesInFlight`.

A request counts from the arrival of its body until its call is over, an answer until the host has
it. A request that does not fit is refused before its call is sent. An answer is never refused: one
that is stored waits for room, any other counts at once.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, NamedTuple

from taskgate.auth.context import AuthContext
from taskgate.errors import TooManyBytes

SMALL: Final = 16 * 1024
"""Bytes up to which a message is not counted; the number of connections limits those."""
SPARES: Final = 8
"""Bodies that may be received beyond the limit, so that the refusal can have the request's id."""


class ByteBounds(NamedTuple):
    """The most bytes in flight: of one caller (`context`), of all clients of its person (`subject`), and of all."""

    context: int = 32 * 2**20
    subject: int = 64 * 2**20
    total: int = 256 * 2**20


USUAL_BOUNDS: Final = ByteBounds()


class _Answer(NamedTuple):
    """An answer that waits for room."""

    caller: AuthContext
    size: int
    turn: asyncio.Future[None]


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
        # By the keys of callers, and by those of persons.
        self._callers: dict[str, int] = {}
        self._subjects: dict[str, int] = {}
        # By person, and then by caller.
        self._waiting: OrderedDict[str, OrderedDict[str, deque[_Answer]]] = OrderedDict()
        self._spares = SPARES
        self.total = 0

    def usage(self, caller: AuthContext) -> int:
        """Bytes of one caller."""
        return self._callers.get(caller.key, 0)

    def refusal(self, caller: AuthContext, size: int) -> TooManyBytes | None:
        """The error for a request of that size; None if it fits, and must be counted at once."""
        bounds = self._bounds()
        if self._exceeds(self.usage(caller), size, bounds.context):
            return _refused(bounds.context, "context")
        if self._exceeds(self._subjects.get(caller.subject, 0), size, bounds.subject):
            return _refused(bounds.subject, "subject")
        if self._exceeds(self.total, size, bounds.total):
            return _refused(bounds.total, "global")
        return None

    def add(self, caller: AuthContext, size: int) -> None:
        """Count `size` bytes."""
        self._callers[caller.key] = self._callers.get(caller.key, 0) + size
        self._subjects[caller.subject] = self._subjects.get(caller.subject, 0) + size
        self.total += size

    def release(self, caller: AuthContext, size: int) -> None:
        """Stop counting `size` bytes."""
        for counts, key in ((self._callers, caller.key), (self._subjects, caller.subject)):
            counts[key] -= size
            if not counts[key]:
                del counts[key]
        self.total -= size
        self._wake()

    async def wait_for_room(self, caller: AuthContext, size: int) -> None:
        """Wait until an answer fits, after the caller's earlier ones; then it must be counted at once.

        Persons take turns, and so do the clients of one: each wakes when its first answer fits.
        """
        while caller.key in self._waiting.get(caller.subject, ()) or self.refusal(caller, size):
            answer = _Answer(caller, size, asyncio.get_running_loop().create_future())
            self._waiting.setdefault(caller.subject, OrderedDict()).setdefault(caller.key, deque()).append(answer)
            try:
                await answer.turn
            finally:
                self._dequeue(answer)
            if self.refusal(caller, size) is None:
                return

    def incoming_body(self, caller: AuthContext) -> "IncomingBody":
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
        for clients in self._waiting.values():
            for answers in clients.values():
                first = answers[0]
                if self.refusal(first.caller, first.size) is None:
                    if not first.turn.done():
                        first.turn.set_result(None)
                    return

    def _dequeue(self, answer: _Answer) -> None:
        key, subject = answer.caller.key, answer.caller.subject
        clients = self._waiting[subject]
        clients[key].remove(answer)
        # Others come before the next answer of this client, and of this person.
        clients.move_to_end(key)
        self._waiting.move_to_end(subject)
        if not clients[key]:
            del clients[key]
        if not clients:
            del self._waiting[subject]
        # Later, when this answer is counted or was cancelled: the next one may fit.
        asyncio.get_running_loop().call_soon(self._wake)

    @staticmethod
    def _exceeds(used: int, size: int, limit: int) -> bool:
        return bool(used) and used + size > limit


class IncomingBody:
    """The count of one body while it arrives; it must be closed."""

    __slots__ = ("_budget", "_caller", "_is_spare", "_size")

    def __init__(self, budget: BytesInFlight, caller: AuthContext) -> None:
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


def _refused(limit: int, scope: str) -> TooManyBytes:
    return TooManyBytes(limit, "Messages in flight", scope=scope, advice="wait until some are answered")
