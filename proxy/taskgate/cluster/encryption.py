"""Encryption of what gateways of one deployment send and store: `encrypt` and `decrypt`, by AES-256-GCM.

A box is `MARK`, a nonce and the ciphertext with its tag. It opens with the same key, scope and
subject alone. The scope derives the key: each process that sends, and each task, has one of its
own. So no key encrypts more than a few million texts. The subject is associated data.
"""

from hashlib import sha256
from hmac import digest
from typing import Any, Final

MARK: Final = b"taskgate:aes256gcm:1:"
"""The begin of each box. A signature, which other texts begin with, has it with no likelihood."""
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
_PURPOSE: Final = b"taskgate: encryption"


def is_box(text: bytes) -> bool:
    """Whether a text is encrypted."""
    return text.startswith(MARK)


def encrypt(key: bytes, text: bytes, *, scope: bytes, subject: bytes, nonce: bytes) -> bytes:
    """Encrypt a text. A nonce must not come again in a scope."""
    sealed: bytes = _cipher(key, scope).encrypt(nonce, text, subject)
    return MARK + nonce + sealed


def decrypt(key: bytes, box: bytes, *, scope: bytes, subject: bytes) -> bytes | None:
    """The text in a box; None if it was made with another key, scope or subject, or changed."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see `_cipher`

    sealed = box[len(MARK) :]
    if not is_box(box) or len(sealed) < NONCE_BYTES + TAG_BYTES:
        return None
    try:
        opened: bytes = _cipher(key, scope).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], subject)
    except InvalidTag:
        return None
    return opened


def joined(*parts: bytes) -> bytes:
    """Parts as one text; other parts have another text."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _cipher(key: bytes, scope: bytes) -> Any:
    # It loads a library of some MiB that a gateway saves which seals nothing.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    # One block of HKDF-Expand (RFC 5869): `key` is itself derived for one purpose.
    return AESGCM(digest(key, joined(_PURPOSE, scope) + b"\x01", sha256))
