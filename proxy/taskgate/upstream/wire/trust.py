"""TLS context for connections to one server: `tls_context`, from configured files.

`Dialer` uses it; `cli`, `explain` and `wiring` report a `TlsFileRefused` to the operator.
"""

import os
import ssl
from pathlib import Path

from taskgate.system.secret_files import ADVICE, is_exposed
from taskgate.upstream.settings import UpstreamTls


class TlsFileRefused(Exception):
    """A file is unusable. The text is for the operator: the key under `tls` that names it and what
    is wrong, no path, no content."""


def tls_context(tls: UpstreamTls) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or newer with HTTP/1.1. Reads the files. Raises TlsFileRefused."""
    context = _trust_of(tls.ca_file)
    context.set_alpn_protocols(["http/1.1"])
    if tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        _show(context, tls.cert_file, tls.key_file)
    return context


def _trust_of(ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that trusts the authorities of a file, or without one those of the
    system."""
    if ca_file is None:
        return ssl.create_default_context()
    from taskgate.authorities import AuthoritiesRefused, trust_of  # noqa: PLC0415

    try:
        return trust_of(ca_file)
    except AuthoritiesRefused as refused:
        raise TlsFileRefused(f"tls.ca_file: {refused}") from None


def _show(context: ssl.SSLContext, cert_file: Path, key_file: Path | None) -> None:
    """Have the context show the gateway's certificate."""
    _expect_readable("tls.cert_file", cert_file)
    if key_file is not None:
        _expect_readable("tls.key_file", key_file, is_secret=True)
    try:
        # Without a password callback OpenSSL would prompt for the key's password on the terminal.
        context.load_cert_chain(cert_file, key_file, password=lambda: "")
    except (ssl.SSLError, ValueError):
        text = "tls.cert_file, tls.key_file: must hold a PEM certificate and its key without a password"
        raise TlsFileRefused(text) from None


def _expect_readable(key: str, path: Path, *, is_secret: bool = False) -> None:
    try:
        with path.open("rb") as file:
            exposed = is_secret and is_exposed(path, os.fstat(file.fileno()).st_mode, key)
            file.read(1)
    except OSError as error:
        raise TlsFileRefused(f"{key}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise TlsFileRefused(f"{key}: cannot be read: the file name is invalid") from None
    if exposed:
        raise TlsFileRefused(f"{key}: {ADVICE}")
