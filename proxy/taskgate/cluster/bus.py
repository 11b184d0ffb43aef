"""The words between this process and the others: sent in order, read by one loop, given to whoever takes them.

Words are hints: one may be lost, with the store or with the process that it was for, and whoever says one that matters
bounds the wait for what comes of it. What must not live here: what any word means (`messages`).
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from logging import getLogger
from typing import Any, Final

from taskgate.clock import Entropy
from taskgate.cluster.messages import Envelope, Parcel, Some, Word, numbered, read, word_of, write
from taskgate.cluster.numbers import Now, Numbering, Replays
from taskgate.cluster.seals import Seals
from taskgate.errors import StoreUnavailable
from taskgate.stores.shared import MessageLog

LARGEST: Final = 16 * 1024
"""Bytes of a word that everybody gets; a larger one for one process alone travels as a parcel."""

NAME_BYTES: Final = 16
PARCEL: Final = timedelta(seconds=60)
"""How long a parcel waits for the one it is for."""

WAITING: Final = 4_096
WAITING_BYTES: Final = 32 * 1024 * 1024
"""What waits to be sent, at the most: the store is slower than what happens here, or away."""

READ_WITHIN: Final = timedelta(seconds=30)
RETRY: Final = 0.5
"""Seconds until a store is asked again that did not answer."""

FAREWELL: Final = 2.0
"""Seconds that what still waits has at the end."""

_HOLDER: Final = re.compile(r"[0-9a-f]{16}")

log = getLogger("taskgate.replicas")


class ClusterBus:
    """One process among others. `holder` names it; `company` tells whether there are others, as far as is known.

    `now` is the time that all of them share.
    """

    def __init__(
        self,
        *,
        post: MessageLog,
        seals: Seals,
        holder: str,
        entropy: Entropy,
        now: Now,
        company: Callable[[], bool] = lambda: True,
    ) -> None:
        self.holder = holder
        self._post = post
        self._seals = seals
        self._entropy = entropy
        self._company = company
        self._numbering = Numbering(now)
        self._replays = Replays(now)
        self._has_told_replay = False
        self._kinds: dict[str, type[Word]] = {}
        self._recorders: dict[str, Callable[[Any, str], None]] = {}
        self._waiting: deque[tuple[str | None, bytes]] = deque()
        self._bytes = 0
        self._has_more = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._loops: list[asyncio.Task[None]] = []
        self._is_away = False

    def hear(self, kind: type[Some], take: Callable[[Some, str], None]) -> None:
        """Have `take` called with every word of that kind, and with who said it. It must not wait; one taker a kind."""
        self._kinds[kind.__name__] = kind
        self._recorders[kind.__name__] = take

    @property
    def has_company(self) -> bool:
        """Whether somebody may hear what is said to everybody."""
        return self._company()

    def say(self, word: Word, *, to: str | None = None) -> None:
        """Say something to one process, or to all others if there are any; in the background, and never raises."""
        if to == self.holder or (to is None and not self._company()):
            return
        text = write(word, sender=self.holder, to=to)
        is_too_large = to is None and len(text) > LARGEST
        if is_too_large or len(self._waiting) >= WAITING or self._bytes + len(text) > WAITING_BYTES:
            self._lose("messages to other replicas are dropped: too many or too large")
            return
        self._waiting.append((to, text))
        self._bytes += len(text)
        self._is_empty.clear()
        self._has_more.set()

    def open(self) -> None:
        """Begin to send and to hear."""
        loop = asyncio.get_running_loop()
        self._loops += [loop.create_task(self._send_all()), loop.create_task(self._hear_all())]

    async def close(self) -> None:
        """Send what waits, if that is soon, and hear nothing any more."""
        if self._loops:
            try:
                async with asyncio.timeout(FAREWELL):
                    await self._is_empty.wait()
            except TimeoutError:
                pass
        for each in self._loops:
            each.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops.clear()

    # --- sending ----------------------------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        while True:
            while self._waiting:
                to, text = self._waiting[0]
                try:
                    await self._send(to, text)
                    self._is_away = False
                except StoreUnavailable:
                    # It is not kept for later: what it is about goes on meanwhile.
                    self._lose("messages to other replicas are dropped: the store does not accept them")
                except Exception:  # nobody else would send
                    log.exception("A message to other replicas could not be sent")
                    await asyncio.sleep(RETRY)
                self._waiting.popleft()
                self._bytes -= len(text)
            self._is_empty.set()
            self._has_more.clear()
            await self._has_more.wait()

    async def _send(self, to: str | None, text: bytes) -> None:
        if len(text) <= LARGEST:
            await self._post.send(self._sealed(text))
            return
        name = self._entropy.token(NAME_BYTES).hex()
        # In the order in which they are heard.
        word, parcel = self._sealed(write(Parcel(name), sender=self.holder, to=to)), self._sealed(text)
        await self._post.leave(name, parcel, keep=PARCEL)
        await self._post.send(word)

    def _sealed(self, text: bytes) -> bytes:
        return self._seals.seal(numbered(text, self._numbering.next()))

    def _lose(self, what: str) -> None:
        if not self._is_away:
            # Once until one is sent again.
            self._is_away = True
            log.warning(what)

    # --- hearing ----------------------------------------------------------------------------------------------------

    async def _hear_all(self) -> None:
        while True:
            try:
                for sealed in await self._post.receive(timeout=READ_WITHIN):
                    await self._take_whatever(sealed)
            except StoreUnavailable:
                await asyncio.sleep(RETRY)
            except Exception:  # nobody else would hear
                log.exception("Messages from other replicas could not be received")
                await asyncio.sleep(RETRY)

    async def _take_whatever(self, sealed: bytes) -> None:
        try:
            await self._take(sealed)
        except StoreUnavailable:
            # A parcel that cannot be had is a lost word.
            pass
        except Exception:
            log.exception("A message from another replica could not be handled")

    async def _take(self, sealed: bytes) -> None:
        envelope = self._opened(sealed)
        if envelope is not None and envelope.kind == Parcel.__name__:
            envelope = await self._fetched(envelope)
        if envelope is None:
            return
        word = word_of(envelope, self._kinds)
        if word is not None:
            self._recorders[envelope.kind](word, envelope.sender)

    async def _fetched(self, envelope: Envelope) -> Envelope | None:
        match envelope.body:
            case [str(name)]:
                parcel = await self._post.fetch(name)
                return None if parcel is None else self._opened(parcel)
        return None

    def _opened(self, sealed: bytes) -> Envelope | None:
        """What is for us; None for everything else."""
        text = self._seals.open(sealed)
        envelope = None if text is None else read(text)
        if envelope is None:
            return None
        if not self._replays.is_new(envelope.sender, envelope.number):
            self._tell_replay()
            return None
        return envelope if envelope.to in (None, self.holder) else None

    def _tell_replay(self) -> None:
        if not self._has_told_replay:
            self._has_told_replay = True
            log.warning("replayed messages are ignored: another program writes to the shared store")


def is_holder(name: str) -> bool:
    """Whether a process may be named like that: it stands in ids that hosts see, and comes back from one."""
    return _HOLDER.fullmatch(name) is not None
