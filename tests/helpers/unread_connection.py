"""A connection to a host that does not read, unless the test does: what is on its way is there to be seen."""

from collections.abc import Iterable

from taskgate.streams.sse_connection import SseConnection


class UnreadConnection(SseConnection):
    """`pieces` are those on their way, the oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def send(self, piece: bytes) -> bool:
        is_sent = super().send(piece)
        if is_sent:
            self.pieces.append(piece)
        return is_sent

    def send_unbounded(self, pieces: Iterable[bytes]) -> None:
        more = list(pieces)
        super().send_unbounded(more)
        self.pieces += more

    def close(self, last: bytes = b"") -> None:
        if last and not self.is_closed:
            self.pieces.append(last)
        super().close(last)

    def abort(self) -> None:
        self.pieces.clear()
        super().abort()

    async def receive(self, timeout: float) -> bytes | None:
        piece = await super().receive(timeout)
        if piece is not None:
            del self.pieces[0]
        return piece
