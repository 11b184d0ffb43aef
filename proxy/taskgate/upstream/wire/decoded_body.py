"""Compressed body of an answer: `DecodedBody` reads it from its connection, and decodes it in pieces.

Its reader uses it as the `Connection`. Limits apply to decoded bytes: what a limit ends is decoded no
further. Bytes that decode to nothing are limited too. It is loaded with the first such answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from taskgate.content_codings import CodingBroken, Decoder
from taskgate.protocol.faults import protocol_violation
from taskgate.upstream import failures
from taskgate.upstream.wire.connection import Connection

EMPTY: Final = 64 * 1024
"""Bytes in a row that may decode to nothing."""


class DecodedBody:
    """The body of one answer on a connection, decoded from gzip or deflate.

    - `length`: that of the compressed body. `received`: the decoded bytes so far, or the compressed
      ones if these are more.
    - `take`: the next piece; empty if there is nothing new. Raises UpstreamFailed for an invalid body.
    - `has_ended`: an empty piece was taken after the last one.

    A document that ends too early is a failure, a stream is not: its events came whole.
    """

    __slots__ = (
        "_coding",
        "_connection",
        "_decoded",
        "_decoder",
        "_empty",
        "_pieces",
        "_streams",
        "has_ended",
        "length",
    )

    def __init__(self, connection: Connection, coding: str, *, streams: bool) -> None:
        self._connection = connection
        self._coding = coding
        self._streams = streams
        self._decoder = Decoder(coding)
        self._pieces: Iterator[bytes] | None = None
        self._decoded = self._empty = 0
        self.length: Final = connection.length
        self.has_ended = False

    @property
    def received(self) -> int:
        return max(self._decoded, self._connection.received)

    @property
    def has_unread(self) -> bool:
        return self._pieces is not None or self._connection.has_unread

    def take(self) -> bytes:
        while True:
            piece = self._next()
            if piece:
                self._decoded, self._empty = self._decoded + len(piece), 0
                return piece
            taken = self._connection.take()
            if not taken:
                self._see_end()
                return b""
            self._empty += len(taken)
            if self._empty > EMPTY + len(taken):
                raise failures.too_talkative()
            self._pieces = self._decoder.decoded(taken)

    def _next(self) -> bytes:
        """Return the next piece of the bytes that were taken last; empty if there is none."""
        if self._pieces is None:
            return b""
        try:
            piece = next(self._pieces, b"")
        except CodingBroken:
            raise protocol_violation(f"its answer is not valid {self._coding}") from None
        if not piece:
            self._pieces = None
        return piece

    def _see_end(self) -> None:
        """Note whether the body has ended. Raises UpstreamFailed for a document that is not whole."""
        self.has_ended = self._connection.has_ended
        if self.has_ended and not self._streams and not self._decoder.is_whole:
            raise failures.broke_off()

    def more(
        self, within: float | None, above: int = 0, ahead: Callable[[Connection], bool] | None = None
    ) -> Awaitable[None]:
        """Return what to await for more: the next bytes, or a turn of the event loop if some are there.

        Nothing reads ahead.
        """
        if self._pieces is not None or self._connection.has_ended:
            return asyncio.sleep(0)
        return self._connection.more(within, above)

    def release(self, *, linger: bool = False) -> None:
        self._connection.release(linger=linger)

    def drop(self) -> None:
        self._connection.drop()
