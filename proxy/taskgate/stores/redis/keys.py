"""The names of keys. All begin with the operator's prefix and share one hash tag, so that a script may touch any.

A cluster is used for its failover: the keys of one deployment lie in one slot. Parts of a name that others choose are
digested, so that no name says more than it is to, and none runs into another (T24). What must not live here: what is
kept under a name.
"""

from hashlib import blake2s


class KeyNames:
    """The names of one deployment."""

    def __init__(self, prefix: str) -> None:
        self._root = f"{prefix}{{taskgate}}:"

    def of(self, kind: str, *parts: str) -> str:
        """The name of one thing; `parts` are whose it is, whatever they hold."""
        return f"{self._root}{kind}:{digest(*parts)}" if parts else f"{self._root}{kind}"

    @property
    def every(self) -> str:
        """A pattern that all of them match."""
        return f"{self._root}*"


def digest(*parts: str) -> str:
    """Parts, in few letters: 128 bits that no other parts have."""
    hashed = blake2s(digest_size=16)
    for part in parts:
        text = part.encode(errors="surrogatepass")
        hashed.update(len(text).to_bytes(8, "big"))
        hashed.update(text)
    return hashed.hexdigest()
