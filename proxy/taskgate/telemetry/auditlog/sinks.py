"""The sinks that lines go to: `StreamSink` (standard output) and `FileSink`, behind `Sink`.

A `ChainWriter` calls its sink on the thread of the sink only. `FileSink` continues the file where
it ended, rotates it by size, and reopens it when another program has moved it. Beside `audit.jsonl`
there may be:

- `audit.jsonl.head`: the head of the chain, and the lock
- `audit.jsonl.000000000001`: a rotated file, named by the number of its first line
- `audit.jsonl.torn`: half-lines that were cut off
"""

import os
import re
import stat
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from taskgate.system import descriptors
from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN, ChainHead, head_of
from taskgate.telemetry.auditlog.recovery import (
    Gap,
    HeadFile,
    Tail,
    expect_own,
    first_seq,
    is_own,
    read_tail,
    recover_head,
)
from taskgate.telemetry.auditlog.settings import AuditFileInUse, AuditUnavailable, ForeignAuditFile

STDOUT = 1


class OpenedSink(NamedTuple):
    """An opened sink: the head of the chain that it had, and the gaps."""

    head: ChainHead
    gaps: tuple[Gap, ...] = ()


class Sink(Protocol):
    """The taker of whole lines, from `open` to `close`. Only the thread of the sink calls it.

    `head` is the end of the chain as the writer has it.
    """

    def open(self) -> OpenedSink:
        """Open it. Raises OSError, or AuditUnavailable with a message for the operator."""
        ...

    def put(self, payload: bytes) -> None:
        """Write all these lines. Raises OSError: then the caller puts the same lines again."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether the caller must `rotate` before the next line."""
        ...

    def is_reserved(self, now: datetime) -> bool:
        """Whether more lines cost a file that is too young to make room for unknown callers."""
        ...

    def take_share(self, size: int) -> bool:
        """Take this many bytes of the share of unknown callers in a file; False if they are no longer
        there. Lines in the share fill no file.
        """
        ...

    def rotate(self, head: ChainHead) -> None:
        """Start a new file after the line of `head`. Raises OSError: then nothing has changed."""
        ...

    def reopen(self, head: ChainHead) -> bool:
        """Open the name of the sink again; returns whether it is another file now.

        If so, later lines go there, and the caller starts it with `audit.chain_started`. Raises
        OSError: then the old file stays in use.
        """
        ...

    def sync(self, head: ChainHead) -> Gap | None:
        """Sync the disk; return a gap if another program deleted or cut the file, else None.

        A deleted file is made anew. Raises OSError.
        """
        ...

    def close(self) -> None:
        """Close it. Never raises."""
        ...


class StreamSink:
    """An open descriptor such as standard output; it is never closed.

    Its chain restarts with each process.
    """

    is_full = False

    def __init__(self, fd: int = STDOUT) -> None:
        self._fd = fd
        self._taken = 0

    def open(self) -> OpenedSink:
        return OpenedSink(EMPTY_CHAIN)

    def put(self, payload: bytes) -> None:
        # After a failure, only the rest is written: the reader has the beginning.
        while self._taken < len(payload):
            self._taken += os.write(self._fd, memoryview(payload)[self._taken :])
        self._taken = 0

    def is_reserved(self, now: datetime) -> bool:
        return False

    def take_share(self, size: int) -> bool:
        return True

    def rotate(self, head: ChainHead) -> None:
        """Do nothing: a stream is never full."""

    def reopen(self, head: ChainHead) -> bool:
        return False

    def sync(self, head: ChainHead) -> Gap | None:
        return None

    def close(self) -> None:
        """Do nothing: the process owns the descriptor."""


HEAD_SUFFIX: Final = ".head"
TORN_SUFFIX: Final = ".torn"
_NEXT_SUFFIX: Final = ".next"
SHARE: Final = 16
"""The part of `rotate_size`, one in so many, that lines of unknown callers may take beside it."""
_FILE_MODE: Final = 0o640
"""The owner writes; the group may read, for example a log shipper."""


def expect_log(path: Path) -> None:
    """Check that no file of another program is in the way of a sink at `path`.

    Raises AuditUnavailable, or OSError. Changes nothing.
    """
    expect_own(path, path.with_name(path.name + HEAD_SUFFIX))


class FileSink:
    """The log file at `path`; rotated at `rotate_size` bytes (None: never). Keeps `keep` files.

    While the next rotation would delete a file younger than `least_age`, the sink is reserved for
    known callers. Lines of others then have a share beside `rotate_size`, and no more.
    Without `disk`, `sync` does not sync the disk.

    - `_reserved_until`: the time at which the file that the next rotation deletes is old enough, in
      seconds since 1970; `_shared`: the bytes of the share in the present file
    """

    def __init__(
        self, path: Path, *, rotate_size: int | None, keep: int, disk: bool, least_age: timedelta = timedelta()
    ) -> None:
        self._path = path
        self._rotate_size, self._keep, self._disk, self._least_age = rotate_size, keep, disk, least_age
        self._reserved_until = 0.0
        self._shared = 0
        self._fd = -1
        self._size = 0
        self._first = 1
        self._is_torn = False
        self._head_file: HeadFile | None = None

    def reconfigure(self, *, rotate_size: int | None, keep: int, disk: bool, least_age: timedelta) -> None:
        """Use other settings from now on."""
        self._rotate_size, self._keep, self._disk, self._least_age = rotate_size, keep, disk, least_age
        self._find_reserved()

    def open(self) -> OpenedSink:
        expect_log(self._path)
        try:
            self._head_file = HeadFile.lock(self._sibling(HEAD_SUFFIX))
        except BlockingIOError:
            raise AuditFileInUse(self._path) from None
        try:
            self._fd = self._opened(self._path)
            self._find_reserved()
            return self._recovered(self._head_file)
        except BaseException:
            self.close()
            raise

    def put(self, payload: bytes) -> None:
        """Write all these lines; after a failed write, cut the file back to whole lines."""
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
        return self._rotate_size is not None and self._size - self._shared >= self._rotate_size

    def is_reserved(self, now: datetime) -> bool:
        return now.timestamp() < self._reserved_until

    def take_share(self, size: int) -> bool:
        if self._rotate_size is not None and self._shared + size > self._rotate_size // SHARE:
            return False
        self._shared += size
        return True

    def rotate(self, head: ChainHead) -> None:
        # The rotated file is synced, and never written again.
        after = self._sibling(_NEXT_SUFFIX)
        fd = self._opened(after, os.O_TRUNC)
        try:
            os.fdatasync(self._fd)
            self._path.rename(_unused_path(self._sibling(f".{self._first:012}")))
            after.rename(self._path)
        except BaseException:
            os.close(fd)
            raise
        self._use(fd, head)
        self._prune()

    def reopen(self, head: ChainHead) -> bool:
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._fd)):
                return False
        if self._is_torn:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
        fd = self._opened(self._path)
        try:
            if not is_own(fd):
                raise ForeignAuditFile(f"{self._path} is no audit log of taskgate")
        except BaseException:
            os.close(fd)
            raise
        self._use(fd, head)
        return True

    def sync(self, head: ChainHead) -> Gap | None:
        if self._disk:
            os.fdatasync(self._fd)
        if self._head_file is not None and head.seq:
            self._head_file.write(head)
        found = os.fstat(self._fd)
        if not found.st_nlink:
            self._use(self._opened(self._path), head)
            return Gap("missing", head=head)
        if found.st_size < self._size:
            self._size = found.st_size
            return Gap("truncated", head=head)
        return None

    def close(self) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1
        if self._head_file is not None:
            self._head_file.close()
            self._head_file = None

    def _recovered(self, head_file: HeadFile) -> OpenedSink:
        tail = read_tail(self._fd)
        if tail.torn:
            self._cut_off(tail)
        head, gaps = recover_head(tail, head_file.read(), self._newest_rotated_head())
        if tail.line is not None and head_of(tail.line) is None:
            # No chain can continue after an unreadable line; the file is kept under another name.
            self._path.rename(_unused_path(self._sibling(".unreadable")))
            self._use(self._opened(self._path), head)
        else:
            self._size, self._first = tail.end, first_seq(self._fd) or head.seq + 1
        return OpenedSink(head, gaps)

    def _cut_off(self, tail: Tail) -> None:
        torn = os.pread(self._fd, tail.torn, tail.end)
        with open(self._sibling(TORN_SUFFIX), "ab", opener=_owner_only) as file:
            file.write(torn + b"\n")
        os.ftruncate(self._fd, tail.end)

    def _use(self, fd: int, head: ChainHead) -> None:
        os.close(self._fd)
        self._fd, self._size, self._is_torn, self._shared = fd, os.fstat(fd).st_size, False, 0
        self._first = first_seq(fd) or head.seq + 1

    def _opened(self, path: Path, *flags: int) -> int:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | sum(flags), _FILE_MODE)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise AuditUnavailable("must be a regular file")
            # The lock beside the file does not cover links: another name has another head file.
            descriptors.lock(fd)
        except BlockingIOError:
            os.close(fd)
            raise AuditFileInUse(path) from None
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _newest_rotated_head(self) -> ChainHead | None:
        """The head of the newest rotated file; None without one, or without a whole last line."""
        for path in reversed(self._rotated()):
            with open(path, "rb") as file:
                tail = read_tail(file.fileno())
            return None if tail.line is None else head_of(tail.line)
        return None

    def _rotated(self) -> list[Path]:
        """The rotated files, oldest first."""
        named = re.compile(re.escape(self._path.name) + r"\.[0-9]{12}(-[0-9]+)?")
        found = [each for each in self._path.parent.iterdir() if named.fullmatch(each.name)]
        return sorted(found, key=lambda each: (each.stat().st_mtime_ns, each.name))

    def _prune(self) -> None:
        with suppress(OSError):
            for each in self._rotated()[: -self._keep]:
                each.unlink()
        self._find_reserved()

    def _find_reserved(self) -> None:
        self._reserved_until = 0.0
        if self._rotate_size is not None and self._least_age:
            with suppress(OSError):
                rotated = self._rotated()
                if len(rotated) >= self._keep:
                    self._reserved_until = rotated[0].stat().st_mtime + self._least_age.total_seconds()

    def _sibling(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)


def _unused_path(path: Path) -> Path:
    """The path, or with a suffix if it exists: a restarted chain has the same numbers again."""
    number = 1
    found = path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
