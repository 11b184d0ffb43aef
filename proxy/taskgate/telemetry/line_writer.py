"""Lines for a file descriptor from a thread of their own: `LineWriter`.

To add a line never waits, also while the pipe behind the descriptor is not read. Then up to
MOST_WAITING bytes wait. Further lines are dropped and counted until all of these are written.
"""

import fcntl
import os
import select
import struct
import termios
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final

MOST_WAITING: Final = 4 * 1024 * 1024
"""Bytes of lines that wait to be written."""
_PIECE: Final = 64 * 1024
"""Bytes that are written at once to what is no pipe."""
FLUSH: Final = 2.0
"""Seconds in which `flush` waits for a reader."""


class LineWriter:
    """A thread that writes lines in their order, each of them whole.

    It is a daemon thread, so that a pipe that is not read keeps no process alive. To a pipe it writes
    as many whole lines at a time as that takes at once. So the end of the process cuts none of them.
    `report` gets the number of dropped lines, on the thread, once those before them are written. It may
    add a line. A line that cannot be written is lost.
    """

    def __init__(self, descriptor: int, report: Callable[[int], None]) -> None:
        self._descriptor = descriptor
        self._report = report
        self._lines: deque[bytes] = deque()
        self._size = self._dropped = 0
        self._is_busy = self._is_closed = False
        # Its lock may be taken twice: a finalizer that logs may run while a line is added.
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="taskgate-log", daemon=True)
        self._thread.start()

    def add(self, line: bytes) -> None:
        """Have a line written, which ends with a line end; drop it if too many wait."""
        with self._changed:
            if self._dropped or self._size + len(line) > MOST_WAITING:
                self._dropped += 1
            else:
                self._lines.append(line)
                self._size += len(line)
            self._changed.notify_all()

    def flush(self, seconds: float = FLUSH) -> bool:
        """Wait until all lines are written, but not longer than this; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._dropped or self._is_busy), seconds)

    def close(self, seconds: float = FLUSH) -> None:
        """Write what waits, as `flush` does, and end the thread; no line may follow."""
        is_written = self.flush(seconds)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if is_written:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines or self._dropped or self._is_closed)
                if self._is_closed and not self._lines:
                    return
                self._is_busy = True
                data = self._take(_room(self._descriptor))
                dropped = 0
                if not data:
                    dropped, self._dropped = self._dropped, 0
            if data:
                self._write(data)
            else:
                self._report(dropped)

    def _take(self, room: int) -> bytes:
        """Take the next lines that fit in so many bytes; at least one, if there is one."""
        taken: list[bytes] = []
        size = 0
        while self._lines and (not taken or size + len(self._lines[0]) <= room):
            taken.append(self._lines.popleft())
            size += len(taken[-1])
        self._size -= size
        return b"".join(taken)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # Another process has set the shared descriptor so.
                room = select.poll()
                room.register(self._descriptor, select.POLLOUT)
                room.poll()
            except OSError:
                # The reader is gone, or the disk is full.
                return


def _room(descriptor: int) -> int:
    """Return how many bytes can be written at once: the whole of an empty pipe, else PIPE_BUF.

    Larger pieces matter to a busy process, whose other threads get their turn for each of them.
    """
    try:
        size = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
        (unread,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))
    except OSError:
        # It is no pipe.
        return _PIECE
    return select.PIPE_BUF if unread else size
