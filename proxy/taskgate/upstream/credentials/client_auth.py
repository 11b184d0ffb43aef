"""Authentication of the gateway at a token endpoint: `ClientAuthenticator`.

There is one way for each endpoint (`ClientAuth`), and a request has no other. It is the secret by
HTTP Basic, the secret in the form, or an assertion in the form. The gateway signs the assertion with
its key (RFC 7523), or a platform writes it into a file. Both files are read for each request, on a
thread, so that a renewed one is used at once. `expect_client_file` is for `taskgate check`.
"""

import asyncio
import os
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus

from aiohttp import hdrs

from taskgate.clock import Clock, Entropy
from taskgate.system.secret_files import ADVICE, read_secret
from taskgate.upstream.settings import AssertionKey, ClientAuth, GrantSettings

LIFETIME: Final = 60
"""Seconds for which an assertion is valid. It is used at once, and endpoints refuse long lives."""
MAX_FILE: Final = 64 * 1024

_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_NONCE: Final = 16
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"


class ClientFileRefused(Exception):
    """A file by which the gateway authenticates is unusable. The text is for the operator: the key
    under `credentials` that names the file and what is wrong, no path, no content."""


class ClientProof(NamedTuple):
    """Headers and form fields of one token request by which the gateway authenticates."""

    headers: dict[str, str]
    fields: dict[str, str]


class ClientAuthenticator:
    """Makes the `ClientProof` of each request to the endpoint of these settings."""

    def __init__(self, settings: GrantSettings, *, clock: Clock, entropy: Entropy) -> None:
        self._settings = settings
        self._clock = clock
        self._entropy = entropy

    async def proof(self) -> ClientProof:
        """Return a new proof. Raises ClientFileRefused."""
        settings = self._settings
        if settings.client_auth is ClientAuth.BASIC:
            return ClientProof({hdrs.AUTHORIZATION: basic(settings.client_id, settings.client_secret or "")}, {})
        fields = {"client_id": settings.client_id}
        if settings.client_auth is ClientAuth.POST:
            return ClientProof({}, fields | {"client_secret": settings.client_secret or ""})
        if settings.client_auth is ClientAuth.PRIVATE_KEY_JWT:
            assert settings.assertion_key is not None, "a signed assertion needs a key"
            assertion = await asyncio.to_thread(_signed, settings.assertion_key, self._claims())
        else:
            assert settings.assertion_file is not None, "a federated client needs a file"
            assertion = await asyncio.to_thread(_token_in, settings.assertion_file)
        return ClientProof({}, fields | {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion})

    def _claims(self) -> dict[str, Any]:
        settings, now = self._settings, int(self._clock.wall_seconds())
        assert settings.assertion_key is not None, "a signed assertion needs a key"
        return {
            "iss": settings.client_id,
            "sub": settings.client_id,
            "aud": settings.assertion_key.audience or settings.token_url,
            "jti": urlsafe_b64encode(self._entropy.token(_NONCE)).decode().rstrip("="),
            "iat": now,
            "exp": now + LIFETIME,
        }


def basic(client_id: str, client_secret: str) -> str:
    """Return the value of `Authorization` for HTTP Basic, in the form of RFC 6749, 2.3.1."""
    return "Basic " + b64encode(f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()).decode()


def expect_client_file(settings: GrantSettings) -> None:
    """Check that the file by which the gateway authenticates can be used, if there is one.

    Raises ClientFileRefused.
    """
    if settings.assertion_key is not None:
        _signed(settings.assertion_key, {})
    if settings.assertion_file is not None:
        _token_in(settings.assertion_file)


def _token_in(path: Path) -> str:
    text = _content("credentials.assertion_file", path)
    try:
        token = text.decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise ClientFileRefused("credentials.assertion_file: must hold one token")
    return token


def _signed(key: AssertionKey, claims: dict[str, Any]) -> str:
    """Return a signed JWT. A certificate in the file of the key adds its thumbprint (`x5t#S256`)."""
    # A gateway without authentication and without such a client does not load them.
    import jwt  # noqa: PLC0415
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key  # noqa: PLC0415
    from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415

    pem = _content("credentials.key_file", key.file)
    headers = {} if key.id is None else {"kid": key.id}
    try:
        private = load_pem_private_key(pem, None)
        if _CERTIFICATE in pem:
            certificate = load_pem_x509_certificate(pem[pem.index(_CERTIFICATE) :])
            digest = sha256(certificate.public_bytes(Encoding.DER)).digest()
            headers["x5t#S256"] = urlsafe_b64encode(digest).decode().rstrip("=")
    except (ValueError, TypeError, UnsupportedAlgorithm):
        text = "credentials.key_file: must hold a private key in PEM form, without a password"
        raise ClientFileRefused(text) from None
    try:
        return jwt.encode(claims, private, key.algorithm or _algorithm_of(private), headers)  # type: ignore[arg-type]
    except (jwt.PyJWTError, TypeError, ValueError, NotImplementedError):
        text = "credentials.algorithm: is not one of the key in credentials.key_file"
        raise ClientFileRefused(text) from None


def _algorithm_of(private: Any) -> str:
    """Return the usual algorithm of a private key."""
    curve = getattr(getattr(private, "curve", None), "name", "")
    if curve:
        return _OF_CURVES.get(curve, "ES256")
    return "RS256" if hasattr(private, "private_numbers") else "EdDSA"


_OF_CURVES: Final = {"secp384r1": "ES384", "secp521r1": "ES512"}


def _content(key: str, path: Path) -> bytes:
    try:
        content, exposed = read_secret(path, MAX_FILE, key)
    except OSError as error:
        raise ClientFileRefused(f"{key}: cannot be read: {os.strerror(error.errno or 0)}") from None
    except ValueError:
        raise ClientFileRefused(f"{key}: cannot be read: the file name is invalid") from None
    if exposed:
        raise ClientFileRefused(f"{key}: {ADVICE}")
    if len(content) > MAX_FILE:
        raise ClientFileRefused(f"{key}: is larger than 64KiB")
    return content
