"""Recovery of a log file: where its chain continues (`recover_head`), and which `Gap`s it has.

`FileSink` reads the last line, a torn half-line behind it, and the head beside the file
(`HeadFile`, suffix `.head`). When that head has a higher number than the file, lines are missing.
`expect_own` refuses a file of another program before anything is written.
The head file is locked while the log is open, so that no two processes write one chain.
"""

import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import orjson

from taskgate.system import descriptors
from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN, ChainHead, head_of, parse_line
from taskgate.telemetry.auditlog.settings import AuditUnavailable

_BLOCK: Final = 64 * 2**10
_RECORD_BYTES: Final = 128
"""Size of a head file in bytes; constant, so that one write replaces all of it."""
_BEGINNING: Final = b'{"'
"""The first bytes of each line, in any format."""
_OWNER_ONLY: Final = 0o600
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Gap(NamedTuple):
    """Missing lines: the cause, the amount if known, and the head that the log once had."""

    cause: str
    bytes: int | None = None
    lines: int | None = None
    head: ChainHead | None = None


class Tail(NamedTuple):
    """The end of a file: its last whole line, if any, where it ends, and the bytes after it."""

    line: bytes | None
    end: int
    torn: int


def read_tail(fd: int) -> Tail:
    """Read a file backwards to the start of its last whole line. Raises OSError."""
    size = start = os.fstat(fd).st_size
    found = b""
    while start > 0 and found.count(b"\n") < 2:
        start = max(0, start - _BLOCK)
        found = os.pread(fd, size - start, start)
    whole, newline, torn = found.rpartition(b"\n")
    if not newline:
        return Tail(None, 0, len(torn))
    return Tail(whole.rpartition(b"\n")[2], size - len(torn), len(torn))


def first_seq(fd: int) -> int | None:
    """The number of the first line of a file; None without one. Raises OSError."""
    line, newline = b"", b""
    while not newline and (block := os.pread(fd, _BLOCK, len(line))):
        line, newline, _ = (line + block).partition(b"\n")
    head = head_of(line) if newline else None
    return None if head is None else head.seq


def expect_own(path: Path, head: Path) -> None:
    """Check that a log may be written at `path`: the file is missing, empty, or a log of taskgate.

    A log is known by its first line or its last whole one, or by half a line alone. `head` is
    the file of its head, and must be missing or no larger than one. A recorded head shows that the
    file was a log, however it was damaged. Changes nothing. Raises AuditUnavailable, or OSError.
    """
    if not _is_at(head, _may_be_head):
        raise AuditUnavailable(f"{head} is no file of an audit log: name another file")
    if not _is_at(path, is_own) and not _is_at(head, _is_recorded, if_missing=False):
        raise AuditUnavailable(f"{path} is no audit log of taskgate: name another file, or move it away")


def is_own(fd: int) -> bool:
    """Return whether an open file is empty or a log of taskgate. Raises OSError."""
    # First of all, so that a large file of another kind is not read.
    if not _BEGINNING.startswith(os.pread(fd, len(_BEGINNING), 0)):
        return False
    if not os.fstat(fd).st_size or first_seq(fd) is not None:
        return True
    tail = read_tail(fd)
    if tail.line is not None:
        return head_of(tail.line) is not None
    torn = os.pread(fd, tail.torn, 0)
    return parse_line(torn) is not None or not _is_json(torn)


def _is_at(path: Path, judge: Callable[[int], bool], *, if_missing: bool = True) -> bool:
    """Judge the file at a path. What is no regular file passes, and is judged later."""
    try:
        # Without O_NONBLOCK, a named pipe would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return if_missing
    try:
        return not stat.S_ISREG(os.fstat(fd).st_mode) or judge(fd)
    finally:
        os.close(fd)


def _is_recorded(fd: int) -> bool:
    return _parse_head(os.pread(fd, _RECORD_BYTES, 0)) is not EMPTY_CHAIN


def _may_be_head(fd: int) -> bool:
    # A damaged head is replaced, so only the size tells.
    return os.fstat(fd).st_size <= _RECORD_BYTES


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def recover_head(tail: Tail, recorded: ChainHead, rotated: ChainHead | None) -> tuple[ChainHead, tuple[Gap, ...]]:
    """The head to continue a chain from, and the gaps found.

    `recorded` is the head beside the file, `rotated` the head of the newest rotated file, if any.
    Numbers never go back: after missing lines the chain continues with the next number, linked to
    the last line that exists.
    """
    gaps = [Gap("torn", bytes=tail.torn)] if tail.torn else []
    found = rotated if tail.line is None else head_of(tail.line)
    if found is None:
        if tail.line is not None:
            gaps.append(Gap("unreadable"))
        if recorded.seq:
            gaps.append(Gap("missing", head=recorded))
        return recorded, tuple(gaps)
    if found.seq < recorded.seq:
        gaps.append(Gap("truncated", lines=recorded.seq - found.seq, head=recorded))
    elif found.seq == recorded.seq and found.digest != recorded.digest:
        gaps.append(Gap("replaced", head=recorded))
    return ChainHead(max(found.seq, recorded.seq), found.digest), tuple(gaps)


class HeadFile:
    """The head beside a log file, and the lock of the log."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def lock(cls, path: Path) -> Self:
        """Open and lock it.

        Raises BlockingIOError when it is locked already, or another OSError.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        try:
            descriptors.lock(fd)
        except OSError:
            os.close(fd)
            raise
        return cls(fd)

    def read(self) -> ChainHead:
        """The recorded head; EMPTY_CHAIN without a readable one."""
        return _parse_head(os.pread(self._fd, _RECORD_BYTES, 0))

    def write(self, head: ChainHead) -> None:
        """Replace the head. Raises OSError."""
        text = orjson.dumps(head._asdict(), option=orjson.OPT_SORT_KEYS)
        os.pwrite(self._fd, text.ljust(_RECORD_BYTES - 1) + b"\n", 0)

    def close(self) -> None:
        """Close and unlock it."""
        with suppress(OSError):
            os.close(self._fd)


def _parse_head(text: bytes) -> ChainHead:
    try:
        document = orjson.loads(text)
        seq, digest = document["seq"], document["digest"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return EMPTY_CHAIN
    if not isinstance(seq, int) or not isinstance(digest, str) or seq < 1 or not _DIGEST.fullmatch(digest):
        return EMPTY_CHAIN
    return ChainHead(seq, digest)
