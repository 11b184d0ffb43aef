"""Where lines go: what every sink promises, and standard output.

What must not live here: files (`files`), and what lines say. What holds: whoever calls is on the thread of the sink,
and alone.
"""

import os
from typing import NamedTuple, Protocol

from taskgate.telemetry.auditlog.chain import NOTHING, Head
from taskgate.telemetry.auditlog.recollection import Gap

STDOUT = 1


class OpenedSink(NamedTuple):
    """What a sink had when it was opened: where its chain ended, and what is gone of it."""

    head: Head
    gaps: tuple[Gap, ...] = ()


class Sink(Protocol):
    """Takes lines."""

    def open(self) -> OpenedSink:
        """Make ready. Raises OSError, or AuditUnavailable with words of its own."""
        ...

    def put(self, payload: bytes) -> None:
        """Take whole lines, all of them. Raises OSError: then the same are to be put again."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether `rotate` is due before the next line."""
        ...

    def rotate(self, head: Head) -> None:
        """Begin with nothing; `head` is what was put last. Raises OSError: then all is as before."""
        ...

    def reopen(self, head: Head) -> bool:
        """Go where the name of the sink leads now; whether that is elsewhere. Raises OSError."""
        ...

    def sync(self, head: Head) -> Gap | None:
        """Make what was put outlast the machine, and look what became of it. Raises OSError."""
        ...

    def close(self) -> None:
        """Let go of it. Never raises."""
        ...


class StreamSink:
    """An open descriptor of somebody else's, such as standard output. Its chain begins anew with each process."""

    is_full = False

    def __init__(self, fd: int = STDOUT) -> None:
        self._fd = fd
        self._taken = 0

    def open(self) -> OpenedSink:
        """See Sink."""
        return OpenedSink(NOTHING)

    def put(self, payload: bytes) -> None:
        """See Sink. What was taken of it already is not put twice."""
        while self._taken < len(payload):
            self._taken += os.write(self._fd, memoryview(payload)[self._taken :])
        self._taken = 0

    def rotate(self, head: Head) -> None:
        """See Sink; it is never full."""

    def reopen(self, head: Head) -> bool:
        """See Sink; it has no name."""
        return False

    def sync(self, head: Head) -> Gap | None:
        """See Sink; who reads it has what was put."""
        return None

    def close(self) -> None:
        """See Sink; it stays open for whoever it belongs to."""
