"""Messages from a byte stream, one per line (U-STDIO-1): `Framing`. Pure.

Of a line above the limit only its two ends are stored, however long it is. `ProgramChannel` feeds
it.
"""

from typing import Final, NamedTuple

ENDS: Final = 512
"""Bytes that are stored of the beginning of such a line, and as many of its end."""

FURTHEST: Final = 16
"""Multiple of the limit up to which such a line is read to its end; a longer one counts as endless."""

BOM: Final = b"\xef\xbb\xbf"
"""Byte order mark that some programs on Windows write first; it is no part of a message."""

_GAP: Final = b"\0"
"""Stands for the omitted part: no message contains it, and parsers stop there."""


class Cut(NamedTuple):
    """A line that is too long: its `ends` with a zero byte between them, and its size in bytes."""

    ends: bytes
    size: int


class Framing:
    """Assembles lines of at most `limit` bytes without their end; a byte order mark before the
    first is removed.

    An unfinished line at the end of the stream is dropped.
    """

    __slots__ = ("_end", "_head", "_is_first", "_limit", "_pieces", "_size", "is_endless")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._is_first = True
        self._pieces: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None
        self._end = b""
        self.is_endless = False
        """Whether the current line is too long to wait for its end; nothing may be fed any more."""

    def feed(self, received: bytes) -> list[bytes | Cut]:
        """Return the lines that are complete now, without empty ones."""
        first, *ended = received.split(b"\n")
        lines: list[bytes | Cut] = []
        if not ended:
            self._add(first)
            return lines
        rest = ended.pop()
        # Empty lines are skipped before any work for them.
        for piece in (first, *filter(None, ended)):
            self._add(piece)
            if self.is_endless:
                return lines
            line = self._take()
            if isinstance(line, Cut) or (line and not line.isspace()):
                lines.append(line)
        self._add(rest)
        return lines

    def begun(self) -> Cut:
        """Return what is known of the current line once it is endless; its end is missing."""
        return Cut((self._head or b"") + _GAP, self._size)

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._head is None:
            self._pieces.append(piece)
            if self._size <= self._limit:
                return
            self._head = _first(self._pieces)
        for each in self._pieces or (piece,):
            self._end = (self._end + each[-ENDS:])[-ENDS:]
        self._pieces = []
        self.is_endless = self._size > self._limit * FURTHEST

    def _take(self) -> bytes | Cut:
        """Return the line that ends now."""
        line = b"".join(self._pieces) if self._head is None else Cut(self._head + _GAP + self._end, self._size)
        self._pieces, self._size, self._head, self._end = [], 0, None, b""
        if self._is_first:
            self._is_first = False
            if not isinstance(line, Cut):
                return line.removeprefix(BOM)
        return line


def _first(pieces: list[bytes]) -> bytes:
    first = b""
    for piece in pieces:
        first += piece[: ENDS - len(first)]
        if len(first) == ENDS:
            break
    return first
