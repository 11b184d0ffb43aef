"""TLS of the public listener: `Certificates`, the certificate and key of handshakes, reloaded when
their files change.

`PublicListener` calls `load` at its start, `watch` to have the files checked from then on, and
`close`. `TlsWire` uses the context for each connection. Only a certificate and a key that match are
used. No message contains a path or anything of a key.
"""

import asyncio
import os
import ssl
import stat
from dataclasses import dataclass
from datetime import timedelta
from logging import getLogger
from pathlib import Path
from typing import Final, Literal

from taskgate.system.secret_files import ADVICE, is_exposed

LOOK_INTERVAL: Final = timedelta(seconds=5)
"""The interval of checks for changed files."""
HANDSHAKE_TIMEOUT: Final = timedelta(seconds=10)

_KEY: Final = "server.tls.key_file"
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_DEMANDS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}

_log = getLogger("taskgate.listener")

_FileIdentity = tuple[int, ...] | None


class TlsRefused(Exception):
    """The files cannot be used. The text names the configuration key, and no path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The operator's TLS settings. `client_ca_file` is given unless `client_auth` is `none`."""

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
        return tuple((f"server.tls.{key}", path) for key, path in named if path is not None)


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
        _log.info("the new certificate is in use")

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
        context.load_cert_chain(settings.cert_file, settings.key_file, password=_no_passphrase)
    except OSError as error:
        raise TlsRefused(_reason_of(error)) from None
    if settings.client_ca_file is not None:
        try:
            context.load_verify_locations(settings.client_ca_file)
        except OSError:
            raise TlsRefused("server.tls.client_ca_file holds no usable certificate") from None
    context.verify_mode = _DEMANDS[settings.client_auth]
    return context


def _check_readable(key: str, path: Path) -> None:
    try:
        # Opening a pipe would block.
        if not stat.S_ISREG(path.stat().st_mode):
            raise TlsRefused(f"{key} is not a file")
        with path.open("rb") as file:
            exposed = key == _KEY and is_exposed(path, os.fstat(file.fileno()).st_mode, key)
    except OSError as error:
        raise TlsRefused(f"{key} cannot be read: {os.strerror(error.errno or 0).lower()}") from None
    if exposed:
        raise TlsRefused(f"{key} {ADVICE}")


def _no_passphrase() -> bytes:
    """Refuse an encrypted key. Without this function the library would ask at the terminal."""
    raise TlsRefused("server.tls.key_file is protected by a passphrase; use a key file without one")


def _reason_of(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "server.tls.key_file does not match the certificate in server.tls.cert_file"
    detail = f": {reason.replace('_', ' ').lower()}" if isinstance(reason, str) else ""
    return f"server.tls.cert_file and server.tls.key_file hold no usable certificate and key{detail}"


def _identity_of(path: Path) -> _FileIdentity:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
