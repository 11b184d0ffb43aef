"""A certificate authority for the length of a test: certificates with their keys, as PEM files in a folder."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from helpers.secrets import noted


class Pair(NamedTuple):
    """A certificate and its key."""

    cert_file: Path
    key_file: Path


class Authority:
    """Signs with a key of its own; `ca_file` is its certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        is_one = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(self._name, self._key).add_extension(is_one, critical=True)
        self.ca_file = folder / f"{name}.pem"
        self.ca_file.write_bytes(self._signed(builder))

    def issue(self, name: str, *, password: bytes | None = None) -> Pair:
        """A certificate for a host by that name, and its key, under a password if one is given."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            general: x509.GeneralName = x509.IPAddress(ip_address(name))
        except ValueError:
            general = x509.DNSName(name)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([general])
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.cert_file.write_bytes(self._signed(self._builder(subject, key).add_extension(names, critical=False)))
        coding = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, coding)
        for line in pem.decode().splitlines()[1:-1]:
            noted(line)
        pair.key_file.write_bytes(pem)
        return pair

    def server_context(self, name: str, *, client_auth: bool = False) -> ssl.SSLContext:
        """TLS of a server by that name; `client_auth` asks for a certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name))
        if client_auth:
            context.load_verify_locations(self.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
