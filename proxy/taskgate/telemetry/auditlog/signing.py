"""What lines of the log are signed with, and what tells whether a signature is good.

A key is known by an id, which is a digest of it, so that a line can say which one it was. What must not live here:
files. What holds: nothing of a key is in any text but its id.
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
    """A PEM text is none of an Ed25519 key; the text is for the operator, and quotes nothing of it."""


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
    """Signs with the log's own key: whoever can check a signature can make one."""

    algorithm = HMAC

    def __init__(self, key: bytes) -> None:
        # A key of its own: what is told of tasks and arguments is a digest with the other one.
        self._key = digest(key, _PURPOSE, sha256)
        self.key_id = _id_of(self._key)

    def sign(self, text: bytes) -> str:
        """See Signer."""
        return digest(self._key, text, sha256).hex()

    def is_valid(self, text: bytes, signature: str) -> bool:
        """Whether this key made that signature."""
        return compare_digest(self.sign(text).encode(), signature.encode())


class Ed25519Signer:
    """Signs with a private key, whose public half is enough to check."""

    algorithm = ED25519

    def __init__(self, pem: bytes) -> None:
        """Raises SigningKeyError."""
        self._key = _private(pem)
        self.key_id = _id_of(self._key.public_key().public_bytes_raw())

    def sign(self, text: bytes) -> str:
        """See Signer."""
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
    """Keys that signatures are checked with; there may be none."""

    def __init__(self, *, keys: tuple[bytes, ...] = (), pems: tuple[bytes, ...] = ()) -> None:
        """`keys` are those of key files, `pems` Ed25519 keys, of which the public half will do.

        Raises SigningKeyError.
        """
        judges: list[HmacSigner | _Ed25519Verifier] = [HmacSigner(key) for key in keys]
        judges += [_Ed25519Verifier(_public(pem)) for pem in pems]
        self._judges: Mapping[str, HmacSigner | _Ed25519Verifier] = {each.key_id: each for each in judges}

    def __bool__(self) -> bool:
        return bool(self._judges)

    def has(self, key_id: str) -> bool:
        """Whether signatures of that key can be checked."""
        return key_id in self._judges

    def is_valid(self, key_id: str, text: bytes, signature: str) -> bool:
        """Whether a key that it has made that signature of the text."""
        return self._judges[key_id].is_valid(text, signature)


def signer_of(key: bytes, pem: bytes | None) -> Signer:
    """What signs: the private key where there is one, else the log's own. Raises SigningKeyError."""
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
