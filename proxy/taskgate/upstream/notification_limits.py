"""Limits on what a server sends besides its answers: `NotificationBudget` and `Said`.

A `NotificationBudget` drops notifications that are too large and merges progress that is too fast.
Of progress that arrived together, the newest of each token remains. So a flood of progress only
costs its reading, and the last progress before an answer is always delivered. `Said` counts all
bytes besides answers, and makes the reader pause. `wire.connection` has a `NotificationBudget` for each
event stream, `stdio.channel` one for each program, with a `Said`. Sessions of both eras use
`decode_large` for large messages.
"""

from collections.abc import Callable, Sequence
from logging import INFO, getLogger
from typing import Final, TypeVar

import orjson

from taskgate.domain.rates import RateLimit, gcra
from taskgate.domain.record import RequestId
from taskgate.protocol.jsonrpc import is_id
from taskgate.protocol.server_messages import CallProgress, SessionNotification
from taskgate.protocol.vocabulary import NOTE_PROGRESS
from taskgate.system.log_throttle import ThrottledLog
from taskgate.system.offload import LARGE, in_thread
from taskgate.upstream.duplex.peek import is_bounded, kind_by_its_ends, kind_of

SAID_A_SECOND: Final = 256 * 1024
"""Bytes per second of messages besides the answers, after a burst of `max_result` bytes."""
LARGEST: Final = 64 * 1024
"""Bytes of one notification; a larger one is dropped. Answers and questions have limits of their
own.

A task notification of 2026-07-28 may hold the task's result, so it may be as large as a result.
"""
MESSAGES: Final = RateLimit(every=1 / 5000, burst=5000)
"""Messages of one event stream that are read: a burst, and then so many per second. Others wait at
the server."""
PROGRESS: Final = RateLimit(every=1 / 200, burst=1000)
"""Progress notifications of one call that are all delivered; beyond this rate they are merged."""
TOKENS: Final = 64
"""Progress tokens that are counted separately. All others share one budget: a server may invent any
number."""

log = getLogger("taskgate.upstream")

_passed_over = ThrottledLog(log, "a notification of a server is dropped: it is too large")

_Said = TypeVar("_Said")
_Heard = TypeVar("_Heard")


class LeftOut:
    """Log of what is dropped or merged for one server, throttled."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._superseded = ThrottledLog(
            log, "progress notifications of a server are merged: they come too fast", level=INFO
        )
        self._too_large = ThrottledLog(log, "a notification of a server is dropped: it is too large")

    def superseded(self, count: int) -> None:
        """Report that `count` progress notifications were replaced by newer ones."""
        self._superseded.emit({"upstream": self._upstream, "count": count})

    def too_large(self, size: int) -> None:
        """Report that a notification of `size` bytes was dropped."""
        self._too_large.emit({"upstream": self._upstream, "bytes": size, "limit": LARGEST})


class NotificationBudget:
    """Limit on the notifications of one event stream or program.

    The reader gives `heard` all messages that arrived together, and goes on with those returned.
    """

    __slots__ = ("_left_out", "_owed_until", "_tokens")

    def __init__(self, left_out: LeftOut) -> None:
        self._left_out = left_out
        # The time at which the messages read so far are paid for, at the rate of MESSAGES.
        self._owed_until = 0.0
        # The state of the rate limit of each progress token.
        self._tokens: dict[RequestId, float] = {}

    def heard(self, said: Sequence[_Said], now: float) -> list[_Said]:
        """Return those of the messages that are passed on, in their order.

        `said` arrived together. Items that are no bytes are passed on unchanged.
        """
        kept: list[_Said | None] = []
        newest: dict[RequestId, int] = {}
        superseded = 0
        for message in said:
            token = None
            if isinstance(message, bytes):
                if len(message) > LARGEST:
                    # A message above LARGE is read on another thread, and dropped there if it is a
                    # notification.
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
                # A token over its rate: this is its newest progress until another comes.
                if before is not None or not self._has_room(token, now):
                    newest[token] = len(kept)
            kept.append(message)
        if superseded:
            self._left_out.superseded(superseded)
        return [message for message in kept if message is not None]

    def wait(self, messages: int, now: float) -> float:
        """Count messages that were read, and return the seconds to pause before reading more."""
        self._owed_until = max(self._owed_until, now) + messages * MESSAGES.every
        return max(0.0, self._owed_until - now - MESSAGES.burst * MESSAGES.every)

    def _has_room(self, token: RequestId, now: float) -> bool:
        """Count one progress notification; returns whether its token is within its rate."""
        tokens, counted = self._tokens, token
        if token not in tokens and len(tokens) >= TOKENS:
            # A token within its rate needs no entry: a new one starts from the same state.
            tokens = self._tokens = {each: owed for each, owed in tokens.items() if owed > now}
            counted = token if len(tokens) < TOKENS else _ANY_OTHER
        verdict, tokens[counted] = gcra(tokens.get(counted), now, PROGRESS)
        return verdict.allowed


class Said:
    """Limit on bytes besides answers: `most` at once, and `SAID_A_SECOND` in each second.

    A leaky bucket: `heard` counts each message when it arrives, and `answered` takes it off again
    if it was an answer. The reader pauses as long as `wait` says.
    """

    __slots__ = ("_at", "_most", "_owed")

    def __init__(self, most: int) -> None:
        self._most = most
        self._owed = self._at = 0.0

    def heard(self, size: int) -> None:
        """Count a message of `size` bytes."""
        self._owed += size

    def answered(self, size: int) -> None:
        """Take a message off the count: it was an answer, and answers have a limit of their own."""
        self._owed = max(0.0, self._owed - size)

    def wait(self, now: float) -> float:
        """Return the seconds to pause before reading more; 0 within the limit."""
        self._owed = max(0.0, self._owed - (now - self._at) * SAID_A_SECOND)
        self._at = now
        return max(0.0, (self._owed - self._most) / SAID_A_SECOND)


async def decode_large(hear: Callable[[], _Heard]) -> _Heard | None:
    """Decode a large message by `hear` on another thread.

    Returns None for a notification, which is too large to pass on. `NotificationBudget` drops such
    a notification unread, if its two ends tell its kind; this is for the others.
    """
    heard = await in_thread(hear)
    if not isinstance(heard, SessionNotification | CallProgress):
        return heard
    _passed_over.emit({"limit": LARGEST})
    return None


def _token_of(message: bytes) -> RequestId | None:
    """Return the progress token of a message, None if it is no progress.

    Only decides what is merged. The messages that remain are validated by the codec of their era.
    """
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
_ANY_OTHER: Final = ""
"""The token under which all tokens beyond TOKENS are counted."""
