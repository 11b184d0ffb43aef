"""Log of program output that is no message: `StderrReader` for standard error, and `ProgramLog`.

That is standard error, and invalid lines of standard output. Neither is a sign of a fault
(U-STDIO-1). Lines are redacted (`system.redaction`) and logged at a limited rate. A program that writes
too much is read more slowly and logged less, but never blocked for good. Used by `ProgramChannel`.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from logging import getLogger
from typing import Final

from taskgate.system.redaction import SecretRedaction
from taskgate.upstream.stdio.pipes import PipeReader

log = getLogger("taskgate.upstream.stderr")

LINES_A_SECOND: Final = 50
"""Logged lines per second, of all programs of one server."""
BYTES_A_SECOND: Final = 2**22
"""Bytes per second that are read of one program: reading takes time, even if nothing is logged."""

_MESSAGES: Final = (b"{", b"[")


class ProgramLog:
    """The log of one server's programs; the rate limit is for all of them together.

    Lines above the rate are dropped and counted. The next line that is logged carries their number.
    """

    def __init__(self, upstream: str, redaction: SecretRedaction) -> None:
        self._upstream = upstream
        self._redaction = redaction
        self._left = LINES_A_SECOND
        self._dropped = 0
        self._began = float("-inf")
        self.needed = redaction.needed * 4
        """Bytes of a line that must be given to `log_line`; the rest of a longer one may be omitted."""

    @property
    def room(self) -> int:
        """How many more lines can be logged now."""
        now = asyncio.get_running_loop().time()
        if now - self._began >= 1:
            self._began, self._left = now, LINES_A_SECOND
        return self._left

    def log_line(self, said: bytes, pid: int, *, stream: str = "stderr", is_whole: bool = True) -> None:
        """Log one line, or count it as dropped. `is_whole`: nothing of it was omitted."""
        if not said.strip():
            return
        if self.room:
            self._left -= 1
            self._log(self._redaction.redacted(said, is_whole=is_whole), pid, stream)
        else:
            self._dropped += 1

    def log_invalid(self, said: bytes, pid: int) -> None:
        """Log an invalid line of standard output; of a broken message only its size, since it may
        contain user data."""
        if said.lstrip().startswith(_MESSAGES):
            self.log_line(b"a message of %d bytes that cannot be read" % len(said), pid, stream="stdout")
        else:
            self.log_line(said[: self.needed], pid, stream="stdout", is_whole=len(said) <= self.needed)

    def log_truncated(self, size: int, pid: int) -> None:
        """Log that a line of standard output was too long."""
        self.log_line(b"a line of %d bytes, too long to log" % size, pid, stream="stdout")

    def drop(self, lines: int) -> None:
        """Count lines as dropped."""
        self._dropped += lines

    def flush(self, pid: int) -> None:
        """Log the number of dropped lines, if any: called at the end of a program's output."""
        if self._dropped:
            self._log("", pid, "stderr")

    def _log(self, text: str, pid: int, stream: str) -> None:
        fields: dict[str, object] = {"upstream": self._upstream, "pid": pid, "stream": stream, "text": text}
        if self._dropped:
            fields["dropped"], self._dropped = self._dropped, 0
        log.info("output of a server's program", extra=fields)


class StderrReader:
    """The standard error of one program, read and logged line by line. `ended` is called once at
    its end."""

    def __init__(self, output_log: ProgramLog, ended: Callable[[], None]) -> None:
        self._output_log = output_log
        self._ended = ended
        self.reading = PipeReader(self._received, self._end)
        self.pid = 0
        """The process id, for the log; 0 before the start."""
        # The unfinished line. If it is cut, it was logged, and the rest of it is ignored.
        self._begun = b""
        self._is_cut = False
        # The loop time at which the current second began, and how many bytes it may still have.
        self._began = float("-inf")
        self._left = 0
        self._pause: asyncio.TimerHandle | None = None

    def read_rest(self) -> None:
        """Read the rest without a rate limit: the program has exited."""
        self._left = 2**63
        self._read_on()

    def _received(self, said: bytes) -> None:
        """Log the complete lines, as many as the log has room for; count the others as dropped."""
        self._pace(len(said))
        *lines, rest = said.split(b"\n", self._output_log.room)
        for line in lines:
            self._add(line)
            self._end_line()
        if b"\n" in rest:
            skipped, _, rest = rest.rpartition(b"\n")
            self._output_log.drop(skipped.count(b"\n") + 1)
            self._begun, self._is_cut = b"", False
        self._add(rest)

    def _add(self, said: bytes) -> None:
        if self._is_cut:
            return
        needed = self._output_log.needed
        self._begun += said[: needed + 1 - len(self._begun)]
        if len(self._begun) > needed:
            self._output_log.log_line(self._begun[:needed], self.pid, is_whole=False)
            self._begun, self._is_cut = b"", True

    def _end_line(self) -> None:
        if not self._is_cut:
            self._output_log.log_line(self._begun, self.pid)
        self._begun, self._is_cut = b"", False

    def _pace(self, size: int) -> None:
        """Count bytes; when a second has had enough of them, reading pauses until the next."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - self._began >= 1 and self._left < BYTES_A_SECOND:
            self._began, self._left = now, BYTES_A_SECOND
        self._left -= size
        if self._left <= 0 and self._pause is None:
            self.reading.pause()
            self._pause = loop.call_at(self._began + 1, self._read_on, context=Context())

    def _read_on(self) -> None:
        self._cancel_pause()
        self.reading.resume()

    def _cancel_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _end(self) -> None:
        self._cancel_pause()
        self._end_line()
        self._output_log.flush(self.pid)
        self._ended()
