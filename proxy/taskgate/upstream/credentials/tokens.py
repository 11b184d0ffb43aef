"""Tokens that were had, by whom they are for, and for as long as they serve.

What must not live here: how a token is had (`grants`), who may be given it (`credentials`). What holds: whoever asks
for the same at the same time waits for one request, nobody is given what was had for another key, and nobody goes
without because an older token of theirs was refused.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Final, NamedTuple

from taskgate.clock import Clock
from taskgate.errors import UpstreamReason
from taskgate.upstream import failures
from taskgate.upstream.credentials.grants import Granted, SubjectRefused
from taskgate.upstream.principal import Principal
from taskgate.upstream.single import Abandoned, SingleFlight

SHARE: Final = 0.9
"""Of a token's life, for which it serves: a call that begins with it should not outlive it."""
MOST: Final = 10_000
"""Tokens that are kept; one more takes the place of the one that was used longest ago."""

Ask = Callable[[Principal], Coroutine[Any, Any, Granted]]


class _Token(NamedTuple):
    text: str
    until: float


class _Flight(SingleFlight[_Token]):
    """One request for a token, made with that of `principal`.

    `others` are made after it was refused, one for a token.
    """

    def __init__(self, have: Callable[[Principal], Coroutine[Any, Any, _Token]], principal: Principal) -> None:
        super().__init__(partial(have, principal))
        self.principal = principal
        self.others: dict[str | None, _Flight] = {}


class Tokens:
    """Keeps what `ask` brings. `most` is how many."""

    def __init__(self, ask: Ask, *, clock: Clock, most: int = MOST) -> None:
        self._ask = ask
        self._clock = clock
        self._most = most
        self._kept: dict[Hashable, _Flight] = {}
        self._asking: set[asyncio.Task[Any]] = set()

    async def get(self, key: Hashable, principal: Principal) -> str:
        """The token of that key; where none serves any more, one is had for `principal`. Raises UpstreamFailed."""
        flight = self._kept.get(key)
        if flight is None or flight.is_empty or self._is_over(flight):
            flight = _Flight(self._have, principal)
        try:
            return await self._wait(key, flight)
        except SubjectRefused:
            if flight.principal.token == principal.token:
                raise
        # It was another token of the same caller. Whether this one will do is not known yet.
        return await self._wait(key, flight.others.setdefault(principal.token, _Flight(self._have, principal)))

    def drop(self, key: Hashable, token: str) -> None:
        """Give that token to nobody any more; one that was had since stays."""
        flight = self._kept.get(key)
        if flight is not None and flight.value is not None and flight.value.text == token:
            del self._kept[key]

    async def close(self) -> None:
        """Forget everything; who still waits gets UpstreamFailed."""
        self._kept.clear()
        asking = tuple(self._asking)
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)

    async def _wait(self, key: Hashable, flight: _Flight) -> str:
        # Away and back: whoever is used is the last to go.
        self._kept.pop(key, None)
        self._kept[key] = flight
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        try:
            return (flight.value or await flight.get()).text
        except Abandoned:
            raise failures.no_credentials(UpstreamReason.UNREACHABLE) from None

    async def _have(self, principal: Principal) -> _Token:
        task = asyncio.current_task()
        assert task is not None, "this runs in a task of its own"
        self._asking.add(task)
        began = self._clock.elapsed()
        try:
            granted = await self._ask(principal)
        finally:
            self._asking.discard(task)
        return _Token(granted.token, began + granted.lifetime * SHARE)

    def _is_over(self, flight: _Flight) -> bool:
        had = flight.value
        return had is not None and had.until <= self._clock.elapsed()
