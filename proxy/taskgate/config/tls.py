"""TLS of the public listener: its keys, and what they say together.

What must not live here: looking at the files, which are read when the gateway starts and when they change. What holds:
as in coherence, malformed parts contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from taskgate.config.addresses import FilePath
from taskgate.config.fields import Section
from taskgate.config.written import Contradiction, section

_KEY = "server.tls"


class TlsSection(Section):
    """How the listener proves who it is. Files that change are read again, without a restart."""

    cert_file: FilePath | None = None
    """The certificate and those between it and its root, in PEM; null means plain HTTP."""
    key_file: FilePath | None = None
    """The private key of the certificate, in PEM and without a passphrase."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """The oldest version of TLS that is spoken, in quotes."""
    client_auth: Literal["none", "optional", "require"] = "none"
    """Whether hosts are asked for a certificate of their own, which says nothing about whose task is whose."""
    client_ca_file: FilePath | None = None
    """The certificates, in PEM, one of which must have signed that of a host."""


def tls_contradictions(written: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys."""
    where = ("server", "tls")
    tls = section(written, *where)
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if tls.get(one) is not None and tls.get(other) is None:
            yield (*where, one), f"must not be given without {_KEY}.{other}"
    asked = tls.get("client_auth") in ("optional", "require")
    if asked and tls.get("client_ca_file") is None:
        yield (*where, "client_auth"), f"must not be given without {_KEY}.client_ca_file, unless it is none"
    elif asked and tls.get("cert_file") is None:
        yield (*where, "client_auth"), f"must not be given without {_KEY}.cert_file, unless it is none"
    if tls.get("client_ca_file") is not None and tls.get("client_auth", "none") == "none":
        yield (*where, "client_ca_file"), f"must not be given with {_KEY}.client_auth none, which asks nobody"
