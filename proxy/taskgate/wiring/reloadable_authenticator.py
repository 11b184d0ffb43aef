"""The present authenticator: `ReloadableAuthenticator`. A reload replaces what is behind it.

`Gateway` identifies callers with it. `SealedCursors`, `SealedStates`, `SealedWords` and
`SealedRests` are its keys, as the protocols of their users. `Reload` calls `opened`, then `switch`.
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
"""Time for a new authenticator to fetch its issuers' keys before it is used without them."""


class ReloadableAuthenticator:
    """The present authenticator, and earlier ones that still identify callers. It implements
    `Callers`.
    """

    def __init__(self, authenticator: Authenticator) -> None:
        self._now = _Staffed(authenticator)
        # With their successors, which may share issuers.
        self._parting: dict[_Staffed, Authenticator] = {}
        self._waiting = Background()
        self._was_ready = False

    def open(self) -> None:
        """Start to fetch the issuers' keys."""
        self._now.authenticator.open()

    @property
    def authenticator(self) -> Authenticator:
        """The present authenticator."""
        return self._now.authenticator

    @property
    def ready(self) -> bool:
        """Whether tokens could be verified once. A new issuer that is unavailable does not stop the
        others.
        """
        self._was_ready = self._was_ready or self.authenticator.ready
        return self._was_ready

    async def identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        """Identify the caller, by the authenticator that is present when the request arrives."""
        staffed = self._now
        staffed.judging += 1
        try:
            return await staffed.authenticator.callers.identify(exchange, mount)
        finally:
            staffed.judging -= 1
            if not staffed.judging and staffed is not self._now:
                staffed.rested.set()

    def is_known(self, exchange: Exchange, mount: Mount) -> bool:
        return self.authenticator.callers.is_known(exchange, mount)

    def switch(self, authenticator: Authenticator) -> None:
        """Replace the authenticator by an open one. The old one closes after its last request."""
        before, self._now = self._now, _Staffed(authenticator)
        self._parting[before] = authenticator
        self._waiting.run(lambda: self._part(before))

    async def close(self) -> None:
        """Stop fetching keys."""
        await self._waiting.close()
        for staffed in (*self._parting, self._now):
            await staffed.authenticator.close()

    async def _part(self, staffed: "_Staffed") -> None:
        while staffed.judging:
            staffed.rested.clear()
            await staffed.rested.wait()
        # In the dict until it has ended, so that a `close` meanwhile finds it.
        await staffed.authenticator.close(self._parting[staffed])
        del self._parting[staffed]


class _Staffed:
    """An authenticator, and the number of requests that it is identifying; compared by identity."""

    __slots__ = ("authenticator", "judging", "rested")

    def __init__(self, authenticator: Authenticator) -> None:
        self.authenticator = authenticator
        self.judging = 0
        self.rested = asyncio.Event()


class SealedCursors:
    """The seals of `tasks/list` cursors, with the present keys."""

    __slots__ = ("_gate",)

    def __init__(self, gate: ReloadableAuthenticator) -> None:
        self._gate = gate

    def seal(self, place: Position, *, context: str, mount: str, listing: str = "") -> str:
        return self._gate.authenticator.cursors.seal(place, context=context, mount=mount, listing=listing)

    def open(self, cursor: str, *, context: str, mount: str, listing: str = "") -> Position:
        return self._gate.authenticator.cursors.open(cursor, context=context, mount=mount, listing=listing)


class SealedStates:
    """The seals of `requestState`, with the present keys."""

    __slots__ = ("_gate",)

    def __init__(self, gate: ReloadableAuthenticator) -> None:
        self._gate = gate

    def seal(
        self, what: HeldCallState | PassThroughState, *, context: str, mount: str, digest: str, until: datetime
    ) -> str:
        return self._gate.authenticator.states.seal(what, context=context, mount=mount, digest=digest, until=until)

    def open(
        self, text: str, *, contexts: Sequence[str], mount: str, digest: str, now: datetime
    ) -> HeldCallState | PassThroughState:
        return self._gate.authenticator.states.open(text, contexts=contexts, mount=mount, digest=digest, now=now)


class SealedWords:
    """The seals of bus messages, with the present keys."""

    __slots__ = ("_gate",)

    def __init__(self, gate: ReloadableAuthenticator) -> None:
        self._gate = gate

    def seal(self, text: bytes) -> bytes:
        return self._gate.authenticator.words.seal(text)

    def open(self, sealed: bytes) -> bytes | None:
        return self._gate.authenticator.words.open(sealed)


class SealedRests:
    """The seals of checkpoints in task records, with the present keys."""

    __slots__ = ("_gate",)

    def __init__(self, gate: ReloadableAuthenticator) -> None:
        self._gate = gate

    def seal(self, text: bytes) -> bytes:
        return self._gate.authenticator.checkpoints.seal(text)

    def open(self, sealed: bytes) -> bytes | None:
        return self._gate.authenticator.checkpoints.open(sealed)


async def opened(authenticator: Authenticator, before: Authenticator, within: timedelta = KEYS_WITHIN) -> None:
    """Open an authenticator in place of `before`, and wait for its keys, at most `within`.

    The wait is limited: an unavailable issuer must not keep the other callers out.
    """
    authenticator.open(before)
    with suppress(TimeoutError):
        async with asyncio.timeout(within.total_seconds()):
            while not authenticator.ready:
                authenticator.heard.clear()
                await authenticator.heard.wait()
