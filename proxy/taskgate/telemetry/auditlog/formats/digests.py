"""Keyed digests (HMAC-SHA-256) of task ids, arguments and results: `Digests`. Pure.

A line has the digest in place of the text. With the key, one can check whether a digest belongs to a
known text. Without it, a digest reveals nothing, even of a text that can be guessed. The same text
has different digests as a task, as arguments and as a result.
"""

from binascii import b2a_base64
from collections.abc import Callable
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, Final

MAX_TASKS: Final = 4096
"""References to tasks that are remembered."""
DIGEST_LENGTH: Final = 22
"""Characters of a digest: 132 bits."""


class Digests:
    """The digests of one key.

    The part of HMAC that depends on the key alone, most of the work, is done once.
    """

    def __init__(self, key: bytes) -> None:
        block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
        inner = block.translate(_INNER)
        of = {kind: partial(self._of, kind + b"_", sha256(inner + kind + b"\n")) for kind in (b"t", b"a", b"r")}
        self._outer = sha256(block.translate(_OUTER))
        self._task, self._result = of[b"t"], of[b"r"]
        self.task: Callable[[str], str] = lru_cache(maxsize=MAX_TASKS)(self._of_task)
        """The reference to a task, in place of its id, which is nearly as sensitive as a token.

        The last ones are remembered: a task has several lines.
        """
        self.arguments: Callable[[bytes | memoryview], bytes] = of[b"a"]
        """The digest of the arguments of a call, as the host wrote them; takes `encoded` text."""

    def _of_task(self, id: str) -> str:
        return self._task(encoded(id)).decode()

    def result(self, text: str) -> str:
        """The digest of a result, as it is stored."""
        return self._result(encoded(text)).decode()

    def _of(self, prefix: bytes, kind: Any, text: bytes | memoryview) -> bytes:
        """The digest of a text; `kind` is the inner hash, which has read the key and the kind."""
        inner, outer = kind.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return prefix + b2a_base64(outer.digest(), newline=False).translate(_URL_SAFE)[:DIGEST_LENGTH]


def encoded(text: str) -> bytes:
    """The bytes of a text of a peer for hashing; never raises."""
    return text.encode("utf-8", "surrogatepass")


def task_ref(key: bytes, id: str) -> str:
    """The reference to a task by its id."""
    return digests_of(key).task(id)


@lru_cache(maxsize=8)
def digests_of(key: bytes) -> Digests:
    """The digests of a key. Lines and stores share them, so that a reference is made once."""
    return Digests(key)


_BLOCK: Final = 64
"""The block size of SHA-256 in bytes (B in RFC 2104)."""
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
