"""How a program's line can end, and what is said of it. No text tells where a program is, or what it was given.

What must not live here: when it does.
"""

import errno as numbers
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import ceil
from signal import Signals
from typing import Final

from taskgate.errors import UpstreamFailed, UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.stdio.nursing import LOST


class Cause(StrEnum):
    """Why a line ended."""

    EXIT = "exit"
    """The program exited."""
    SIGNAL = "signal"
    """A signal that was not ours ended it."""
    CLOSED = "closed"
    """It lives, and closed its input or output."""
    TOO_LARGE = "too_large"
    """It wrote a message so large that its end was not waited for."""
    NURSERY = "nursery"
    """The nursery died, and all programs with it."""
    OURS = "ours"
    """We ended it: nobody needed it, or it was in the way."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a line ended; `text` is for whoever waits for an answer on it."""

    cause: Cause
    text: str

    @property
    def is_ours(self) -> bool:
        """Whether it is no sign of anything."""
        return self.cause is Cause.OURS

    def failure(self, *, dispatched: bool) -> UpstreamFailed:
        """What becomes of a request; `dispatched` tells whether any of it may have been read."""
        kind = failures.Ours if self.is_ours else UpstreamFailed
        return kind(UpstreamReason.CLOSED, self.text, dispatched=dispatched)


OURS: Final = Ending(Cause.OURS, str(failures.let_go(dispatched=True)))
ENDLESS: Final = Ending(
    Cause.TOO_LARGE, "The server's program was stopped because it wrote a message that is too large"
)
CLOSED_OUTPUT: Final = Ending(Cause.CLOSED, "The server's program closed its output before it answered")
CLOSED_INPUT: Final = Ending(Cause.CLOSED, "The server's program closed its input before it answered")
UNREAD: Final = Ending(Cause.CLOSED, "The server's program has ended or no longer reads its input")
_UNKNOWN: Final = Ending(Cause.NURSERY, "The server's program ended before it answered; its exit status is unknown")


def of_status(status: int) -> Ending:
    """What the status of a program says, which ended by itself; see `nursing.Child`."""
    if status == LOST:
        return _UNKNOWN
    if status >= 0:
        return Ending(Cause.EXIT, f"The server's program exited with status {status} before it answered")
    return Ending(Cause.SIGNAL, f"The server's program was killed by {_name(-status)} before it answered")


def not_started(errno: int, *, cwd: bool) -> UpstreamFailed:
    """The system did not start a program."""
    if errno in (numbers.EMFILE, numbers.ENFILE):
        return failures.no_descriptor()
    why = _OF_DIRECTORIES.get(errno, _REFUSED) if cwd else _OF_PROGRAMS.get(errno, _REFUSED)
    text = f"The server's program could not be started: {why}"
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False)


def not_in_time() -> UpstreamFailed:
    """The nursery did not start a program before it had to."""
    text = "The server's program could not be started in time"
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False)


def no_room() -> UpstreamFailed:
    """As many programs run as may, all of them for others."""
    text = "All programs that the server may have are in use, and none became free in time"
    return failures.Ours(UpstreamReason.TIMEOUT, text, dispatched=False)


def held_back(failures: int, seconds: float) -> UpstreamFailed:
    """Programs were of no use so often that there is a pause before the next."""
    times = "once" if failures == 1 else f"{failures} times in a row"
    text = f"The server's program failed soon after its start, {times}; the next start is in {ceil(seconds)} s"
    wait = timedelta(seconds=seconds)
    return UpstreamFailed(UpstreamReason.UNREACHABLE, text, dispatched=False, retry_after=wait)


def again(failure: UpstreamFailed) -> UpstreamFailed:
    """The same failure for another who waited for the same; nothing of theirs was sent."""
    kind = failures.Ours if isinstance(failure, failures.Ours) else UpstreamFailed
    return kind(UpstreamReason(failure.reason), str(failure), dispatched=False, retry_after=failure.retry_after)


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
