"""One connection under TLS: `TlsWire`, the transport of a protocol above and the protocol of the
socket below.

`PublicListener` makes one for each accepted connection if TLS is on. It first does the handshake.
Then it makes the protocol above, a `HostConnection`, and from then on decrypts for it and encrypts
what it writes. A handshake that fails or takes too long ends the connection, and no protocol is
made. Unsent bytes wait only in the socket's transport, so that a slow reader has the same effect as
without TLS. Nothing of a peer is logged. `tls` has the certificates.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

_RECORD: Final = 16 * 1024
_SLICE: Final = 128 * 1024
"""Bytes that are encrypted at once, so that unsent data is not held twice as a whole."""


class TlsWire(asyncio.Transport, asyncio.Protocol):
    """A TLS connection, with a protocol of `make_protocol` above after the handshake.

    `_transport` is that of the socket, `_protocol` the one above. `_is_over` is set when nothing
    more can be encrypted: the closing message was sent, TLS failed, or the connection is lost.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.Protocol],
        timeout: timedelta,
        wires: "set[TlsWire]",
    ) -> None:
        """`timeout` is for the handshake. `wires` contains this object while it has a socket."""
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout.total_seconds()
        self._timer: asyncio.TimerHandle | None = None
        self._protocol: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._is_over = False
        self._wires = wires
        self.lost: asyncio.Future[None] = self._loop.create_future()

    def hurry(self, seconds: float) -> None:
        """Abort the connection in that many seconds, unless its handshake is done by then."""
        if self._protocol is None and self._transport is not None:
            self._stop_timer()
            self._timer = self._loop.call_later(seconds, self._transport.abort)

    # The protocol of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit of the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._wires.add(self)
        self._timer = self._loop.call_later(self._timeout, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Continue the handshake, or pass the decrypted data up."""
        self._incoming.write(data)
        try:
            if self._protocol is None:
                self._tls.do_handshake()
                self._finish_handshake()
            plain, ended = self._decrypted()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError:
            self._fail()
            return
        self._flush()
        if plain and self._protocol is not None:
            self._protocol.data_received(plain)
        if ended:
            self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Pass it up."""
        self._is_over = True
        self._stop_timer()
        self._wires.discard(self)
        self.lost.set_result(None)
        if self._protocol is not None:
            self._protocol.connection_lost(exc if isinstance(exc, Exception) else None)

    def pause_writing(self) -> None:
        """Pass it up: the peer reads too slowly."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass it up: the peer has caught up."""
        if self._protocol is not None:
            self._protocol.resume_writing()

    # The transport of the protocol above.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send; what does not fit waits in the socket's transport."""
        rest = memoryview(data)
        try:
            while rest and not self._is_over:
                rest = rest[self._tls.write(rest[:_SLICE]) :]
                self._flush()
        except ssl.SSLError:
            self.abort()

    def get_write_buffer_size(self) -> int:
        """Return the unsent bytes, as TLS records."""
        return self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)

    def is_reading(self) -> bool:
        return self._socket.is_reading()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send the TLS closing message, then end the stream."""
        self._send_close_notify()
        self._socket.write_eof()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def close(self) -> None:
        """Close after all data is sent, without waiting for the peer's closing message."""
        if not self._socket.is_closing():
            self._send_close_notify()
        self._socket.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def _socket(self) -> asyncio.Transport:
        assert self._transport is not None, "the transport below is set first"
        return self._transport

    def _finish_handshake(self) -> None:
        """Make the protocol above, after the handshake."""
        self._stop_timer()
        # Before any data is passed up: the protocol above must know its transport first.
        self._protocol = protocol = self._make_protocol()
        protocol.connection_made(self)

    def _decrypted(self) -> tuple[bytes, bool]:
        """Return the decrypted data, and whether the peer has sent its closing message."""
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(_RECORD):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces), False
        return b"".join(pieces), True

    def _fail(self) -> None:
        """End the connection after invalid TLS. The peer gets an alert with the reason."""
        self._is_over = True
        self._flush()
        # A close waits until the peer has read what is unsent. During the handshake its timer limits
        # that; later much may be unsent, and nothing limits it.
        if self._protocol is None:
            self._socket.close()
        else:
            self._socket.abort()

    def _send_close_notify(self) -> None:
        """Send the TLS closing message, once."""
        if not self._is_over:
            self._is_over = True
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
