"""The gatehouse of now: whoever has to tell callers apart asks here, and need not know that it was replaced meanwhile.

What must not live here: what a gatehouse is (`authentication`), and when it is replaced (`reload`).
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from taskgate.admission.mounts import Mount
from taskgate.auth.context import AuthContext
from taskgate.domain.listing import Position
from taskgate.domain.request_state import HeldCallState, PassThroughState
from taskgate.streams.exchange import Exchange
from taskgate.system.background import Background
from taskgate.wiring.authentication import Authenticator

KEYS_WITHIN: Final = timedelta(seconds=5)
"""What a new gatehouse has to get its issuers' keys before it opens without them."""


class ReloadableAuthenticator:
    """See Callers: the gatehouse of now, and those that still judge somebody."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._now = _Staffed(authenticator)
        # With what took their place, and may have issuers of theirs.
        self._parting: dict[_Staffed, Authenticator] = {}
        self._waiting = Background()
        self._was_ready = False

    def open(self) -> None:
        """Begin to fetch the issuers' keys."""
        self._now.authenticator.open()

    @property
    def authenticator(self) -> Authenticator:
        """The one of now."""
        return self._now.authenticator

    @property
    def ready(self) -> bool:
        """Whether tokens could be judged once: an issuer that is new and away is no reason to send others elsewhere."""
        self._was_ready = self._was_ready or self.authenticator.ready
        return self._was_ready

    async def identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        """See Callers; a request is judged by the gatehouse that it came to."""
        staffed = self._now
        staffed.judging += 1
        try:
            return await staffed.authenticator.callers.identify(exchange, mount)
        finally:
            staffed.judging -= 1
            if not staffed.judging and staffed is not self._now:
                staffed.rested.set()

    def knows(self, exchange: Exchange, mount: Mount) -> bool:
        """See Callers."""
        return self.authenticator.callers.knows(exchange, mount)

    def switch(self, authenticator: Authenticator) -> None:
        """Have that one, which is open, from now on; the one before ends once it has judged whoever came to it."""
        before, self._now = self._now, _Staffed(authenticator)
        self._parting[before] = authenticator
        self._waiting.run(lambda: self._part(before))

    async def close(self) -> None:
        """Fetch nothing any more."""
        await self._waiting.close()
        for staffed in (*self._parting, self._now):
            await staffed.authenticator.close()

    async def _part(self, staffed: "_Staffed") -> None:
        while staffed.judging:
            staffed.rested.clear()
            await staffed.rested.wait()
        # Known until it has ended, lest the end of all come between.
        await staffed.authenticator.close(self._parting[staffed])
        del self._parting[staffed]


class _Staffed:
    """A gatehouse, and how many requests it is judging; compared by identity."""

    __slots__ = ("authenticator", "judging", "rested")

    def __init__(self, authenticator: Authenticator) -> None:
        self.authenticator = authenticator
        self.judging = 0
        self.rested = asyncio.Event()


class SealedCursors:
    """See Cursors."""

    __slots__ = ("_gate",)

    def __init__(self, gate: ReloadableAuthenticator) -> None:
        self._gate = gate

    def seal(self, place: Position, *, context: str, mount: str, listing: str = "") -> str:
        """See CursorKeys."""
        return self._gate.authenticator.cursors.seal(place, context=context, mount=mount, listing=listing)

    def open(self, cursor: str, *, context: str, mount: str, listing: str = "") -> Position:
        """See CursorKeys."""
        return self._gate.authenticator.cursors.open(cursor, context=context, mount=mount, listing=listing)


class SealedStates:
    """See RequestStates."""

    __slots__ = ("_gate",)

    def __init__(self, gate: ReloadableAuthenticator) -> None:
        self._gate = gate

    def seal(
        self, what: HeldCallState | PassThroughState, *, context: str, mount: str, digest: str, until: datetime
    ) -> str:
        """See RequestStateKeys."""
        return self._gate.authenticator.states.seal(what, context=context, mount=mount, digest=digest, until=until)

    def open(
        self, text: str, *, contexts: Sequence[str], mount: str, digest: str, now: datetime
    ) -> HeldCallState | PassThroughState:
        """See RequestStateKeys."""
        return self._gate.authenticator.states.open(text, contexts=contexts, mount=mount, digest=digest, now=now)


class SealedWords:
    """See Seals."""

    __slots__ = ("_gate",)

    def __init__(self, gate: ReloadableAuthenticator) -> None:
        self._gate = gate

    def seal(self, text: bytes) -> bytes:
        """See SealKeys."""
        return self._gate.authenticator.words.seal(text)

    def open(self, sealed: bytes) -> bytes | None:
        """See SealKeys."""
        return self._gate.authenticator.words.open(sealed)


class SealedRests:
    """See Seals."""

    __slots__ = ("_gate",)

    def __init__(self, gate: ReloadableAuthenticator) -> None:
        self._gate = gate

    def seal(self, text: bytes) -> bytes:
        """See SealKeys."""
        return self._gate.authenticator.checkpoints.seal(text)

    def open(self, sealed: bytes) -> bytes | None:
        """See SealKeys."""
        return self._gate.authenticator.checkpoints.open(sealed)


async def opened(authenticator: Authenticator, before: Authenticator, within: timedelta = KEYS_WITHIN) -> None:
    """Open it in the place of another, and wait until it has its keys.

    Not for ever: an issuer that is away keeps nobody else out.
    """
    authenticator.open(before)
    with suppress(TimeoutError):
        async with asyncio.timeout(within.total_seconds()):
            while not authenticator.ready:
                authenticator.heard.clear()
                await authenticator.heard.wait()
