"""One connection under TLS: a transport to whoever stands above it, a protocol to the socket below.

What lives here: the server's side of the handshake, and the records of a connection. What must not: what is said on it
(`protocol`), and certificates (`tls`). What holds: bytes that wait to be sent wait in the socket's transport alone, so
that reading slowly means here what it means without TLS; nothing of a peer is logged; a handshake that takes too long
or fails ends its own connection, and nobody above hears of it.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

_RECORD: Final = 16 * 1024
_SLICE: Final = 128 * 1024
"""So much is encrypted at once: what is on its way out is not held a second time as a whole."""


class TlsWire(asyncio.Transport, asyncio.Protocol):
    """A connection that becomes one of `make_protocol` when its handshake is done."""

    def __init__(
        self,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.Protocol],
        timeout: timedelta,
        wires: "set[TlsWire]",
    ) -> None:
        """`timeout` is for the handshake; `wires` holds the connection while it has a socket."""
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout.total_seconds()
        self._timer: asyncio.TimerHandle | None = None
        self._above: asyncio.Protocol | None = None
        self._below: asyncio.Transport | None = None
        self._over = False
        self._wires = wires
        self.lost: asyncio.Future[None] = self._loop.create_future()

    def hurry(self, seconds: float) -> None:
        """Give the handshake so many seconds more, if it is not done."""
        if self._above is None and self._below is not None:
            self._stop_timer()
            self._timer = self._loop.call_later(seconds, self._below.abort)

    # Towards the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self._below = transport
        self._wires.add(self)
        self._timer = self._loop.call_later(self._timeout, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take a part of the handshake, or hand up what the records hold."""
        self._incoming.write(data)
        try:
            if self._above is None:
                self._tls.do_handshake()
                self._greet()
            plain, ended = self._decrypted()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError:
            self._give_up()
            return
        self._flush()
        if plain and self._above is not None:
            self._above.data_received(plain)
        if ended:
            self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell whoever stands above."""
        self._over = True
        self._stop_timer()
        self._wires.discard(self)
        self.lost.set_result(None)
        if self._above is not None:
            self._above.connection_lost(exc if isinstance(exc, Exception) else None)

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write."""
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self._above is not None:
            self._above.resume_writing()

    # Towards the connection above.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send; what does not fit into the socket waits below."""
        rest = memoryview(data)
        try:
            while rest and not self._over:
                rest = rest[self._tls.write(rest[:_SLICE]) :]
                self._flush()
        except ssl.SSLError:
            self.abort()

    def get_write_buffer_size(self) -> int:
        """What waits to be sent, in bytes, as records."""
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When the peer is too slow, in bytes that wait."""
        self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the socket."""
        return self._socket.get_extra_info(name, default)

    def is_reading(self) -> bool:
        """Whether the socket is read."""
        return self._socket.is_reading()

    def pause_reading(self) -> None:
        """Read nothing for now."""
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._socket.resume_reading()

    def can_write_eof(self) -> bool:
        """It can."""
        return True

    def write_eof(self) -> None:
        """Send no more."""
        self._take_leave()
        self._socket.write_eof()

    def is_closing(self) -> bool:
        """Whether it is being closed, or is."""
        return self._socket.is_closing()

    def close(self) -> None:
        """Close when what waits is sent. The peer's own farewell is not waited for."""
        if not self._socket.is_closing():
            self._take_leave()
        self._socket.close()

    def abort(self) -> None:
        """Close now."""
        self._over = True
        if self._below is not None:
            self._below.abort()

    @property
    def _socket(self) -> asyncio.Transport:
        assert self._below is not None, "the transport below is set first"
        return self._below

    def _greet(self) -> None:
        self._stop_timer()
        # Before anything of the peer is handed up: whoever stands above has to know the transport first.
        self._above = above = self._make_protocol()
        above.connection_made(self)

    def _decrypted(self) -> tuple[bytes, bool]:
        """What has come, and whether the peer has said that it was the last."""
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(_RECORD):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces), False
        return b"".join(pieces), True

    def _give_up(self) -> None:
        """What came is no TLS that we speak. The peer is told why by an alert, as far as it takes that."""
        self._over = True
        self._flush()
        # During the handshake its timer goes on; afterwards much can be waiting that nobody wants any more.
        if self._above is None:
            self._socket.close()
        else:
            self._socket.abort()

    def _take_leave(self) -> None:
        if not self._over:
            self._over = True
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
