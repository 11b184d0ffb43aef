"""The authenticity of bus messages: `SealKeys` seal them, `ReplayFilter` drops repeated ones (T25).

Everything in the shared store could come from another program that writes to it. So a message is
accepted only with a seal, an HMAC under a key of the deployment, and only once. Without a key all
hosts are one caller, and a writer to the store can do what a message can.

A sequence number is the time in microseconds, and larger than the sender's last one. From a known
sender only a larger number is new, from an unknown one only a recent number.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest, digest
from logging import getLogger
from typing import Final, Protocol

from taskgate.clock import Entropy

TAG_BYTES: Final = 32
WARN_EVERY: Final = 3600.0
"""Seconds between two warnings about messages that cannot be opened."""

NUMBERED: Final = "a11e"
"""The end of the name of a replica that numbers its messages. An unnumbered message in such a name is
forged; only gateways of older versions send unnumbered ones."""
FRESH: Final = timedelta(seconds=60)
"""The greatest age of the first message from a replica whose last number is not known."""
MOST: Final = 1024
"""The limit of replicas whose last number is remembered."""

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

SharedTime = Callable[[], datetime]
"""Returns the time that all replicas share, that of the store."""

log = getLogger("taskgate.replicas")


class Seals(Protocol):
    """The seals of messages, with the current keys."""

    def seal(self, text: bytes) -> bytes:
        """The text with its seal."""
        ...

    def open(self, sealed: bytes) -> bytes | None:
        """The text; None if its seal is not of this deployment."""
        ...


@dataclass(slots=True)
class SealKeys:
    """The keys of seals: `current` seals, and either opens. None as `current` seals nothing.

    A reload of the configuration sets both.
    """

    current: bytes | None = field(default=None, repr=False)
    previous: bytes | None = field(default=None, repr=False)

    def seal(self, text: bytes) -> bytes:
        return text if self.current is None else digest(self.current, text, sha256) + text

    def open(self, sealed: bytes) -> bytes | None:
        if self.current is None:
            return sealed
        tag, text = sealed[:TAG_BYTES], sealed[TAG_BYTES:]
        for key in (self.current, self.previous):
            if key is not None and compare_digest(digest(key, text, sha256), tag):
                return text
        return None


class LoggedSeals:
    """Seals that log, once per WARN_EVERY, that a message cannot be opened. `elapsed` is in
    seconds.
    """

    def __init__(self, inner: Seals, elapsed: Callable[[], float]) -> None:
        self._inner = inner
        self._elapsed = elapsed
        self._warned_at: float | None = None

    def seal(self, text: bytes) -> bytes:
        return self._inner.seal(text)

    def open(self, sealed: bytes) -> bytes | None:
        text = self._inner.open(sealed)
        if text is None:
            self._warn(self._elapsed())
        return text

    def _warn(self, now: float) -> None:
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY:
            self._warned_at = now
            log.warning("messages from another gateway cannot be decrypted: it uses a different auth.context.key_file")


# --- sequence numbers -------------------------------------------------------------------------------------------------


def new_replica_name(entropy: Entropy) -> str:
    """A name for a replica that numbers its messages: 16 hexadecimal digits, 12 of them random."""
    return entropy.token(6).hex() + NUMBERED


class SequenceCounter:
    """The sequence numbers of the messages that one replica sends."""

    def __init__(self, now: SharedTime) -> None:
        self._now = now
        self._last = 0

    def next(self) -> int:
        """A number that is larger than all before."""
        self._last = max(self._last + 1, _number(self._now()))
        return self._last


class ReplayFilter:
    """The last sequence numbers that one replica received from the others."""

    def __init__(self, now: SharedTime) -> None:
        self._now = now
        self._last: OrderedDict[str, int] = OrderedDict()

    def accept(self, sender: str, number: int | None) -> bool:
        """Whether a message is new; it counts as received from now on.

        An unnumbered message is accepted from a gateway of an older version, which numbers none.
        """
        if number is None:
            return not sender.endswith(NUMBERED)
        last = self._last.get(sender)
        if last is None:
            last = _number(self._now() - FRESH)
        if number <= last:
            return False
        self._last[sender] = number
        self._last.move_to_end(sender)
        if len(self._last) > MOST:
            self._last.popitem(last=False)
        return True


def _number(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
