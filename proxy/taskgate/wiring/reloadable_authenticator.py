"""The present authenticator: `ReloadableAuthenticator`. A reload replaces what is behind it.

`Gateway` identifies callers with it. A reload calls `opened` for another authenticator, then
`switch`. A replaced one still identifies the callers of requests that had begun, and is then
closed. `SealedCursors`, `SealedStates`, `SealedMessages` and `SealedCheckpoints` seal and open
texts. Each uses the keys of the present authenticator, in the form that its user expects.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from taskgate.admission.mounts import Mount
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.domain.listing import Position
from taskgate.domain.request_state import HeldCallState, PassThroughState
from taskgate.streams.exchange import Exchange
from taskgate.system.background import Background
from taskgate.wiring.authentication import Authenticator

KEYS_WITHIN: Final = timedelta(seconds=5)
"""Time for a new authenticator to fetch its issuers' keys before it is used without them."""


class ReloadableAuthenticator:
    """The present authenticator, as `Callers`, and replaced ones that still identify callers."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._present = _InUse(authenticator)
        # Replaced ones with their successors: issuers that both share must not be closed.
        self._replaced: dict[_InUse, Authenticator] = {}
        self._background = Background()
        self._was_ready = False

    def open(self) -> None:
        """Start to fetch the issuers' keys."""
        self._present.authenticator.open()

    @property
    def authenticator(self) -> Authenticator:
        """The present authenticator."""
        return self._present.authenticator

    @property
    def ready(self) -> bool:
        """Whether the keys of all issuers were there at least once.

        It stays True when a reload adds an issuer that is unavailable: the others are still served.
        """
        self._was_ready = self._was_ready or self.authenticator.ready
        return self._was_ready

    async def identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        """Identify the caller, by the authenticator that is present when the request arrives."""
        in_use = self._present
        callers = in_use.authenticator.callers
        if callers is None:
            return ANONYMOUS
        in_use.requests += 1
        try:
            return await callers.identify(exchange, mount)
        finally:
            in_use.requests -= 1
            if not in_use.requests and in_use is not self._present:
                in_use.is_idle.set()

    def is_known(self, exchange: Exchange, mount: Mount) -> bool:
        callers = self.authenticator.callers
        # Without authentication no request is refused for its token.
        return callers is not None and callers.is_known(exchange, mount)

    def switch(self, authenticator: Authenticator) -> None:
        """Replace the authenticator by an open one. The old one closes when it is idle."""
        before, self._present = self._present, _InUse(authenticator)
        self._replaced[before] = authenticator
        self._background.run(lambda: self._close_when_idle(before))

    async def close(self) -> None:
        """Close the present and the replaced authenticators."""
        await self._background.close()
        for in_use in (*self._replaced, self._present):
            await in_use.authenticator.close()

    async def _close_when_idle(self, in_use: "_InUse") -> None:
        while in_use.requests:
            in_use.is_idle.clear()
            await in_use.is_idle.wait()
        # In the dict until it has ended, so that a `close` meanwhile finds it.
        await in_use.authenticator.close(self._replaced[in_use])
        del self._replaced[in_use]


class _InUse:
    """An authenticator in use. `requests` is the number of those whose caller it identifies now.

    `is_idle` is set when a replaced one has no such request any more.
    """

    __slots__ = ("authenticator", "is_idle", "requests")

    def __init__(self, authenticator: Authenticator) -> None:
        self.authenticator = authenticator
        self.requests = 0
        self.is_idle = asyncio.Event()


class SealedCursors:
    """The seals of `tasks/list` cursors, with the present keys."""

    __slots__ = ("_authenticator",)

    def __init__(self, authenticator: ReloadableAuthenticator) -> None:
        self._authenticator = authenticator

    def seal(self, place: Position, *, context: str, mount: str, listing: str = "") -> str:
        return self._authenticator.authenticator.cursors.seal(place, context=context, mount=mount, listing=listing)

    def open(self, cursor: str, *, context: str, mount: str, listing: str = "") -> Position:
        return self._authenticator.authenticator.cursors.open(cursor, context=context, mount=mount, listing=listing)


class SealedStates:
    """The seals of `requestState`, with the present keys."""

    __slots__ = ("_authenticator",)

    def __init__(self, authenticator: ReloadableAuthenticator) -> None:
        self._authenticator = authenticator

    def seal(
        self, what: HeldCallState | PassThroughState, *, context: str, mount: str, digest: str, until: datetime
    ) -> str:
        return self._authenticator.authenticator.states.seal(
            what, context=context, mount=mount, digest=digest, until=until
        )

    def open(
        self, text: str, *, contexts: Sequence[str], mount: str, digest: str, now: datetime
    ) -> HeldCallState | PassThroughState:
        return self._authenticator.authenticator.states.open(
            text, contexts=contexts, mount=mount, digest=digest, now=now
        )


class SealedMessages:
    """The seals of bus messages, with the present keys."""

    __slots__ = ("_authenticator",)

    def __init__(self, authenticator: ReloadableAuthenticator) -> None:
        self._authenticator = authenticator

    def seal(self, text: bytes) -> bytes:
        return self._authenticator.authenticator.words.seal(text)

    def open(self, sealed: bytes) -> bytes | None:
        return self._authenticator.authenticator.words.open(sealed)


class SealedCheckpoints:
    """The seals of checkpoints in task records, with the present keys."""

    __slots__ = ("_authenticator",)

    def __init__(self, authenticator: ReloadableAuthenticator) -> None:
        self._authenticator = authenticator

    def seal(self, text: bytes) -> bytes:
        return self._authenticator.authenticator.checkpoints.seal(text)

    def open(self, sealed: bytes) -> bytes | None:
        return self._authenticator.authenticator.checkpoints.open(sealed)


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
