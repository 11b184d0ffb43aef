"""Certificates for tests: an authority of their own, and what it signs."""

import os
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from helpers.secrets import noted


class Pair(NamedTuple):
    """A certificate and its key."""

    cert_file: Path
    key_file: Path


class Authority:
    """Signs certificates; `file` holds its own.

    They have all that strict verification asks for, which Python has by default from 3.13 on.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        own = self._unsigned(self._name, self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        own = own.add_extension(_SIGNS, critical=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._signed(own))

    def pair(
        self,
        passphrase: bytes | None = None,
        *,
        subject: str = "gate",
        names: tuple[str, ...] = (),
        addresses: tuple[str, ...] = ("127.0.0.1",),
    ) -> tuple[bytes, bytes]:
        """A new certificate for these names and addresses, and its key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        unsigned = self._unsigned(_named(subject), key.public_key())
        here = [*map(x509.DNSName, names), *(x509.IPAddress(ip_address(each)) for each in addresses)]
        if here:
            unsigned = unsigned.add_extension(x509.SubjectAlternativeName(here), critical=False)
        protection = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        return self._signed(unsigned), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)

    def issue(self, name: str, *, password: bytes | None = None) -> Pair:
        """Files with a certificate for the host of that name or address, and with its key, which no log may hold."""
        try:
            ip_address(name)
        except ValueError:
            certificate, key = self.pair(password, subject=name, names=(name,), addresses=())
        else:
            certificate, key = self.pair(password, subject=name, addresses=(name,))
        for line in key.decode().splitlines()[1:-1]:
            noted(line)
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.cert_file.write_bytes(certificate)
        pair.key_file.write_bytes(key)
        return pair

    def server_context(self, name: str, *, client_auth: bool = False) -> ssl.SSLContext:
        """TLS of a server by that name; `client_auth` asks for a certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name))
        if client_auth:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

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

    def _unsigned(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        begun = x509.CertificateBuilder(
            self._name, subject, key, x509.random_serial_number(), now - timedelta(days=1), now + timedelta(days=1)
        )
        of_subject = x509.SubjectKeyIdentifier.from_public_key(key)
        of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return begun.add_extension(of_subject, critical=False).add_extension(of_issuer, critical=False)

    def _signed(self, unsigned: x509.CertificateBuilder) -> bytes:
        return unsigned.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


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


_SIGNS: Final = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
