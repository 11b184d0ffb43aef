"""The keys of one issuer, kept fresh: who asks for a key waits only where it is not there.

What must not live here: where keys are read from, and which of them are fit for use. What holds: a good set is never
replaced by anything but a good set, and however many tokens name keys that nobody knows, they cost no memory and one
fetch per cooldown: up to AT_ONCE of those that were not needed before come at once. So a stray token does not keep the
next one waiting, which may be the first of a key that is new.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import timedelta
from logging import getLogger
from math import inf
from typing import Final, Literal, NamedTuple, Protocol

from jwt import PyJWK

from taskgate.auth.discovery import DiscoveryRefused
from taskgate.auth.fetching import Fetch, FetchFailed
from taskgate.auth.keyset import KeySet, KeySetRefused
from taskgate.auth.settings import IssuerSettings
from taskgate.auth.sources import lifespan, source_of
from taskgate.clock import Clock
from taskgate.errors import KeysUnavailable

FRESH: Final = 0.8
"""The part of their lifespan after which keys are fetched anew, so that nobody waits for it."""

AT_ONCE: Final = 3
"""Fetches for the sake of unknown keys that may come without a pause, where none was needed for as many cooldowns."""

Refreshed = Literal["ok", "stale", "failed"]
"""New keys; none, and the last ones serve on; none, and there are none to serve."""

log = getLogger("taskgate.auth")


class KeysHeard(Protocol):
    """Who wants to know how it goes."""

    def refreshed(self, issuer: str, outcome: Refreshed, keys: int) -> None:
        """The keys of the issuer of that name were to be refreshed; `keys` serve now. It must not raise."""
        ...


class _Kept(NamedTuple):
    keys: KeySet
    at: float


class IssuerKeys:
    """The keys of one issuer. For one event loop.

    `start` keeps them fresh in the background until `close`; without it they are fetched when somebody asks. `sleep`
    waits for as many seconds.
    """

    def __init__(
        self,
        settings: IssuerSettings,
        fetch: Fetch,
        clock: Clock,
        heard: KeysHeard,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._source = source_of(settings, fetch, clock)
        self._clock = clock
        self._heard = heard
        self._sleep = sleep
        self._kept: _Kept | None = None
        self._flight: asyncio.Task[None] | None = None
        self._rounds: asyncio.Task[None] | None = None
        self._forced_at = -inf
        self._paid_until = -inf
        self._due = clock.elapsed()
        self._failures = 0
        self._closed = False

    @property
    def usable(self) -> bool:
        """Whether there ever was a set of keys."""
        return self._kept is not None

    def start(self) -> None:
        """Begin to keep the keys fresh; the first fetch begins at once."""
        assert self._rounds is None, "started twice"
        self._rounds = asyncio.get_running_loop().create_task(self._keep_fresh())

    async def close(self) -> None:
        """End what goes on. What was fetched serves on; nothing is fetched any more. May be called again."""
        self._closed = True
        going = [task for task in (self._rounds, self._flight) if task is not None]
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)

    async def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
        """The keys of that id that fit the algorithm; without an id, all that fit. () where the issuer has none.

        At once where they are there. Otherwise it waits for a refresh, at most for the timeout of the settings; for
        this one begins per cooldown on average, up to AT_ONCE of them without a pause but none soon after one failed,
        and all who wait share it. Raises KeysUnavailable where there were never keys, or the last ones are older than
        `stale_max`, and where the key is not there but newer ones could not be had: the issuer may have it.
        """
        keys = self._serving()
        found = () if keys is None else keys.find(kid, algorithm)
        if found:
            return found
        await self._look_again()
        keys = self._serving()
        found = () if keys is None else keys.find(kid, algorithm)
        if not found and (keys is None or self._failures or self._flight is not None):
            raise KeysUnavailable(self._settings.name)
        return found

    async def refresh(self) -> None:
        """Fetch the keys, or wait for the fetch that goes on; returns when it is over, however it ends.

        Nothing is fetched once closed.
        """
        if not self._closed:
            await asyncio.wait({self._flying(hurry=False)})

    def due_in(self) -> float:
        """Seconds until the keys should be fetched again; none or fewer when it is time."""
        return self._due - self._clock.elapsed()

    def _serving(self) -> KeySet | None:
        stale_max = self._settings.keys.stale_max.total_seconds()
        if self._kept is None or self._clock.elapsed() - self._kept.at > stale_max:
            return None
        return self._kept.keys

    async def _look_again(self) -> None:
        """Wait for the refresh that goes on, else for a new one, else not at all."""
        if self._flight is None and not self._may_force():
            return
        # Unlike wait_for, it leaves the flight alone when this wait is cancelled or runs out.
        await asyncio.wait({self._flying(hurry=True)}, timeout=self._settings.keys.timeout.total_seconds())

    def _may_force(self) -> bool:
        """Whether a fetch may begin for the sake of an unknown key; it is paid for with a cooldown then."""
        now, cooldown = self._clock.elapsed(), self._settings.keys.cooldown.total_seconds()
        paid_until = max(self._paid_until, now)
        is_soon = now - self._forced_at < cooldown
        if self._closed or (is_soon and self._failures) or paid_until - now > (AT_ONCE - 1) * cooldown:
            return False
        self._forced_at, self._paid_until = now, paid_until + cooldown
        return True

    def _flying(self, *, hurry: bool) -> asyncio.Task[None]:
        if self._flight is None:
            # For all who wait: nothing that is ambient where the first one asks is ambient in it.
            self._flight = asyncio.get_running_loop().create_task(self._fly(hurry=hurry), context=Context())
        return self._flight

    async def _fly(self, *, hurry: bool) -> None:
        try:
            fetched = await self._source.read(hurry=hurry)
            keys = KeySet.read(fetched.body, self._settings.algorithms)
        except (FetchFailed, DiscoveryRefused, KeySetRefused) as error:
            self._failed(error.reason)
        except Exception as error:
            # Without the traceback: what a library says may hold the address.
            self._failed("internal", kind=type(error).__name__)
        else:
            self._succeeded(keys, lifespan(self._settings.keys, fetched.max_age))
        finally:
            self._flight = None

    def _succeeded(self, keys: KeySet, fresh_for: timedelta) -> None:
        now, name = self._clock.elapsed(), self._settings.name
        if self._failures:
            log.info("The keys of an issuer are fetched again", extra={"issuer": name, "keys": keys.count})
        self._kept = _Kept(keys, now)
        self._failures = 0
        self._due = now + max(FRESH * fresh_for.total_seconds(), self._settings.keys.cooldown.total_seconds())
        self._heard.refreshed(name, "ok", keys.count)

    def _failed(self, reason: str, **more: str) -> None:
        self._source.distrust()
        self._failures += 1
        self._due = self._clock.elapsed() + self._pause()
        keys, name = self._serving(), self._settings.name
        count = 0 if keys is None else keys.count
        log.warning(
            "The keys of an issuer could not be fetched",
            extra={"issuer": name, "reason": reason, "keys": count, **more},
        )
        self._heard.refreshed(name, "failed" if keys is None else "stale", count)

    def _pause(self) -> float:
        """Seconds until a fetch that failed is tried again: the cooldown, and longer each time while old keys serve."""
        keys = self._settings.keys
        cooldown = keys.cooldown.total_seconds()
        if self._serving() is None:
            return cooldown
        usual = FRESH * lifespan(keys, None).total_seconds()
        return max(cooldown, min(usual, cooldown * 2.0 ** min(self._failures - 1, 30)))

    async def _keep_fresh(self) -> None:
        while True:
            if (pause := self.due_in()) > 0:
                await self._sleep(pause)
            else:
                await self.refresh()
