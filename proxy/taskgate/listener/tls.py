"""TLS of the listeners: `Certificates`, which are reloaded when their files change, and `TlsWire`,
one connection.

Each listener calls `Certificates.load` at its start, `watch` to have the files checked from then
on, and `close`. Only a certificate and a key that match are used. No message contains a path or
anything of a key.

A listener makes a `TlsWire` for each accepted connection if TLS is on. That is the transport of a
protocol above and the protocol of the socket below. It first does the handshake. Then it makes the
protocol above, such as a `HostConnection`, and from then on decrypts for it and encrypts what it
writes. A handshake that fails or takes too long ends the connection, and no protocol is made.
Unsent bytes wait only in the socket's transport, so that a slow reader has the same effect as
without TLS. Nothing of a peer is logged.
"""

import asyncio
import os
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, Final, Literal, cast

from taskgate.system.secret_files import ADVICE, is_exposed

LOOK_INTERVAL: Final = timedelta(seconds=5)
"""The interval of checks for changed files."""
HANDSHAKE_TIMEOUT: Final = timedelta(seconds=10)

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_DEMANDS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}

_RECORD: Final = 16 * 1024
_SLICE: Final = 128 * 1024
"""Bytes that are encrypted at once, so that unsent data is not held twice as a whole."""

_log = getLogger("taskgate.listener")

_FileIdentity = tuple[int, ...] | None


class TlsRefused(Exception):
    """The files cannot be used. The text names the configuration key, and no path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The operator's TLS settings. `client_ca_file` is given unless `client_auth` is `none`.

    Errors name the keys of `section`.
    """

    section: Literal["server.tls", "admin.tls"] = "server.tls"
    cert_file: Path
    key_file: Path
    min_version: Literal["1.2", "1.3"] = "1.2"
    client_auth: Literal["none", "optional", "require"] = "none"
    client_ca_file: Path | None = None
    handshake_timeout: timedelta = HANDSHAKE_TIMEOUT
    look_interval: timedelta = LOOK_INTERVAL

    @property
    def files(self) -> tuple[tuple[str, Path], ...]:
        """The files with their configuration keys."""
        named = ("cert_file", self.cert_file), ("key_file", self.key_file), ("client_ca_file", self.client_ca_file)
        return tuple((f"{self.section}.{key}", path) for key, path in named if path is not None)


class Certificates:
    """The SSL context for new handshakes, from `load` on.

    Changed files are read on the event loop: they are small and local. If they cannot be used, the
    present context stays. That is logged once per change, at the second check that finds the same
    files. A new certificate may be written a moment before its key.

    The files are compared by their identities: those in use (`_loaded`), those found unusable by
    the last check (`_rejected`), and those logged (`_logged`).
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._loaded: tuple[_FileIdentity, ...] = ()
        self._rejected: tuple[_FileIdentity, ...] | None = None
        self._logged: tuple[_FileIdentity, ...] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def context(self) -> ssl.SSLContext:
        """The newest usable context. Open connections keep theirs."""
        assert self._context is not None, "load() comes first"
        return self._context

    @property
    def handshake_timeout(self) -> timedelta:
        """How long a handshake may take."""
        return self._settings.handshake_timeout

    def load(self) -> None:
        """Read the files for the first time. Raises TlsRefused."""
        self._loaded = self._identities()
        self._context = made_context(self._settings)

    def watch(self) -> None:
        """Check the files once after the interval; each check calls this again, until `close`."""
        interval = self._settings.look_interval.total_seconds()
        self._timer = asyncio.get_running_loop().call_later(interval, self._look)

    def close(self) -> None:
        """Stop checking. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Check the files, and use them if they have changed."""
        self.watch()
        # Before they are read: what changes meanwhile is found by the next check.
        identities = self._identities()
        if identities == self._loaded:
            self._rejected = self._logged = None
            return
        try:
            self._context = made_context(self._settings)
        except TlsRefused as refusal:
            if self._rejected == identities and self._logged != identities:
                self._logged = identities
                _log.warning(
                    "the new certificate was rejected; the old one stays in use", extra={"reason": str(refusal)}
                )
            self._rejected = identities
            return
        self._loaded, self._rejected, self._logged = identities, None, None
        _log.info("the new certificate is in use", extra={"section": self._settings.section})

    def _identities(self) -> tuple[_FileIdentity, ...]:
        """Return the identities of the files, which change with contents and permissions."""
        return tuple(_identity_of(path) for _, path in self._settings.files)


def made_context(settings: TlsSettings) -> ssl.SSLContext:
    """Create the server's SSL context. Raises TlsRefused."""
    for key, path in settings.files:
        _check_readable(key, path)
    # Not the library's default context, which logs session keys to a file named by an environment
    # variable.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    # Repeated renegotiation would be expensive for the gateway.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(
            settings.cert_file, settings.key_file, password=partial(_no_passphrase, settings.section)
        )
    except OSError as error:
        raise TlsRefused(_reason_of(error, settings.section)) from None
    if settings.client_ca_file is not None:
        try:
            context.load_verify_locations(settings.client_ca_file)
        except OSError:
            raise TlsRefused(f"{settings.section}.client_ca_file holds no usable certificate") from None
    context.verify_mode = _DEMANDS[settings.client_auth]
    return context


def _check_readable(key: str, path: Path) -> None:
    try:
        # Opening a pipe would block.
        if not stat.S_ISREG(path.stat().st_mode):
            raise TlsRefused(f"{key} is not a file")
        with path.open("rb") as file:
            exposed = key.endswith(".key_file") and is_exposed(path, os.fstat(file.fileno()).st_mode, key)
    except OSError as error:
        raise TlsRefused(f"{key} cannot be read: {os.strerror(error.errno or 0).lower()}") from None
    if exposed:
        raise TlsRefused(f"{key} {ADVICE}")


def _no_passphrase(section: str) -> bytes:
    """Refuse an encrypted key. Without this function the library would ask at the terminal."""
    raise TlsRefused(f"{section}.key_file is protected by a passphrase; use a key file without one")


def _reason_of(error: OSError, section: str) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return f"{section}.key_file does not match the certificate in {section}.cert_file"
    detail = f": {reason.replace('_', ' ').lower()}" if isinstance(reason, str) else ""
    return f"{section}.cert_file and {section}.key_file hold no usable certificate and key{detail}"


def _identity_of(path: Path) -> _FileIdentity:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


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

    @property
    def is_established(self) -> bool:
        """Whether the handshake is done."""
        return self._protocol is not None

    def hurry(self, seconds: float) -> None:
        """Abort the connection in that many seconds, unless its handshake is done by then."""
        if self._protocol is None and self._transport is not None:
            self._stop_timer()
            self._timer = self._loop.call_later(seconds, self._transport.abort)

    # The protocol of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit of the handshake."""
        # A transport of another event loop may be of no class of asyncio.
        self._transport = cast(asyncio.Transport, transport)
        self._wires.add(self)
        self._timer = self._loop.call_later(self._timeout, self._transport.abort)

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
            self.eof_received()
            self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Pass it up."""
        self._is_over = True
        self._stop_timer()
        self._wires.discard(self)
        self.lost.set_result(None)
        if self._protocol is not None:
            self._protocol.connection_lost(exc if isinstance(exc, Exception) else None)

    def eof_received(self) -> None:
        """Pass it up: the peer sends nothing more."""
        if self._protocol is not None:
            self._protocol.eof_received()

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
