"""Cache of bearer tokens for a server: `Tokens`, by key, for most of their lifetime.

The key of a token names the caller and its rights, or is the same for all callers. A token is only
returned for its own key. `speaking.Credentials` makes the keys and calls `get`. Concurrent calls
for one key share one token request. It may be made with the caller's own token (the subject token).
If that was refused, a waiter with another token of the same caller makes a request with its own.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Final, NamedTuple

from taskgate.clock import Clock
from taskgate.errors import UpstreamReason
from taskgate.system.background import cancel_and_wait
from taskgate.system.single_flight import Abandoned, SingleFlight
from taskgate.upstream import failures
from taskgate.upstream.calls import Principal

SHARE: Final = 0.9
"""The share of a token's lifetime for which it is used: a call that starts with it should not
outlive it."""
SPARED: Final = 30.0
"""Seconds for which a token stays that was refused as soon as it was granted."""
MOST: Final = 10_000
"""Tokens that are stored; the least recently used is evicted."""


class Granted(NamedTuple):
    """A token as its endpoint granted it, and its lifetime in seconds."""

    token: str
    lifetime: float


Ask = Callable[[Principal], Coroutine[Any, Any, Granted]]


class _Token(NamedTuple):
    """A token, and the time of the clock until which it is used."""

    text: str
    until: float


class _Flight(SingleFlight[_Token]):
    """One entry: the token request made for `principal`, under way or with its result.

    `uses` counts the requests that got it. `others` are further entries of the same key, by subject
    token. They are used after the subject token of this one was refused. Until `spared_until`, a time
    of the clock, a refusal by the server does not count.
    """

    def __init__(self, have: Callable[[Principal], Coroutine[Any, Any, _Token]], principal: Principal) -> None:
        super().__init__(partial(have, principal))
        self.principal = principal
        self.uses = 0
        self.spared_until = 0.0
        self.others: dict[str | None, _Flight] = {}


class Tokens:
    """A store of up to `most` tokens. `ask` requests one for a principal, and may raise UpstreamFailed.

    A token is requested on the first `get` of a key, and again after it has expired, was dropped,
    or could not be got. It is removed by `drop`, by eviction, or by `close`.
    """

    def __init__(self, ask: Ask, *, clock: Clock, most: int = MOST) -> None:
        self._ask = ask
        self._clock = clock
        self._most = most
        self._kept: dict[Hashable, _Flight] = {}
        self._asking: set[asyncio.Task[Any]] = set()

    async def get(self, key: Hashable, principal: Principal) -> str:
        """Return the token of a key; request one for `principal` if there is none or it expired.

        Raises UpstreamFailed; SubjectRefused if the token of `principal` itself was refused.
        """
        flight = self._kept.get(key)
        if flight is None or flight.is_empty or self._is_over(flight):
            flight = _Flight(self._have, principal)
        try:
            return await self._wait(key, flight)
        except failures.SubjectRefused:
            if flight.principal.token == principal.token:
                raise
        # It was another token of the same caller; this one may be accepted.
        return await self._wait(key, flight.others.setdefault(principal.token, _Flight(self._have, principal)))

    def drop(self, key: Hashable, token: str) -> bool:
        """Forget this token of a key, so the next `get` requests another; a newer one stays.

        False if another one would be no better. Then it was requested for the last request alone, or
        it is spared.
        """
        flight = self._kept.get(key)
        if flight is None or flight.value is None or flight.value.text != token:
            return True
        if flight.spared_until > self._clock.elapsed():
            return False
        del self._kept[key]
        return flight.uses > 1

    def spare(self, key: Hashable, token: str) -> None:
        """Have `drop` ignore this token of a key for SPARED: it was refused as soon as it was granted,
        so it is not the cause."""
        flight = self._kept.get(key)
        if flight is not None and flight.value is not None and flight.value.text == token:
            flight.spared_until = self._clock.elapsed() + SPARED

    async def close(self) -> None:
        """Remove everything and stop the token requests; waiting callers get UpstreamFailed."""
        self._kept.clear()
        await cancel_and_wait(*self._asking)

    async def _wait(self, key: Hashable, flight: _Flight) -> str:
        """Wait for the token of an entry, and store the entry as the one used last."""
        # Remove and insert: the dict is in order of last use.
        self._kept.pop(key, None)
        self._kept[key] = flight
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        flight.uses += 1
        try:
            return (flight.value or await flight.get()).text
        except Abandoned:
            raise failures.no_credentials(UpstreamReason.UNREACHABLE) from None

    async def _have(self, principal: Principal) -> _Token:
        """Request a token. Runs as the task of a `_Flight`, so that `close` can cancel it."""
        task = asyncio.current_task()
        assert task is not None, "this runs in a task of its own"
        self._asking.add(task)
        began = self._clock.elapsed()
        try:
            granted = await self._ask(principal)
        finally:
            self._asking.discard(task)
            del task
        return _Token(granted.token, began + granted.lifetime * SHARE)

    def _is_over(self, flight: _Flight) -> bool:
        had = flight.value
        return had is not None and had.until <= self._clock.elapsed()
