"""Where lines go: the protocol `Sink`, with `StreamSink` and `FileSink`."""

import fcntl
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN, ChainHead, head_of
from taskgate.telemetry.auditlog.recovery import Gap, HeadFile, Tail, first_seq, read_tail, recover_head
from taskgate.telemetry.auditlog.settings import AuditFileInUse, AuditUnavailable

STDOUT = 1


class OpenedSink(NamedTuple):
    """What a sink had when it was opened: where its chain ended, and what is gone of it."""

    head: ChainHead
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

    def rotate(self, head: ChainHead) -> None:
        """Begin with nothing; `head` is what was put last. Raises OSError: then all is as before."""
        ...

    def reopen(self, head: ChainHead) -> bool:
        """Go where the name of the sink leads now; whether that is elsewhere. Raises OSError."""
        ...

    def sync(self, head: ChainHead) -> Gap | None:
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
        return OpenedSink(EMPTY_CHAIN)

    def put(self, payload: bytes) -> None:
        """See Sink. What was taken of it already is not put twice."""
        while self._taken < len(payload):
            self._taken += os.write(self._fd, memoryview(payload)[self._taken :])
        self._taken = 0

    def rotate(self, head: ChainHead) -> None:
        """See Sink; it is never full."""

    def reopen(self, head: ChainHead) -> bool:
        """See Sink; it has no name."""
        return False

    def sync(self, head: ChainHead) -> Gap | None:
        """See Sink; who reads it has what was put."""
        return None

    def close(self) -> None:
        """See Sink; it stays open for whoever it belongs to."""


HEAD_SUFFIX: Final = ".head"
TORN_SUFFIX: Final = ".torn"
_NEXT_SUFFIX: Final = ".next"
_FILE_MODE: Final = 0o640
"""Its owner writes it; a group may be let read it, such as that of whoever ships logs."""


class FileSink:
    """One file at a time, at `path`; when it has `rotate_size` bytes it is put aside, and `keep` such are kept.

    Without `disk`, `sync` does not wait for the disk.
    """

    def __init__(self, path: Path, *, rotate_size: int | None, keep: int, disk: bool) -> None:
        self._path = path
        self._rotate_size, self._keep, self._disk = rotate_size, keep, disk
        self._fd = -1
        self._size = 0
        self._first = 1
        self._is_torn = False
        self._beside: HeadFile | None = None

    def reconfigure(self, *, rotate_size: int | None, keep: int, disk: bool) -> None:
        """Do so from now on; see the class."""
        self._rotate_size, self._keep, self._disk = rotate_size, keep, disk

    def open(self) -> OpenedSink:
        """See Sink."""
        try:
            self._beside = HeadFile.lock(self._near(HEAD_SUFFIX))
        except BlockingIOError:
            raise AuditFileInUse(self._path) from None
        try:
            self._fd = self._opened(self._path)
            return self._resumed(self._beside)
        except BaseException:
            self.close()
            raise

    def put(self, payload: bytes) -> None:
        """See Sink. A file never ends with half of it for longer than it takes to cut that off."""
        if self._is_torn:
            os.ftruncate(self._fd, self._size)
            self._is_torn = False
        left = memoryview(payload)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            self._is_torn = True
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
                self._is_torn = False
            raise
        self._size += len(payload)

    @property
    def is_full(self) -> bool:
        """See Sink."""
        return self._rotate_size is not None and self._size >= self._rotate_size

    def rotate(self, head: ChainHead) -> None:
        """See Sink. The file that is put aside is never written again, and the disk has it."""
        after = self._near(_NEXT_SUFFIX)
        fd = self._opened(after, os.O_TRUNC)
        try:
            os.fdatasync(self._fd)
            self._path.rename(_unused_path(self._near(f".{self._first:012}")))
            after.rename(self._path)
        except BaseException:
            os.close(fd)
            raise
        self._go_on(fd, head)
        self._prune()

    def reopen(self, head: ChainHead) -> bool:
        """See Sink."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._fd)):
                return False
        if self._is_torn:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
        fd = self._opened(self._path)
        self._go_on(fd, head)
        return True

    def sync(self, head: ChainHead) -> Gap | None:
        """See Sink."""
        if self._disk:
            os.fdatasync(self._fd)
        if self._beside is not None and head.seq:
            self._beside.write(head)
        found = os.fstat(self._fd)
        if not found.st_nlink:
            self._go_on(self._opened(self._path), head)
            return Gap("missing", head=head)
        if found.st_size < self._size:
            self._size = found.st_size
            return Gap("truncated", head=head)
        return None

    def close(self) -> None:
        """See Sink."""
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1
        if self._beside is not None:
            self._beside.close()
            self._beside = None

    def _resumed(self, beside: HeadFile) -> OpenedSink:
        tail = read_tail(self._fd)
        if tail.torn:
            self._cut_off(tail)
        head, gaps = recover_head(tail, beside.read(), self._newest())
        if tail.line is not None and head_of(tail.line) is None:
            # Nobody can go on after what is no line; and nothing is thrown away.
            self._path.rename(_unused_path(self._near(".unreadable")))
            self._go_on(self._opened(self._path), head)
        else:
            self._size, self._first = tail.end, first_seq(self._fd) or head.seq + 1
        return OpenedSink(head, gaps)

    def _cut_off(self, tail: Tail) -> None:
        torn = os.pread(self._fd, tail.torn, tail.end)
        with open(self._near(TORN_SUFFIX), "ab", opener=_owner_only) as file:
            file.write(torn + b"\n")
        os.ftruncate(self._fd, tail.end)

    def _go_on(self, fd: int, head: ChainHead) -> None:
        os.close(self._fd)
        self._fd, self._size, self._is_torn = fd, os.fstat(fd).st_size, False
        self._first = first_seq(fd) or head.seq + 1

    def _opened(self, path: Path, *flags: int) -> int:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | sum(flags), _FILE_MODE)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise AuditUnavailable("must be a regular file")
            # Under another name it has another head beside it, and so another lock.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise AuditFileInUse(path) from None
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _newest(self) -> ChainHead | None:
        """The head of what was put aside last; None where nothing was, or it has no whole line at its end."""
        for path in reversed(self._aside()):
            with open(path, "rb") as file:
                tail = read_tail(file.fileno())
            return None if tail.line is None else head_of(tail.line)
        return None

    def _aside(self) -> list[Path]:
        """What was put aside, oldest first."""
        named = re.compile(re.escape(self._path.name) + r"\.[0-9]{12}(-[0-9]+)?")
        found = [each for each in self._path.parent.iterdir() if named.fullmatch(each.name)]
        return sorted(found, key=lambda each: (each.stat().st_mtime_ns, each.name))

    def _prune(self) -> None:
        with suppress(OSError):
            for each in self._aside()[: -self._keep]:
                each.unlink()

    def _near(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)


def _unused_path(path: Path) -> Path:
    """That path, or one like it that nothing has: chains that began anew have the same numbers."""
    number = 1
    found = path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
