"""Content codings of answers that were not requested: `coding_of`, `Decoder`, `read_plain`.

Some servers, and networks before them, compress whatever a request says. So gzip and deflate are
decoded, in pieces: their reader stops at its limit, and nothing beyond is decoded.
"""

import zlib
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Final

PIECE: Final = 64 * 1024
"""The most bytes that are decoded at once."""
FED: Final = 16 * 1024
"""Encoded bytes given to zlib at once: it copies what it leaves."""

_DECODED: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
_REFUSED: Final = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz"})
_ZLIB: Final = 8
"""The low bits of the first byte of a zlib stream. Some servers send raw deflate without its head."""


class CodingRefused(Exception):
    """A body has a coding, or several, that is not decoded; the text names it."""


class CodingBroken(Exception):
    """A body is not valid in its coding."""


def coding_of(written: Iterable[str]) -> str | None:
    """Return the coding of a body, gzip or deflate, by its Content-Encoding fields; None without one.

    A word that names no compression, such as `utf-8`, changes nothing. Raises CodingRefused.
    """
    words = [word.strip().lower() for word in ",".join(written).split(",")]
    named = [word for word in words if word in _DECODED or word in _REFUSED]
    if not named:
        return None
    if len(named) > 1 or named[0] in _REFUSED:
        raise CodingRefused(", ".join(named[:3]))
    return _DECODED[named[0]]


class Decoder:
    """The decoder of one body. `is_whole`: the body has come to its end, or has not begun.

    What follows the end is passed over.
    """

    __slots__ = ("_is_gzip", "_zlib")

    def __init__(self, coding: str) -> None:
        self._is_gzip = coding == "gzip"
        self._zlib: zlib._Decompress | None = None

    @property
    def is_whole(self) -> bool:
        return self._zlib is None or self._zlib.eof

    def decoded(self, data: bytes) -> Iterator[bytes]:
        """Yield the pieces that more bytes of the body decode to, each only when it is asked for.

        Raises CodingBroken. Must be iterated to its end before the next bytes.
        """
        if not data:
            return
        inflating = self._zlib = self._zlib or zlib.decompressobj(self._window(data[0]))
        for at in range(0, len(data), FED):
            left = data[at : at + FED]
            while not inflating.eof:
                try:
                    piece = inflating.decompress(left, PIECE)
                except zlib.error:
                    raise CodingBroken from None
                if piece:
                    yield piece
                left = inflating.unconsumed_tail
                if len(piece) < PIECE:
                    break

    def _window(self, first: int) -> int:
        """Return how zlib has to read a body that begins with this byte."""
        if self._is_gzip:
            return 16 + zlib.MAX_WBITS
        return zlib.MAX_WBITS if first & 0x0F == _ZLIB else -zlib.MAX_WBITS


async def read_plain(pieces: AsyncIterable[bytes], written: Iterable[str], most: int) -> bytes | None:
    """Return a body that comes in pieces, decoded; None if it has more than `most` bytes.

    `written` are its Content-Encoding fields. Raises CodingRefused or CodingBroken.
    """
    coding = coding_of(written)
    decoder = None if coding is None else Decoder(coding)
    body, received = bytearray(), 0
    async for piece in pieces:
        received += len(piece)
        for plain in (piece,) if decoder is None else decoder.decoded(piece):
            body += plain
            if len(body) > most:
                return None
        if received > most:
            return None
    if decoder is not None and not decoder.is_whole:
        raise CodingBroken
    return bytes(body)
