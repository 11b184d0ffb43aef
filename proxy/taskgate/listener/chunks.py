"""aiohttp's parser for one request, and a body in chunks: `ChunkedBody`.

`ChunkFraming` finds the byte at which such a body ends. The parser reads the body, and gets no byte
beyond that end, because another parser reads the next head. If the two disagree about the end, the
connection ends.

A trailer is dropped, as RFC 9110, 6.5.1, allows: nothing reads it, and some proxies forward it. The
parser still checks its syntax. `ChunkFraming` is pure.
"""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import BadHttpMessage, TransferEncodingError
from aiohttp.streams import StreamReader

from taskgate.listener.body import READ_AHEAD, ArrivingBody

MAX_OVERHEAD: Final = 64 * 1024
BYTES_PER_OVERHEAD: Final = 8
"""Bytes that may arrive besides a body, as headers of its chunks and as its trailer. They are
MAX_OVERHEAD, and one more for each BYTES_PER_OVERHEAD bytes of the body. To parse a chunk costs as
much time as to receive kilobytes. Chunks of 64 bytes need one for each ten."""
_MOST_FIELDS: Final = 100
_LONGEST_LINE: Final = 16 * 1024
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,64})(?:;[^\r\n]*)?\r\n")
_LINE_END: Final = b"\r\n"


class _Unlimited:
    """The flow control of a StreamReader that is emptied whenever it is filled."""

    def pause_reading(self) -> None: ...
    def resume_reading(self, resume_parser: bool = True) -> None: ...


def request_parser(loop: asyncio.AbstractEventLoop, max_header: int) -> Callable[[], HttpRequestParser]:
    """Return what makes a parser; each is for one request.

    It limits each line of a head and the number of lines, but not the size of the head.
    """
    return partial(
        HttpRequestParser,
        _Unlimited(),  # type: ignore[arg-type]
        loop,
        READ_AHEAD,
        max_line_size=max_header,
        max_field_size=max_header,
        max_headers=_MOST_FIELDS,
        auto_decompress=False,
    )


class ChunkedBody:
    """A body in chunks, of which `parser` has read the head. It puts the body into `reader`."""

    __slots__ = ("_framing", "_parser", "_reader")

    def __init__(self, parser: HttpRequestParser, reader: StreamReader) -> None:
        self._framing = ChunkFraming()
        self._parser = parser
        self._reader = reader

    @property
    def is_ended(self) -> bool:
        """Whether the end was found."""
        return self._framing.is_ended

    def read(self, data: bytes, at: int, body: ArrivingBody) -> int:
        """Add the part of the body that is in `data` from `at` on, and return where that ends.

        Raises an HttpProcessingError of aiohttp's for invalid bytes.
        """
        framing, parser, reader = self._framing, self._parser, self._reader
        try:
            end = framing.find_end(data, at)
            if framing.is_ended:
                # All but the last byte, so that the parser cannot have found an earlier end.
                parser.feed_data(data[at : end - 1])
                if reader.is_eof():
                    raise BadHttpMessage("a body with an earlier end")
                at = end - 1
            messages, _, _ = parser.feed_data(data[at:end])
            if messages or reader.is_eof() is not framing.is_ended:
                raise BadHttpMessage("a body without a certain end")
        finally:
            if piece := reader.read_nowait():
                body.feed(piece)
        return end


class ChunkFraming:
    """The place in the framing of a body, from its first byte to its end.

    - `is_ended`: the end was found.
    - `_left` are the bytes of the chunk that are to come, with the line end behind it.
    - `_line` is the part of a line that has come: of a chunk's header, or of the trailer.
    """

    __slots__ = ("_in_trailer", "_left", "_line", "_overhead", "is_ended")

    def __init__(self) -> None:
        self.is_ended = self._in_trailer = False
        self._left = 0
        self._line = b""
        self._overhead = -MAX_OVERHEAD

    def find_end(self, data: bytes, at: int) -> int:
        """Return where in `data` the body ends, of which more is there from `at` on.

        That is the end of `data` if the body goes on. Raises TransferEncodingError if this is no
        chunk, or if there is too much besides the body.
        """
        while True:
            if self._left >= len(data) - at:
                self._left -= len(data) - at
                return len(data)
            at += self._left
            self._left = 0
            end = data.find(b"\n", at) + 1
            line = self._line = self._line + data[at : end or len(data)]
            if len(line) > _LONGEST_LINE:
                raise TransferEncodingError("a line of a chunked body is too long")
            if not end:
                return len(data)
            self._read(line)
            self._line = b""
            at = end
            if self.is_ended:
                return at

    def _read(self, line: bytes) -> None:
        """Read a whole line: the header of a chunk, or a line of the trailer."""
        self._overhead += len(line)
        if self._in_trailer:
            self.is_ended = line == _LINE_END
            if not line.endswith(_LINE_END):
                raise TransferEncodingError("a line of a trailer without its end")
        elif (header := _SIZE.fullmatch(line)) is None:
            raise TransferEncodingError("a chunk without a size")
        elif size := int(header[1], 16):
            self._left = size + len(_LINE_END)
            self._overhead += len(_LINE_END) - size // BYTES_PER_OVERHEAD
        else:
            self._in_trailer = True
        if self._overhead > 0:
            raise TransferEncodingError("too much besides the body")
