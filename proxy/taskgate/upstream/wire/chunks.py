"""Body in chunks: `ChunkDecoder` takes the framing off, and finds the end.

It accepts the lines of RFC 9112, with spaces after a size, and drops extensions and trailers. The
line of a size must end in CRLF; aiohttp's parser takes some other ends. An event stream has one
chunk for each event, and each read is decoded at once, without a reader of streams between.
`listener/chunks` is stricter, and only finds the end: there aiohttp's parser must agree.
"""

import re
from typing import Final

_LONGEST_LINE: Final = 8190
"""The most bytes of a line of a trailer."""

# Nothing in it is tried twice: a server may send a line without an end.
_LINE: Final = rb"(?>(0{0,64}[0-9A-Fa-f]{1,15}))[ \t]*+(?:;[^\0-\x08\n-\x1f\x7f]*+)?+"
_SIZE: Final = re.compile(_LINE + rb"\r\n").match
_SIZE_BEGUN: Final = re.compile(rb"(?:" + _LINE + rb"\r?)?").fullmatch
_FIELD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*\r?\n").match
_FIELD_BEGUN: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+(?::[^\0\r\n]*)?)?\r?").fullmatch
_LINE_END: Final = b"\r\n"
_LINE_ENDS: Final = (_LINE_END, b"\n")


class ChunkDecoder:
    """The chunks of one body.

    `feed` gets all bytes after the head, in order. `end` is -1 until the body has ended, and then
    the place in the last fed bytes where it ended. `is_broken`: the framing is invalid, and nothing
    more must be fed.
    """

    __slots__ = ("_has_line_end", "_in_trailer", "_left", "_rest", "end", "is_broken")

    def __init__(self) -> None:
        self.end = -1
        self.is_broken = False
        # Bytes that are missing of the current chunk, and whether its line end is.
        self._left = 0
        self._has_line_end = True
        self._in_trailer = False
        # A line without its end.
        self._rest = b""

    def feed(self, data: bytes, at: int = 0) -> bytes:
        """Return the part of the body that `data` has. `at` is where the body begins in the first of
        them."""
        begun = len(self._rest)
        if begun:
            data, self._rest = self._rest + data, b""
        size, pieces = len(data), list[bytes]()
        while True:
            if self._left:
                stop = at + self._left
                pieces.append(data[at:stop])
                if stop > size:
                    self._left = stop - size
                    break
                at, self._left, self._has_line_end = stop, 0, False
            if not self._has_line_end:
                if not data.startswith(_LINE_ENDS, at):
                    self._rest = data[at:]
                    self.is_broken = not _LINE_END.startswith(self._rest)
                    break
                at = data.index(b"\n", at) + 1
                self._has_line_end = True
            if self._in_trailer:
                at = self._read_trailer(data, at)
                if at >= 0:
                    self.end = at - begun
                break
            if at == size:
                break
            match = _SIZE(data, at)
            if match is None:
                self._keep_size(data[at:])
                break
            at, left = match.end(), int(match[1], 16)
            if left and data.startswith(_LINE_END, at + left):
                # Nearly always: the chunk has come whole.
                pieces.append(data[at : at + left])
                at += left + 2
                continue
            self._left, self._in_trailer = left, not left
        return b"".join(pieces)

    def _read_trailer(self, data: bytes, at: int) -> int:
        """Return the place behind the trailer; -1 if it has not ended."""
        while not data.startswith(_LINE_ENDS, at):
            match = _FIELD(data, at)
            if match is None:
                self._rest = data[at:]
                self.is_broken = len(self._rest) > _LONGEST_LINE or _FIELD_BEGUN(self._rest) is None
                return -1
            if match.end() - at > _LONGEST_LINE:
                self.is_broken = True
                return -1
            at = match.end()
        return data.index(b"\n", at) + 1

    def _keep_size(self, line: bytes) -> None:
        """Store the beginning of a chunk's line, without what may be long: its extension, and spaces
        but one."""
        self.is_broken = _SIZE_BEGUN(line) is None
        size, extended, _ = line.partition(b";")
        bare = size.rstrip(b" \t")
        size = size[: len(bare) + 1]
        self._rest = size + extended + b"\r" if extended and line.endswith(b"\r") else size + extended
