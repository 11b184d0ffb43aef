"""Keyed digests: what stands in a line for what must not stand there. Pure.

Whoever has the key can tell whether a digest is of something known; nobody else learns anything from it, not even of a
text that could be guessed. What holds: the same text has different digests as a task, as arguments and as a result.
"""

from binascii import b2a_base64
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any, Final

DIGEST_LENGTH: Final = 22
"""Letters of a digest: 132 bits."""


class Digests:
    """Makes them with one key. What HMAC makes of the key alone is made once: for a short text that is most of it."""

    def __init__(self, key: bytes) -> None:
        block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
        inner = block.translate(_INNER)
        of = {kind: partial(self._of, kind + b"_", sha256(inner + kind + b"\n")) for kind in (b"t", b"a", b"r")}
        self._outer = sha256(block.translate(_OUTER))
        self._task, self._result = of[b"t"], of[b"r"]
        self.arguments: Callable[[bytes], bytes] = of[b"a"]
        """Of the arguments of a call, as the host wrote them, and `encoded`."""

    def task(self, id: str) -> str:
        """What stands for the id of a task, which is nearly as good as a token."""
        return self._task(encoded(id)).decode()

    def result(self, text: str) -> str:
        """Of a result, as it is stored."""
        return self._result(encoded(text)).decode()

    def _of(self, prefix: bytes, kind: Any, text: bytes) -> bytes:
        inner, outer = kind.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return prefix + b2a_base64(outer.digest(), newline=False).translate(_URL_SAFE)[:DIGEST_LENGTH]


def encoded(text: str) -> bytes:
    """A text of a peer as it is hashed, whatever is in it."""
    return text.encode("utf-8", "surrogatepass")


def task_ref(key: bytes, id: str) -> str:
    """One reference to a task."""
    return Digests(key).task(id)


_BLOCK: Final = 64
"""Bytes that SHA-256 takes at a time (RFC 2104 calls it B)."""
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
