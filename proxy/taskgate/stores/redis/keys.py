"""The names of keys in Redis: `KeyNames`.

All begin with the operator's prefix and share one hash tag, so that a script may use any of them. A
cluster only provides failover: all keys of one deployment are in one slot. Parts that hosts or
operators choose are digested, so that a key name reveals nothing and no two names collide (T24).
"""

from hashlib import blake2s


class KeyNames:
    """The names of one deployment."""

    def __init__(self, prefix: str) -> None:
        self._root = f"{prefix}{{taskgate}}:"

    def of(self, kind: str, *parts: str) -> str:
        """The key of a kind, for one set of `parts` of any content."""
        return f"{self._root}{kind}:{digest(*parts)}" if parts else f"{self._root}{kind}"

    @property
    def every(self) -> str:
        """A pattern that matches all keys."""
        return f"{self._root}*"


def digest(*parts: str) -> str:
    """A digest of the parts, of 128 bits in hexadecimal."""
    hashed = blake2s(digest_size=16)
    for part in parts:
        text = part.encode(errors="surrogatepass")
        hashed.update(len(text).to_bytes(8, "big"))
        hashed.update(text)
    return hashed.hexdigest()
