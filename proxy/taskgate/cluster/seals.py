"""Words between processes, sealed: what lies in the store is believed only where one of us wrote it (T25).

Where there is no key everybody is one caller, and whoever can write to the store can do all that words can.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest, digest
from logging import getLogger
from typing import Final, Protocol

TAG_BYTES: Final = 32

TOLD_EVERY: Final = 3600.0
"""Seconds for which it is not told again that words cannot be opened."""

log = getLogger("taskgate.replicas")


class Seals(Protocol):
    """Seals and opens, with the keys that there are at the time; see WordKeys."""

    def seal(self, text: bytes) -> bytes:
        """See WordKeys."""
        ...

    def open(self, sealed: bytes) -> bytes | None:
        """See WordKeys."""
        ...


@dataclass(frozen=True, slots=True)
class WordKeys:
    """Seals with `current`, and opens what was sealed with either key; None seals nothing."""

    current: bytes | None = field(default=None, repr=False)
    previous: bytes | None = field(default=None, repr=False)

    def seal(self, text: bytes) -> bytes:
        """The text, and who wrote it."""
        return text if self.current is None else digest(self.current, text, sha256) + text

    def open(self, sealed: bytes) -> bytes | None:
        """The text; None where none of us wrote it."""
        if self.current is None:
            return sealed
        tag, text = sealed[:TAG_BYTES], sealed[TAG_BYTES:]
        for key in (self.current, self.previous):
            if key is not None and compare_digest(digest(key, text, sha256), tag):
                return text
        return None


class ReportedSeals:
    """The same seals; the operator is told of words that cannot be opened, now and then. `elapsed` is in seconds."""

    def __init__(self, inner: Seals, elapsed: Callable[[], float]) -> None:
        self._inner = inner
        self._elapsed = elapsed
        self._told: float | None = None

    def seal(self, text: bytes) -> bytes:
        """See WordKeys."""
        return self._inner.seal(text)

    def open(self, sealed: bytes) -> bytes | None:
        """See WordKeys."""
        text = self._inner.open(sealed)
        if text is None:
            self._tell(self._elapsed())
        return text

    def _tell(self, now: float) -> None:
        if self._told is None or now - self._told >= TOLD_EVERY:
            self._told = now
            log.warning("messages from another gateway cannot be decrypted: it uses a different auth.context.key_file")
