"""What is known of a log when it is opened again: its last line, what was torn off, and the head kept beside it.

The head beside a file (`.head`) is a witness of its own: where it knows of more lines than the file has, some are gone.
It is locked while the log is open, so that no two processes write one chain. What must not live here: writing lines.
"""

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import orjson

from taskgate.telemetry.auditlog.chain import EMPTY_CHAIN, ChainHead, head_of

_BLOCK: Final = 64 * 2**10
_RECORD_BYTES: Final = 128
"""Bytes of what is kept beside a file: always so many, so that one write replaces all of it."""
_OWNER_ONLY: Final = 0o600
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Gap(NamedTuple):
    """Something of the log is gone: why, how much of it where that is known, and what the log ended with once."""

    cause: str
    bytes: int | None = None
    lines: int | None = None
    head: ChainHead | None = None


class Tail(NamedTuple):
    """The end of a file: its last whole line, if any, where that ends, and how many bytes stand behind it."""

    line: bytes | None
    end: int
    torn: int


def read_tail(fd: int) -> Tail:
    """Read from the end, as far as the last whole line begins. Raises OSError."""
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
    """The number of a file's first line; None where it has none. Raises OSError."""
    line, newline = b"", b""
    while not newline and (block := os.pread(fd, _BLOCK, len(line))):
        line, newline, _ = (line + block).partition(b"\n")
    head = head_of(line) if newline else None
    return None if head is None else head.seq


def recover_head(tail: Tail, kept: ChainHead, put_aside: ChainHead | None) -> tuple[ChainHead, tuple[Gap, ...]]:
    """Where a chain goes on, and what is gone of it.

    `kept` is the head beside the file, `put_aside` that of the newest file that was put aside, if there is one. Numbers
    never go back: where lines are gone they go on after them, tied to the last line that is there.
    """
    gaps = [Gap("torn", bytes=tail.torn)] if tail.torn else []
    found = put_aside if tail.line is None else head_of(tail.line)
    if found is None:
        if tail.line is not None:
            gaps.append(Gap("unreadable"))
        if kept.seq:
            gaps.append(Gap("missing", head=kept))
        return kept, tuple(gaps)
    if found.seq < kept.seq:
        gaps.append(Gap("truncated", lines=kept.seq - found.seq, head=kept))
    elif found.seq == kept.seq and found.digest != kept.digest:
        gaps.append(Gap("replaced", head=kept))
    return ChainHead(max(found.seq, kept.seq), found.digest), tuple(gaps)


class HeadFile:
    """The head that is kept beside a file, and the lock."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def lock(cls, path: Path) -> Self:
        """Have it for oneself. Raises BlockingIOError where another has it, else OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return cls(fd)

    def read(self) -> ChainHead:
        """What was kept last; NOTHING where nothing was, or it cannot be read."""
        return _parse_head(os.pread(self._fd, _RECORD_BYTES, 0))

    def write(self, head: ChainHead) -> None:
        """Replace it. Raises OSError."""
        text = orjson.dumps(head._asdict(), option=orjson.OPT_SORT_KEYS)
        os.pwrite(self._fd, text.ljust(_RECORD_BYTES - 1) + b"\n", 0)

    def close(self) -> None:
        """Let others have it."""
        with suppress(OSError):
            os.close(self._fd)


def _parse_head(text: bytes) -> ChainHead:
    try:
        said = orjson.loads(text)
        seq, digest = said["seq"], said["digest"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return EMPTY_CHAIN
    if not isinstance(seq, int) or not isinstance(digest, str) or seq < 1 or not _DIGEST.fullmatch(digest):
        return EMPTY_CHAIN
    return ChainHead(seq, digest)
