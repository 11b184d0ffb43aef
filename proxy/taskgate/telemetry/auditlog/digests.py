"""Keyed digests: what stands in a line for what must not stand there. Pure.

Whoever has the key can tell whether a digest is of something known; nobody else learns anything from it, not even of a
text that could be guessed. What holds: the same text has different digests as a task, as arguments and as a result.
"""

from binascii import b2a_base64
from hashlib import sha256
from typing import Final

LENGTH: Final = 22
"""Letters of a digest: 132 bits."""


class Digests:
    """Makes them with one key. What HMAC makes of the key alone is made once: for a short text that is most of it."""

    def __init__(self, key: bytes) -> None:
        block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
        inner = block.translate(_INNER)
        self._inner = {kind: sha256(inner + f"{kind}\n".encode()) for kind in _KINDS}
        self._outer = sha256(block.translate(_OUTER))

    def task(self, id: str) -> str:
        """What stands for the id of a task, which is nearly as good as a token."""
        return self._of("t", id)

    def arguments(self, text: str) -> str:
        """Of the arguments of a call, as the host wrote them."""
        return self._of("a", text)

    def result(self, text: str) -> str:
        """Of a result, as it is stored."""
        return self._of("r", text)

    def _of(self, kind: str, text: str) -> str:
        inner, outer = self._inner[kind].copy(), self._outer.copy()
        inner.update(text.encode("utf-8", "surrogatepass"))
        outer.update(inner.digest())
        return f"{kind}_{b2a_base64(outer.digest(), newline=False).translate(_URL_SAFE)[:LENGTH].decode('ascii')}"


def task_ref(key: bytes, id: str) -> str:
    """One reference to a task."""
    return Digests(key).task(id)


_KINDS: Final = "tar"
_BLOCK: Final = 64
"""Bytes that SHA-256 takes at a time (RFC 2104 calls it B)."""
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
