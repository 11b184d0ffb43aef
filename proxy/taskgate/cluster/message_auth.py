"""The seals of bus messages: `SealKeys` encrypt or sign them, `ReplayFilter` drops repeated ones (T25).

Everything in the shared store could be read, or come from another program that writes to it. So a
message is encrypted under a key of the deployment, for one receiver or for all. It is accepted only
once. Without a key all hosts are one caller, and a writer to the store can do what a message can.

Gateways of earlier versions sign their messages (an HMAC), and read no encrypted ones. The name of a
replica says whether it reads them (`reads_encrypted`). A message is signed only while a receiver is
alive that does not. Signed messages of others are read.

A sequence number is the time in microseconds, and larger than the sender's last one. From a known
sender only a larger number is new, from an unknown one only a recent number.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest, digest
from logging import getLogger
from typing import Final, NamedTuple, Protocol

from taskgate.clock import Entropy
from taskgate.cluster.encryption import decrypt, encrypt, is_box, joined

TAG_BYTES: Final = 32
WARN_EVERY: Final = 3600.0
"""Seconds between two warnings about messages that cannot be opened."""

NUMBERED: Final = "a11e"
"""The end of the name of a replica that numbers its messages, and signs them. An unnumbered message
in such a name is forged; only gateways of older versions send unnumbered ones."""
ENCRYPTED: Final = "ae5c"
"""The end of the name of a replica that numbers its messages, and reads encrypted ones."""
FRESH: Final = timedelta(seconds=60)
"""The greatest age of the first message from a replica whose last number is not known."""
MOST: Final = 1024
"""The limit of replicas whose last number is remembered."""

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

SharedTime = Callable[[], datetime]
"""Returns the time that all replicas share, that of the store."""

log = getLogger("taskgate.replicas")


class Address(NamedTuple):
    """The sender of a message, its receiver (None for all), and its number."""

    sender: str
    to: str | None
    sequence: int


class Seals(Protocol):
    """The seals of messages, with the current keys."""

    def sign(self, text: bytes) -> bytes:
        """The text with its signature."""
        ...

    def verified(self, signed: bytes) -> bytes | None:
        """The text; None if its signature is not of this deployment."""
        ...

    def encrypt(self, text: bytes, address: Address) -> bytes:
        """The text, encrypted for the receiver; an address must not come again."""
        ...

    def decrypt(self, sealed: bytes) -> tuple[Address, bytes] | None:
        """The address and the text; None if it was not encrypted in this deployment with this address."""
        ...


@dataclass(slots=True)
class SealKeys:
    """The keys of seals: `current` seals, and either opens. None as `current` seals nothing.

    A reload of the configuration sets both. `deployment` is the prefix of keys in the shared store:
    what one deployment has encrypted is of no use in another with the same key.
    """

    current: bytes | None = field(default=None, repr=False)
    previous: bytes | None = field(default=None, repr=False)
    deployment: str = ""

    def sign(self, text: bytes) -> bytes:
        return text if self.current is None else digest(self.current, text, sha256) + text

    def encrypt(self, text: bytes, address: Address) -> bytes:
        assert self.current is not None, "without a key nothing is encrypted"
        head = _head(address)
        # The numbers of a sender are all different, and its name is random.
        nonce = address.sequence.to_bytes(_NONCE, "big")
        return head + encrypt(self.current, text, scope=self._scope(address), subject=head, nonce=nonce)

    def decrypt(self, sealed: bytes) -> tuple[Address, bytes] | None:
        head, box = sealed[:_HEAD], sealed[_HEAD:]
        address = _address(head)
        if address is None:
            return None
        for key in (self.current, self.previous):
            if key is not None:
                text = decrypt(key, box, scope=self._scope(address), subject=head)
                if text is not None:
                    return address, text
        return None

    def encrypt_record(self, text: bytes, record: bytes, nonce: bytes) -> bytes:
        """The text, encrypted for one record; the nonce must not come again in it."""
        assert self.current is not None, "without a key nothing is encrypted"
        return encrypt(self.current, text, scope=self._record(record), subject=b"", nonce=nonce)

    def decrypt_record(self, sealed: bytes, record: bytes) -> bytes | None:
        """The text; None if it was not encrypted for this record of this deployment."""
        for key in (self.current, self.previous):
            if key is not None:
                text = decrypt(key, sealed, scope=self._record(record), subject=b"")
                if text is not None:
                    return text
        return None

    def _scope(self, address: Address) -> bytes:
        return joined(b"message", self.deployment.encode(), address.sender.encode())

    def _record(self, record: bytes) -> bytes:
        return joined(b"record", self.deployment.encode(), record)

    def verified(self, signed: bytes) -> bytes | None:
        if self.current is None:
            return signed
        tag, text = signed[:TAG_BYTES], signed[TAG_BYTES:]
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

    def sign(self, text: bytes) -> bytes:
        return self._inner.sign(text)

    def encrypt(self, text: bytes, address: Address) -> bytes:
        return self._inner.encrypt(text, address)

    def verified(self, signed: bytes) -> bytes | None:
        text = self._inner.verified(signed)
        if text is None:
            self._warn(self._elapsed())
        return text

    def decrypt(self, sealed: bytes) -> tuple[Address, bytes] | None:
        opened = self._inner.decrypt(sealed)
        if opened is None:
            self._warn(self._elapsed())
        return opened

    def _warn(self, now: float) -> None:
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY:
            self._warned_at = now
            log.warning(
                "messages from another gateway cannot be read: "
                "it uses a different auth.context.key_file or store.redis.key_prefix"
            )


# --- the head of an encrypted message ---------------------------------------------------------------------------------

_MESSAGE: Final = b"taskgate:message:1:"
_ALL: Final = "-" * 16
_NAME, _NUMBER, _NONCE = 16, 8, 12
_HEAD: Final = len(_MESSAGE) + 2 * _NAME + _NUMBER


def is_encrypted(sealed: bytes) -> bool:
    """Whether a message is encrypted; else it is signed."""
    return sealed.startswith(_MESSAGE) and is_box(sealed[_HEAD:])


def _head(address: Address) -> bytes:
    names = f"{address.sender:{_NAME}}{address.to or _ALL:{_NAME}}".encode()
    return _MESSAGE + names + address.sequence.to_bytes(_NUMBER, "big")


def _address(head: bytes) -> Address | None:
    names, number = head[len(_MESSAGE) : -_NUMBER], head[-_NUMBER:]
    if len(head) != _HEAD or not names.isascii():
        return None
    sender, to = names[:_NAME].decode(), names[_NAME:].decode()
    return Address(sender, None if to == _ALL else to, int.from_bytes(number, "big"))


# --- sequence numbers -------------------------------------------------------------------------------------------------


def new_replica_name(entropy: Entropy) -> str:
    """A name for a replica that reads encrypted messages: 16 hexadecimal digits, 12 of them random."""
    return entropy.token(6).hex() + ENCRYPTED


def reads_encrypted(names: Iterable[str]) -> bool:
    """Whether the replicas with these names all read encrypted messages and records."""
    return all(name.endswith(ENCRYPTED) for name in names)


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
            return not sender.endswith((NUMBERED, ENCRYPTED))
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
