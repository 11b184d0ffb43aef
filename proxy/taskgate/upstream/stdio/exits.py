"""Ends of a server's programs: `Ending` with its `Cause`, failed starts, and the delay before a restart.

No text contains the program's path, arguments or environment. `channel` and `pool` use them.
`Restarts` is pure: `pool` reports each start and each end of a program, by the key of its slot. A
program that could not be started, or ended by itself soon, is a failure: each one in a row doubles
the delay. A program that was useful for some time ends the row.
"""

import errno as numbers
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import ceil
from signal import Signals
from typing import Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.stdio.supervisor_client import LOST


class Cause(StrEnum):
    """Cause of the end of a channel. The values appear in metrics and logs."""

    EXIT = "exit"
    """The program exited."""
    SIGNAL = "signal"
    """A signal that the gateway did not send ended it."""
    CLOSED = "closed"
    """The program runs, but closed its input or output."""
    TOO_LARGE = "too_large"
    """The program wrote a message so large that the gateway did not wait for its end."""
    NURSERY = "nursery"
    """The supervisor process died, and all programs with it."""
    OURS = "ours"
    """The gateway ended it: it was idle, or another caller needed its place."""


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a channel, with its cause; `text` tells it to hosts whose requests fail.

    `detail` is for operators: the status of the program, if it exited.
    """

    cause: Cause
    text: str
    detail: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether the gateway ended it, so that it is no evidence against the program."""
        return self.cause is Cause.OURS

    def failure(self, *, dispatched: bool) -> UpstreamFailed:
        """Return the failure of a request on the channel. `dispatched`: the program may have read
        some of it."""
        kind = failures.Ours if self.is_ours else UpstreamFailed
        return kind(UpstreamReason.CLOSED, self.text, dispatched=dispatched, cause=self.detail)


OURS: Final = Ending(Cause.OURS, str(failures.let_go(dispatched=True)))
"""The gateway ended the channel."""
ENDLESS: Final = Ending(
    Cause.TOO_LARGE, "The server's program was stopped because it wrote a message that is too large"
)
"""A message was so large that its end was not waited for."""
CLOSED_OUTPUT: Final = Ending(Cause.CLOSED, "The server's program closed its output before it answered")
CLOSED_INPUT: Final = Ending(Cause.CLOSED, "The server's program closed its input before it answered")
UNREAD: Final = Ending(Cause.CLOSED, "The server's program has ended or no longer reads its input")
"""A message could not be written, and the cause is not known yet."""
_UNKNOWN: Final = Ending(Cause.NURSERY, "The server's program ended before it answered; its exit status is unknown")


def of_status(status: int) -> Ending:
    """Return the ending of a program that exited by itself, by its status as of `supervisor_client.Child`."""
    if status == LOST:
        return _UNKNOWN
    if status >= 0:
        text = f"The server's program exited with status {status} before it answered"
        return Ending(Cause.EXIT, text, f"exit status {status}")
    signal = _name(-status)
    return Ending(Cause.SIGNAL, f"The server's program was killed by {signal} before it answered", signal)


def not_started(errno: int, *, cwd: bool) -> UpstreamFailed:
    """The system did not start the program."""
    if errno in (numbers.EMFILE, numbers.ENFILE):
        return failures.no_descriptor()
    why = _OF_DIRECTORIES.get(errno, _REFUSED) if cwd else _OF_PROGRAMS.get(errno, _REFUSED)
    text = f"The server's program could not be started: {why}"
    cause = numbers.errorcode.get(errno, "program not started")
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False, cause=cause)


def not_in_time() -> UpstreamFailed:
    """The supervisor did not start the program within the timeout."""
    text = "The server's program could not be started in time"
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False, cause="start timeout")


def no_room() -> UpstreamFailed:
    """The maximum number of programs runs, all of them for other callers."""
    text = "All programs that the server may have are in use, and none became free in time"
    return failures.Ours(UpstreamReason.TIMEOUT, text, dispatched=False)


def held_back(failures: int, seconds: float) -> UpstreamFailed:
    """Programs failed soon after their start so often that the next start is delayed."""
    times = "once" if failures == 1 else f"{failures} times in a row"
    text = f"The server's program failed soon after its start, {times}; the next start is in {ceil(seconds)} s"
    wait = timedelta(seconds=seconds)
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False, retry_after=wait)


def again(failure: UpstreamFailed) -> UpstreamFailed:
    """The same failure for another waiter, of whom nothing was sent."""
    kind = failures.Ours if isinstance(failure, failures.Ours) else UpstreamFailed
    reason, retry_after = UpstreamReason(failure.reason), failure.retry_after
    return kind(reason, str(failure), dispatched=False, retry_after=retry_after, cause=failure.cause)


def _name(signal: int) -> str:
    try:
        return Signals(signal).name
    except ValueError:
        return f"signal {signal}"


_REFUSED: Final = "the system refused it"
_FULL: Final = "the system lacks the resources for it"
_OF_DIRECTORIES: Final = {
    numbers.ENOENT: "its working directory does not exist",
    numbers.ENOTDIR: "its working directory is not a directory",
    numbers.EACCES: "no permission to enter its working directory",
}
_OF_PROGRAMS: Final = {
    numbers.ENOENT: "the program or its interpreter does not exist",
    numbers.EACCES: "no permission to execute it",
    numbers.ENOEXEC: "it is not an executable program",
    numbers.EAGAIN: _FULL,
    numbers.ENOMEM: _FULL,
    numbers.EMFILE: _FULL,
    numbers.ENFILE: _FULL,
    numbers.E2BIG: "its arguments are too long",
}


LIVES: Final = 10.0
"""Seconds from its first message for which a program must have run to count as useful. One that
ended sooner will probably do so again."""

_MOST: Final = 1024
"""Keys that are stored."""


@dataclass(slots=True)
class _Past:
    """History of one key: failures in a row, loop time before which no start is allowed, cause of
    the last end."""

    failures: int
    until: float
    cause: Cause | None


class Restarts:
    """History of programs, by key. `first` is the delay in seconds after the first failure, `most`
    the longest."""

    def __init__(self, first: float, most: float) -> None:
        self._first = first
        self._most = most
        self._pasts: dict[Hashable, _Past] = {}

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds until the next start is allowed; 0 if it is now."""
        past = self._pasts.get(key)
        return 0.0 if past is None else max(0.0, past.until - now)

    def failures(self, key: Hashable) -> int:
        """Return the number of failures in a row."""
        past = self._pasts.get(key)
        return 0 if past is None else past.failures

    def started(self, key: Hashable) -> Cause | None:
        """Note a start. Returns why the program before ended, None if there was none or the gateway
        ended it: then it is no restart."""
        past = self._pasts.get(key)
        if past is None:
            return None
        cause, past.cause = past.cause, None
        return cause

    def failed(self, key: Hashable, now: float, cause: Cause | None = None) -> None:
        """Report a program that could not be started, or ended by itself too soon."""
        past = self._pasts.pop(key, None) or _Past(0, now, None)
        past.failures += 1
        past.cause = cause or past.cause
        past.until = now + self._pause(past.failures)
        self._keep(key, past)

    def ended(self, key: Hashable, cause: Cause) -> None:
        """Report a program that ended by itself after being useful: the next start is not delayed."""
        self._pasts.pop(key, None)
        self._keep(key, _Past(0, float("-inf"), cause))

    def served(self, key: Hashable) -> None:
        """Report a useful program that is no longer needed: earlier failures are forgotten."""
        self._pasts.pop(key, None)

    def _pause(self, failures: int) -> float:
        # More doublings exceed any delay.
        doublings = min(failures - 1, 64)
        return float(min(self._first * 2**doublings, self._most))

    def _keep(self, key: Hashable, past: _Past) -> None:
        self._pasts[key] = past
        if len(self._pasts) > _MOST:
            # The oldest has waited longest.
            del self._pasts[next(iter(self._pasts))]
