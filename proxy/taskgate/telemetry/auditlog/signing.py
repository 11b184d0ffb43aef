"""Signatures of audit lines: a `Signer` makes them, a `KeyRing` checks them.

A line names its key by an id, a digest of the key. No text or message has anything else of a key.
"""

from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

HMAC: Final = "hmac-sha256"
ED25519: Final = "ed25519"
_PURPOSE: Final = b"taskgate: signed lines of the audit log"
_NAMING: Final = b"taskgate: id of a key of the audit log"
_ID_BYTES: Final = 8


class SigningKeyError(Exception):
    """A PEM text holds no usable Ed25519 key; the message quotes nothing of it."""


class Signer(Protocol):
    """Signs lines."""

    @property
    def algorithm(self) -> str:
        """`hmac-sha256` or `ed25519`."""
        ...

    @property
    def key_id(self) -> str:
        """16 hexadecimal digits."""
        ...

    def sign(self, text: bytes) -> str:
        """The signature, in hexadecimal digits."""
        ...


class HmacSigner:
    """Signs with the key of the log (HMAC): each holder of the key can sign and check."""

    algorithm = HMAC

    def __init__(self, key: bytes) -> None:
        # A derived key: the given one is the key of digests of tasks and arguments.
        self._key = digest(key, _PURPOSE, sha256)
        self.key_id = _id_of(self._key)

    def sign(self, text: bytes) -> str:
        return digest(self._key, text, sha256).hex()

    def is_valid(self, text: bytes, signature: str) -> bool:
        """Whether this key made the signature."""
        return compare_digest(self.sign(text).encode(), signature.encode())


class Ed25519Signer:
    """Signs with a private Ed25519 key; its public half is enough to check."""

    algorithm = ED25519

    def __init__(self, pem: bytes) -> None:
        """Raises SigningKeyError."""
        self._key = _private(pem)
        self.key_id = _id_of(self._key.public_key().public_bytes_raw())

    def sign(self, text: bytes) -> str:
        return self._key.sign(text).hex()


class _Ed25519Verifier:
    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.key_id = _id_of(key.public_bytes_raw())

    def is_valid(self, text: bytes, signature: str) -> bool:
        try:
            self._key.verify(bytes.fromhex(signature), text)
        except (InvalidSignature, ValueError):
            return False
        return True


class KeyRing:
    """The keys to check signatures with; may be empty."""

    def __init__(self, *, keys: tuple[bytes, ...] = (), pems: tuple[bytes, ...] = ()) -> None:
        """`keys` are from key files.

        `pems` are Ed25519 keys, private or public. Raises SigningKeyError.
        """
        verifiers: list[HmacSigner | _Ed25519Verifier] = [HmacSigner(key) for key in keys]
        verifiers += [_Ed25519Verifier(_public(pem)) for pem in pems]
        self._verifiers: Mapping[str, HmacSigner | _Ed25519Verifier] = {each.key_id: each for each in verifiers}

    def __bool__(self) -> bool:
        return bool(self._verifiers)

    def has(self, key_id: str) -> bool:
        """Whether the ring has the key."""
        return key_id in self._verifiers

    def is_valid(self, key_id: str, text: bytes, signature: str) -> bool:
        """Whether a key of the ring signed the text; the ring must have the key."""
        return self._verifiers[key_id].is_valid(text, signature)


def signer_of(key: bytes, pem: bytes | None) -> Signer:
    """A signer with the Ed25519 key, or without one with the key of the log.

    Raises SigningKeyError.
    """
    return HmacSigner(key) if pem is None else Ed25519Signer(pem)


def _private(pem: bytes) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise SigningKeyError("must hold a private key in PEM form and without a passphrase") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyError("must hold an Ed25519 key")
    return key


def _public(pem: bytes) -> Ed25519PublicKey:
    if b"PRIVATE KEY" in pem:
        return _private(pem).public_key()
    try:
        key = load_pem_public_key(pem)
    except ValueError:
        raise SigningKeyError("must hold a key in PEM form") from None
    if not isinstance(key, Ed25519PublicKey):
        raise SigningKeyError("must hold an Ed25519 key")
    return key


def _id_of(material: bytes) -> str:
    return digest(_NAMING, material, sha256)[:_ID_BYTES].hex()
