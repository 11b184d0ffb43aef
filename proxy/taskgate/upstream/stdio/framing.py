"""Messages out of the bytes of a stream: one a line (U-STDIO-1). What must not live here: what a message is. Pure.

What holds: of a line that is too long no more than its ends is kept, however long it gets.
"""

from typing import Final, NamedTuple

ENDS: Final = 512
"""Bytes that are kept of the beginning of such a line, and as many of its end."""

FURTHEST: Final = 16
"""So many times the limit a line may be to be read past to its end; a longer one is taken to have none."""

BOM: Final = b"\xef\xbb\xbf"
"""Some programs on Windows write it before anything else; it is no part of a message."""

_GAP: Final = b"\0"
"""Stands for what was left out: no message has it, and nothing that reads one goes on beyond it."""


class Cut(NamedTuple):
    """A line that is too long: its `ends`, with a zero byte between them, and how many bytes it had."""

    ends: bytes
    size: int


class Framing:
    """Puts lines together, of at most `limit` bytes without their end, less a byte order mark before the first.

    What is left at the end is none.
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
        """Whether a line has no end, as far as anybody waits: nothing is to be fed any more."""

    def feed(self, received: bytes) -> list[bytes | Cut]:
        """The lines that are whole now, less empty ones."""
        first, *ended = received.split(b"\n")
        lines: list[bytes | Cut] = []
        if not ended:
            self._add(first)
            return lines
        rest = ended.pop()
        # Empty ones are passed over before anything is done for each.
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
        """What is known of the line that is coming now, which is too long; its end is not."""
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
        """The line that ends now."""
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
