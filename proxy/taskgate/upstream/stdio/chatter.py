"""What servers' programs say besides messages, in the log: their standard error, and junk on their output.

It is never a sign that anything is wrong (U-STDIO-1). What must not live here: what is taken out of a line
(`redaction`). What holds: a program that says too much is read more slowly and told less of, and it can always go on.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from logging import getLogger
from typing import Final

from taskgate.upstream.redaction import SecretRedaction
from taskgate.upstream.stdio.pipes import Reading

log = getLogger("taskgate.upstream.stderr")

LINES_A_SECOND: Final = 50
"""Lines of all programs of one server that are told."""
BYTES_A_SECOND: Final = 2**22
"""Bytes of one program that are read: what nobody is told takes time to read, too."""

_MESSAGES: Final = (b"{", b"[")


class ProgramLog:
    """The log of one server's programs: how many of their lines are told counts over all of them."""

    def __init__(self, upstream: str, redaction: SecretRedaction) -> None:
        self._upstream = upstream
        self._redaction = redaction
        self._left = LINES_A_SECOND
        self._dropped = 0
        self._began = float("-inf")
        self.needed = redaction.needed * 4
        """Bytes of a line that are needed; of a longer one the rest may be left out."""

    @property
    def room(self) -> int:
        """How many lines more are told now."""
        now = asyncio.get_running_loop().time()
        if now - self._began >= 1:
            self._began, self._left = now, LINES_A_SECOND
        return self._left

    def tell(self, said: bytes, pid: int, *, stream: str = "stderr", is_whole: bool = True) -> None:
        """Tell one line, or count it."""
        if not said.strip():
            return
        if self.room:
            self._left -= 1
            self._log(self._redaction.told(said, is_whole=is_whole), pid, stream)
        else:
            self._dropped += 1

    def tell_junk(self, said: bytes, pid: int) -> None:
        """Tell one line of standard output that is no message; of a broken one, which may quote somebody, the size."""
        if said.lstrip().startswith(_MESSAGES):
            self.tell(b"a message of %d bytes that cannot be read" % len(said), pid, stream="stdout")
        else:
            self.tell(said[: self.needed], pid, stream="stdout", is_whole=len(said) <= self.needed)

    def tell_cut(self, size: int, pid: int) -> None:
        """Tell that a line of standard output was too long to be kept."""
        self.tell(b"a line of %d bytes, too long to log" % size, pid, stream="stdout")

    def drop(self, lines: int) -> None:
        """Count lines that are not told."""
        self._dropped += lines

    def flush(self, pid: int) -> None:
        """Tell how many were not told where that is still to be told: nothing may follow."""
        if self._dropped:
            self._log("", pid, "stderr")

    def _log(self, text: str, pid: int, stream: str) -> None:
        fields: dict[str, object] = {"upstream": self._upstream, "pid": pid, "stream": stream, "text": text}
        if self._dropped:
            fields["dropped"], self._dropped = self._dropped, 0
        log.info("output of a server's program", extra=fields)


class Chatter:
    """The standard error of one program. `ended` is told once that there is no more of it."""

    def __init__(self, told: ProgramLog, ended: Callable[[], None]) -> None:
        self._told = told
        self._ended = ended
        self.reading = Reading(self._received, self._end)
        self.pid = 0
        """The program's process, for the log."""
        self._begun = b""
        self._is_cut = False
        self._began = float("-inf")
        self._left = 0
        self._resting: asyncio.TimerHandle | None = None

    def hurry(self) -> None:
        """Read what there is, however much it was: the program has ended."""
        self._left = 2**63
        self._read_on()

    def _received(self, said: bytes) -> None:
        self._pace(len(said))
        *lines, rest = said.split(b"\n", self._told.room)
        for line in lines:
            self._add(line)
            self._end_line()
        if b"\n" in rest:
            skipped, _, rest = rest.rpartition(b"\n")
            self._told.drop(skipped.count(b"\n") + 1)
            self._begun, self._is_cut = b"", False
        self._add(rest)

    def _add(self, said: bytes) -> None:
        if self._is_cut:
            return
        needed = self._told.needed
        self._begun += said[: needed + 1 - len(self._begun)]
        if len(self._begun) > needed:
            self._told.tell(self._begun[:needed], self.pid, is_whole=False)
            self._begun, self._is_cut = b"", True

    def _end_line(self) -> None:
        if not self._is_cut:
            self._told.tell(self._begun, self.pid)
        self._begun, self._is_cut = b"", False

    def _pace(self, size: int) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - self._began >= 1 and self._left < BYTES_A_SECOND:
            self._began, self._left = now, BYTES_A_SECOND
        self._left -= size
        if self._left <= 0 and self._resting is None:
            self.reading.pause()
            self._resting = loop.call_at(self._began + 1, self._read_on, context=Context())

    def _read_on(self) -> None:
        self._rest_no_more()
        self.reading.resume()

    def _rest_no_more(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

    def _end(self) -> None:
        self._rest_no_more()
        self._end_line()
        self._told.flush(self.pid)
        self._ended()
