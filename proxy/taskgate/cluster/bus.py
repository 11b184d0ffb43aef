"""The bus between the replicas: `ClusterBus` sends messages in order and calls subscribed handlers.

A message goes through the shared store, sealed and numbered, to one replica or to all others. Each
kind of message has one handler, which `subscribe` sets before `open`. A message is a hint: it may be
lost with the store or with the receiver. A sender that needs an effect waits for it with a timeout.
A message too large for the bus is stored as a *parcel*, which a small message names. `messages` has
the messages.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Collection
from datetime import timedelta
from logging import getLogger
from typing import Any, Final

from taskgate.clock import Entropy
from taskgate.cluster.message_auth import (
    Address,
    ReplayFilter,
    Seals,
    SequenceCounter,
    SharedTime,
    is_encrypted,
    reads_encrypted,
)
from taskgate.cluster.messages import (
    AnyMessage,
    Envelope,
    Message,
    Parcel,
    add_sequence,
    decode,
    encode,
    kind_of,
    message_in,
)
from taskgate.errors import StoreUnavailable
from taskgate.stores.shared import MessageLog

LARGEST: Final = 16 * 1024
"""Bytes of a message to all replicas; a larger message to one replica travels as a parcel."""

NAME_BYTES: Final = 16
PARCEL: Final = timedelta(seconds=60)
"""How long a parcel is stored for its receiver."""

WAITING: Final = 4_096
WAITING_BYTES: Final = 32 * 1024 * 1024
"""Messages that may wait to be sent while the store is slow or unavailable."""

READ_WITHIN: Final = timedelta(seconds=30)
RETRY: Final = 0.5
"""Seconds until the next attempt after the store failed."""

CLOSE_TIMEOUT: Final = 2.0
"""Seconds at shutdown to send what still waits."""

_REPLICA_NAME: Final = re.compile(r"[0-9a-f]{16}")

log = getLogger("taskgate.replicas")


class ClusterBus:
    """The bus of the replica `holder`. `peers` returns the names of the others, as far as is known.

    `now` is the time that all replicas share. `_waiting` are the messages to be sent, each with its
    receiver; None means all. `_is_losing` is whether messages are being dropped, which was logged.
    """

    def __init__(
        self,
        *,
        log: MessageLog,
        seals: Seals,
        holder: str,
        entropy: Entropy,
        now: SharedTime,
        peers: Callable[[], Collection[str]],
    ) -> None:
        self.holder = holder
        self._log = log
        self._seals = seals
        self._entropy = entropy
        self._peers = peers
        self._sequence = SequenceCounter(now)
        self._replays = ReplayFilter(now)
        self._has_warned_of_replay = False
        self._kinds: dict[str, type[Message]] = {}
        self._handlers: dict[str, Callable[[Any, str], None]] = {}
        self._waiting: deque[tuple[str | None, bytes]] = deque()
        self._bytes = 0
        self._has_more = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._loops: list[asyncio.Task[None]] = []
        self._is_losing = False

    def subscribe(self, kind: type[AnyMessage], handler: Callable[[AnyMessage, str], None]) -> None:
        """Call `handler` with each message of a kind and its sender. It must not wait; one handler
        per kind.
        """
        self._kinds[kind_of(kind)] = kind
        self._handlers[kind_of(kind)] = handler

    @property
    def has_peers(self) -> bool:
        """Whether a message to all may reach another replica."""
        return bool(self._peers())

    def send(self, message: Message, *, to: str | None = None) -> None:
        """Send a message to one replica, or to all others if there are any: in the background,
        without an error.
        """
        if to == self.holder or (to is None and not self._peers()):
            return
        text = encode(message, sender=self.holder, to=to)
        is_too_large = to is None and len(text) > LARGEST
        if is_too_large or len(self._waiting) >= WAITING or self._bytes + len(text) > WAITING_BYTES:
            self._lose("messages to other replicas are dropped: too many or too large")
            return
        self._waiting.append((to, text))
        self._bytes += len(text)
        self._is_empty.clear()
        self._has_more.set()

    def open(self) -> None:
        """Start to send and to receive."""
        loop = asyncio.get_running_loop()
        self._loops += [loop.create_task(self._send_all()), loop.create_task(self._receive_all())]

    async def close(self) -> None:
        """Send what waits, within a short time, and stop."""
        if self._loops:
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._is_empty.wait()
            except TimeoutError:
                pass
        for each in self._loops:
            each.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops.clear()

    # --- sending ------------------------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        while True:
            while self._waiting:
                to, text = self._waiting[0]
                try:
                    await self._send_text(to, text)
                    self._is_losing = False
                except StoreUnavailable:
                    # It is dropped, because its subject changes meanwhile.
                    self._lose("messages to other replicas are dropped: the store does not accept them")
                except Exception:  # this loop must not end
                    log.exception("A message to other replicas could not be sent")
                    await asyncio.sleep(RETRY)
                self._waiting.popleft()
                self._bytes -= len(text)
            self._is_empty.set()
            self._has_more.clear()
            await self._has_more.wait()

    async def _send_text(self, to: str | None, text: bytes) -> None:
        if len(text) <= LARGEST:
            await self._log.send(self._seal(text, to))
            return
        name = self._entropy.token(NAME_BYTES).hex()
        # Sealed in the order in which the receiver opens them: sequence numbers must grow.
        notice, parcel = self._seal(encode(Parcel(name), sender=self.holder, to=to), to), self._seal(text, to)
        await self._log.leave(name, parcel, keep=PARCEL)
        await self._log.send(notice)

    def _seal(self, text: bytes, to: str | None) -> bytes:
        """Encrypt a message, or sign it for receivers of an earlier version."""
        sequence = self._sequence.next()
        if reads_encrypted(self._peers() if to is None else (to,)):
            return self._seals.encrypt(text, Address(self.holder, to, sequence))
        return self._seals.sign(add_sequence(text, sequence))

    def _lose(self, reason: str) -> None:
        if not self._is_losing:
            # One line until a message is sent again.
            self._is_losing = True
            log.warning(reason)

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def _receive_all(self) -> None:
        while True:
            try:
                for sealed in await self._log.receive(timeout=READ_WITHIN):
                    await self._handle_safely(sealed)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)
            except Exception:  # this loop must not end
                log.exception("Messages from other replicas could not be received")
                await asyncio.sleep(RETRY)

    async def _handle_safely(self, sealed: bytes) -> None:
        try:
            await self._handle(sealed)
        except StoreUnavailable:
            # A parcel that cannot be fetched is a lost message.
            pass
        except Exception:
            log.exception("A message from another replica could not be handled")

    async def _handle(self, sealed: bytes) -> None:
        envelope = self._opened(sealed)
        if envelope is not None and envelope.kind == Parcel.__name__:
            envelope = await self._fetch(envelope)
        if envelope is None:
            return
        message = message_in(envelope, self._kinds)
        if message is not None:
            self._handlers[envelope.kind](message, envelope.sender)

    async def _fetch(self, envelope: Envelope) -> Envelope | None:
        match envelope.body:
            case [str(name)]:
                parcel = await self._log.fetch(name)
                return None if parcel is None else self._opened(parcel)
        return None

    def _opened(self, sealed: bytes) -> Envelope | None:
        """The envelope of a message for this replica; None for any other."""
        envelope = self._decrypted(sealed) if is_encrypted(sealed) else self._verified(sealed)
        if envelope is None:
            return None
        if not self._replays.accept(envelope.sender, envelope.sequence):
            self._warn_of_replay()
            return None
        return envelope if envelope.to in (None, self.holder) else None

    def _verified(self, signed: bytes) -> Envelope | None:
        text = self._seals.verified(signed)
        return None if text is None else decode(text)

    def _decrypted(self, sealed: bytes) -> Envelope | None:
        opened = self._seals.decrypt(sealed)
        if opened is None:
            return None
        (sender, to, sequence), text = opened
        envelope = decode(text)
        if envelope is None or (envelope.sender, envelope.to) != (sender, to):
            return None
        return envelope._replace(sequence=sequence)

    def _warn_of_replay(self) -> None:
        if not self._has_warned_of_replay:
            self._has_warned_of_replay = True
            log.warning("replayed messages are ignored: another program writes to the shared store")


def is_replica_name(name: str) -> bool:
    """Whether a text can be the name of a replica: hosts see such names in ids, and send them back."""
    return _REPLICA_NAME.fullmatch(name) is not None
