"""Certificates for tests: an authority of their own, and what it signs."""

import os
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)


class Authority:
    """Signs certificates for 127.0.0.1; `file` holds its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        own = _unsigned(self._name, self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def pair(
        self,
        passphrase: bytes | None = None,
        *,
        names: tuple[str, ...] = (),
        addresses: tuple[str, ...] = ("127.0.0.1",),
    ) -> tuple[bytes, bytes]:
        """A new certificate for these names and addresses, and its key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _unsigned(_named("gate"), self._name, key.public_key())
        here = [*map(x509.DNSName, names), *(x509.IPAddress(ip_address(each)) for each in addresses)]
        if here:
            signed = signed.add_extension(x509.SubjectAlternativeName(here), critical=False)
        protection = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        return (
            signed.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection),
        )

    def host(self, folder: Path) -> ssl.SSLContext:
        """What a host has that trusts this authority, and has a certificate of it."""
        certificate, key = folder / "host.crt", folder / "host.key"
        for file, content in zip((certificate, key), self.pair(), strict=True):
            file.write_bytes(content)
        context = self.trusting()
        context.load_cert_chain(certificate, key)
        return context

    def trusting(self) -> ssl.SSLContext:
        """What a host has that trusts this authority."""
        return ssl.create_default_context(cafile=self.file)


def put(file: Path, content: bytes) -> None:
    """Replace a file in one step, as those do that renew certificates."""
    beside = file.with_suffix(".new")
    beside.write_bytes(content)
    os.replace(beside, file)


def serial(certificate: bytes) -> int:
    """What tells certificates apart, in PEM or DER."""
    reader = x509.load_pem_x509_certificate if certificate.startswith(b"-") else x509.load_der_x509_certificate
    return reader(certificate).serial_number


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), now - timedelta(days=1), now + timedelta(days=1)
    )
