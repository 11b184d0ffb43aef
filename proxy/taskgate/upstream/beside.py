"""What a server says beside its answers: which of its notifications are passed on, and how many bytes are read.

Progress that comes faster than `PROGRESS` is merged: of what has come together, the newest of each token stays. So a
flood costs its reading alone, and the last progress before an answer is always heard. What must not live here: what a
message means, and what ends of it.
"""

from collections.abc import Callable, Sequence
from logging import INFO, getLogger
from typing import Final, TypeVar

import orjson

from taskgate.domain.rates import RateLimit, gcra
from taskgate.domain.record import RequestId
from taskgate.protocol.heard import Noticed, ProgressTold
from taskgate.protocol.jsonrpc import is_id
from taskgate.protocol.vocabulary import NOTE_PROGRESS
from taskgate.system.log_throttle import ThrottledLog
from taskgate.system.offload import LARGE, aside
from taskgate.upstream.duplex.words import is_bounded, kind_by_its_ends, kind_of

SAID_A_SECOND: Final = 256 * 1024
"""Bytes a second of messages beside the answers: in the time that this takes, a server may say `max_result` of them."""
LARGEST: Final = 64 * 1024
"""Bytes of one notification; a larger one is not passed on. Answers and questions have bounds of their own.

One of a task of 2026-07-28 holds the task's result: it may be as large as that.
"""
MESSAGES: Final = RateLimit(every=1 / 5000, burst=5000)
"""Messages of one event stream that are read, at once and in a second; more wait at the server."""
PROGRESS: Final = RateLimit(every=1 / 200, burst=1000)
"""Progress notifications of one call that all are heard; of more, the newest of what has come together."""
TOKENS: Final = 64
"""Tokens whose progress is counted by itself. All others share one budget: a server may make up any number."""

log = getLogger("taskgate.upstream")

_passed_over = ThrottledLog(log, "a notification of a server is dropped: it is too large")

_Said = TypeVar("_Said")
_Heard = TypeVar("_Heard")


class LeftOut:
    """Tells the operator, now and then, what is not passed on of one server."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._superseded = ThrottledLog(
            log, "progress notifications of a server are merged: they come too fast", level=INFO
        )
        self._too_large = ThrottledLog(log, "a notification of a server is dropped: it is too large")

    def superseded(self, count: int) -> None:
        """So much progress was followed by newer."""
        self._superseded.emit({"upstream": self._upstream, "count": count})

    def too_large(self, size: int) -> None:
        """A notification of so many bytes is passed over."""
        self._too_large.emit({"upstream": self._upstream, "bytes": size, "limit": LARGEST})


class NotificationBudget:
    """The notifications of one event stream or program; whatever is no bytes among them is passed on."""

    __slots__ = ("_left_out", "_read", "_tokens")

    def __init__(self, left_out: LeftOut) -> None:
        self._left_out = left_out
        self._read = 0.0
        self._tokens: dict[RequestId, float] = {}

    def heard(self, said: Sequence[_Said], now: float) -> list[_Said]:
        """What is passed on of messages that have come together, in their order."""
        kept: list[_Said | None] = []
        newest: dict[RequestId, int] = {}
        superseded = 0
        for message in said:
            token = None
            if isinstance(message, bytes):
                if len(message) > LARGEST:
                    # What is larger still is read by another thread, which passes over it then.
                    if is_bounded(kind_of(message) if len(message) <= LARGE else kind_by_its_ends(message)):
                        self._left_out.too_large(len(message))
                        continue
                elif _PROGRESS in message:
                    token = _token_of(message)
            if token is not None:
                before = newest.get(token)
                if before is not None:
                    kept[before] = None
                    superseded += 1
                if before is not None or not self._has_room(token, now):
                    newest[token] = len(kept)
            kept.append(message)
        if superseded:
            self._left_out.superseded(superseded)
        return [message for message in kept if message is not None]

    def wait(self, messages: int, now: float) -> float:
        """So many messages were read: seconds until more should be."""
        self._read = max(self._read, now) + messages * MESSAGES.every
        return max(0.0, self._read - now - MESSAGES.burst * MESSAGES.every)

    def _has_room(self, token: RequestId, now: float) -> bool:
        """Whether so little progress came under that token that nothing of it is left out."""
        tokens, counted = self._tokens, token
        if token not in tokens and len(tokens) >= TOKENS:
            # Those that owe nothing are as new ones are.
            tokens = self._tokens = {each: owed for each, owed in tokens.items() if owed > now}
            counted = token if len(tokens) < TOKENS else _ANYBODY
        verdict, tokens[counted] = gcra(tokens.get(counted), now, PROGRESS)
        return verdict.allowed


class Said:
    """Bytes that were said beside answers: `most` at once, and `SAID_A_SECOND` each second."""

    __slots__ = ("_at", "_most", "_owed")

    def __init__(self, most: int) -> None:
        self._most = most
        self._owed = self._at = 0.0

    def heard(self, size: int) -> None:
        """A message of so many bytes."""
        self._owed += size

    def answered(self, size: int) -> None:
        """It was an answer, which has a bound of its own."""
        self._owed = max(0.0, self._owed - size)

    def wait(self, now: float) -> float:
        """Seconds until more should be read."""
        self._owed = max(0.0, self._owed - (now - self._at) * SAID_A_SECOND)
        self._at = now
        return max(0.0, (self._owed - self._most) / SAID_A_SECOND)


async def heard_aside(hear: Callable[[], _Heard]) -> _Heard | None:
    """What a large message means, read by another thread; None for a notification, which is too large to be passed on.

    It is for those whose ends do not tell what they are.
    """
    heard = await aside(hear)
    if not isinstance(heard, Noticed | ProgressTold):
        return heard
    _passed_over.emit({"limit": LARGEST})
    return None


def _token_of(message: bytes) -> RequestId | None:
    """Whose progress it is. It decides what is left out alone: what stays is read by the rules of its era."""
    try:
        told = orjson.loads(message)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(told, dict) or told.get("method") != NOTE_PROGRESS or "id" in told:
        return None
    params = told.get("params")
    token = params.get("progressToken") if isinstance(params, dict) else None
    return token if is_id(token) else None


_PROGRESS: Final = NOTE_PROGRESS.encode()
_ANYBODY: Final = ""
