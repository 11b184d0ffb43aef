"""The keys of one issuer: `IssuerKeys` caches them, and refreshes them in the background.

`TokenVerifier` asks `find` for the keys of each new token. The key set is read from a URL, from a
file, or from the URL in the issuer's metadata. A usable set is replaced by a usable set only.

Fetches start in two ways. The background refresh fetches before the keys get old, and sooner after
a failure. `find` forces a fetch for a key that the cache lacks. Anyone can send tokens with
invented key ids, so forced fetches are limited by a token bucket. On average one starts per
cooldown; after a quiet time
BURST may follow at once. So a stray token does not delay a new key.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import datetime, timedelta
from hashlib import sha256
from logging import getLogger
from math import inf
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from jwt import PyJWK

from taskgate.auth.claims import IssuerSettings, KeySettings
from taskgate.auth.fetch import FetchedDocument, Fetcher, FetchFailed, FetchReason
from taskgate.auth.keyset import KeySet, KeySetRefused
from taskgate.auth.metadata import DiscoveryRefused, is_foreign, jwks_uri, metadata_urls
from taskgate.clock import Clock
from taskgate.errors import KeysUnavailable

REFRESH_AT: Final = 0.8
"""Part of their lifetime after which keys are fetched again, before requests have to wait."""

BURST: Final = 3
"""Forced fetches that may follow at once, after as many cooldowns without any."""

RefreshOutcome = Literal["ok", "stale", "failed"]
"""New keys; no new keys while the old ones serve on; no keys at all."""

log = getLogger("taskgate.auth")


class KeyRefreshListener(Protocol):
    """An object that is called once at the end of every fetch, forced or not, well or not."""

    def refreshed(self, issuer: str, outcome: RefreshOutcome, keys: int) -> None:
        """Take note that a fetch for the issuer of that name ended; must not raise.

        `keys` is the number of keys that are usable now. A fetch that `close` cancels is not
        reported.
        """
        ...


# --- the cache --------------------------------------------------------------------------------------------------------


class KeysState(NamedTuple):
    """The state of an issuer's keys, for operators.

    - `keys`: how many are usable; `place`: where they are
    - `cause`: why the last fetch failed, and `since` when fetches fail; None if it did not fail
    - `refused`: the requests since then whose token could not be verified for lack of keys
    """

    keys: int
    place: str
    cause: str | None = None
    since: datetime | None = None
    refused: int = 0


class _CachedKeys(NamedTuple):
    keys: KeySet
    digest: bytes
    fetched_at: float


class IssuerKeys:
    """The keys of one issuer, for one event loop.

    `start` refreshes them in the background until `close`; without it they are fetched on demand.
    At most one fetch runs; a call that needs one meanwhile joins it. Keys are usable until they are
    older than `stale_max`. `sleep` waits for seconds, and tests replace it.

    - `_forced_at`: when the last forced fetch began
    - `_paid_until`: the end of the cooldowns of all forced fetches, one after the other
    - `_due`: when the background refresh fetches next
    - `_failures`: how many fetches failed since the last good one; `_cause`, `_failing_since`: why the
      last one failed, and when the first did; `_refused`: the requests without keys since then
    """

    def __init__(
        self,
        settings: IssuerSettings,
        fetcher: Fetcher,
        clock: Clock,
        listener: KeyRefreshListener,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._source = _source(settings, fetcher, clock)
        self._clock = clock
        self._listener = listener
        self._sleep = sleep
        self._cached: _CachedKeys | None = None
        self._fetch: asyncio.Task[None] | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._forced_at = -inf
        self._paid_until = -inf
        self._due = clock.elapsed()
        self._failures = 0
        self._cause: str | None = None
        self._failing_since: datetime | None = None
        self._refused = 0
        self._closed = False

    @property
    def state(self) -> KeysState:
        """The state of the keys now."""
        keys = self._current()
        count = 0 if keys is None else keys.count
        return KeysState(count, self._settings.place, self._cause, self._failing_since, self._refused)

    @property
    def has_keys(self) -> bool:
        """Whether any fetch succeeded so far; the keys may be too old to be used by now."""
        return self._cached is not None

    def start(self) -> None:
        """Start to refresh the keys, with a first fetch at once."""
        assert self._refresher is None, "started twice"
        self._refresher = asyncio.get_running_loop().create_task(self._refresh_forever())

    async def close(self) -> None:
        """Stop all fetches; cached keys stay usable. May be called again."""
        self._closed = True
        running = [task for task in (self._refresher, self._fetch) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
        """The keys of that id for the algorithm; all for it without an id, () if there are none.

        Cached keys are returned at once. If none fits, the call joins a
        running fetch, or forces one if the limits allow it. It waits up to the timeout of the
        settings.

        () means that the issuer has no such key, by keys that are still usable. Raises
        KeysUnavailable if the key may exist all the same. Then there are no usable keys, the last
        fetch failed, or one is still running when the wait ends.
        """
        keys = self._current()
        found = () if keys is None else keys.find(kid, algorithm)
        if found:
            return found
        await self._refresh_on_demand()
        keys = self._current()
        found = () if keys is None else keys.find(kid, algorithm)
        if not found and (keys is None or self._failures or self._fetch is not None):
            self._refused += 1
            raise KeysUnavailable(self._settings.name)
        return found

    async def refresh(self) -> None:
        """Fetch the keys, or join a running fetch; returns when it ended, well or not.

        No-op once closed.
        """
        if not self._closed:
            await asyncio.wait({self._start_fetch(urgent=False)})

    async def reread(self) -> bool:
        """Fetch the keys now, after a running fetch; return whether the key set is another one.

        For a key set in a file that an operator has changed. A file that is no key set changes nothing.
        """
        before = self._cached
        if self._fetch is not None:
            # It may have read the file before the change.
            await asyncio.wait({self._fetch})
        await self.refresh()
        return self._cached is not None and (before is None or before.digest != self._cached.digest)

    def due_in(self) -> float:
        """Seconds until the next refresh is due; 0 or less if it is due now."""
        return self._due - self._clock.elapsed()

    def _current(self) -> KeySet | None:
        """The usable keys; None if there are none, or they are older than `stale_max`."""
        stale_max = self._settings.keys.stale_max.total_seconds()
        if self._cached is None or self._clock.elapsed() - self._cached.fetched_at > stale_max:
            return None
        return self._cached.keys

    async def _refresh_on_demand(self) -> None:
        """Wait for the running fetch, or for a forced one if it is allowed now.

        Returns when the fetch ended, after the timeout of the settings, or at once without a fetch.
        """
        if self._fetch is None and not self._may_force():
            return
        # Unlike wait_for, this does not cancel the fetch if the wait is cancelled or times out.
        await asyncio.wait({self._start_fetch(urgent=True)}, timeout=self._settings.keys.timeout.total_seconds())

    def _may_force(self) -> bool:
        """Ask for a forced fetch: True if it may start, and then its cooldown is charged.

        False once closed, and within a cooldown of the last forced fetch while fetches fail. Also
        False while more than BURST - 1 of the charged cooldowns are still to pass.
        """
        now, cooldown = self._clock.elapsed(), self._settings.keys.cooldown.total_seconds()
        paid_until = max(self._paid_until, now)
        is_soon = now - self._forced_at < cooldown
        if self._closed or (is_soon and self._failures) or paid_until - now > (BURST - 1) * cooldown:
            return False
        self._forced_at, self._paid_until = now, paid_until + cooldown
        return True

    def _start_fetch(self, *, urgent: bool) -> asyncio.Task[None]:
        """The running fetch, or a new one; its task never raises."""
        if self._fetch is None:
            # An empty context, because the fetch is shared: context variables of the first request are not for all.
            self._fetch = asyncio.get_running_loop().create_task(self._fetch_keys(urgent=urgent), context=Context())
        return self._fetch

    async def _fetch_keys(self, *, urgent: bool) -> None:
        try:
            fetched = await self._source.read(urgent=urgent)
            keys = KeySet.read(fetched.body, self._settings.algorithms)
        except DiscoveryRefused as error:
            self._failed(error.reason, f"its metadata cannot be used: {error.reason}")
        except (FetchFailed, KeySetRefused) as error:
            file = self._settings.keys.file or self._settings.keys.ca_file
            about = {} if file is None or error.problem is None else {"file": str(file), "problem": error.problem}
            cause = error.cause if isinstance(error, FetchFailed) else f"no key set: {error.reason}"
            self._failed(error.reason, cause, **about)
        except Exception as error:
            # The name of the error alone: its text and traceback are a library's and may have the whole address,
            # which the log must not show.
            self._failed("internal", "a fault of the gateway: see its log", kind=type(error).__name__)
        else:
            self._succeeded(keys, sha256(fetched.body).digest(), lifetime(self._settings.keys, fetched.max_age))
        finally:
            self._fetch = None

    def _succeeded(self, keys: KeySet, digest: bytes, lifetime: timedelta) -> None:
        now, name = self._clock.elapsed(), self._settings.name
        if self._failures:
            log.info("The keys of an issuer are fetched again", extra={"issuer": name, "keys": keys.count})
        self._cached = _CachedKeys(keys, digest, now)
        self._failures = self._refused = 0
        self._cause = self._failing_since = None
        self._due = now + max(REFRESH_AT * lifetime.total_seconds(), self._settings.keys.cooldown.total_seconds())
        self._listener.refreshed(name, "ok", keys.count)

    def _failed(self, reason: str, cause: str, **more: str) -> None:
        self._source.invalidate()
        self._failures += 1
        self._cause, self._failing_since = cause, self._failing_since or self._clock.now()
        self._due = self._clock.elapsed() + self._retry_delay()
        keys, name = self._current(), self._settings.name
        count = 0 if keys is None else keys.count
        log.warning(
            "The keys of an issuer could not be fetched",
            extra={"issuer": name, "place": self._settings.place, "reason": reason, "keys": count, **more},
        )
        self._listener.refreshed(name, "failed" if keys is None else "stale", count)

    def _retry_delay(self) -> float:
        """Seconds until the background refresh tries again after a failure.

        It is the cooldown. While old keys are usable, it doubles with each failure, up to the usual
        time between two fetches.
        """
        keys = self._settings.keys
        cooldown = keys.cooldown.total_seconds()
        if self._current() is None:
            return cooldown
        usual = REFRESH_AT * lifetime(keys, None).total_seconds()
        return max(cooldown, min(usual, cooldown * 2.0 ** min(self._failures - 1, 30)))

    async def _refresh_forever(self) -> None:
        while True:
            if (delay := self.due_in()) > 0:
                await self._sleep(delay)
            else:
                await self.refresh()


def lifetime(keys: KeySettings, max_age: timedelta | None) -> timedelta:
    """How long fetched keys, or metadata, are fresh: the time until they are fetched again.

    The server's `max_age` can shorten it, down to the cooldown. It cannot extend it: the operator
    decides how long a withdrawn key may be accepted.
    """
    longest = min(keys.refresh, keys.stale_max)
    return longest if max_age is None else min(longest, max(max_age, keys.cooldown))


async def fetch_key_set(settings: IssuerSettings, fetcher: Fetcher, clock: Clock) -> KeySet:
    """Fetch the keys of an issuer once, without a cache.

    Raises FetchFailed, DiscoveryRefused or KeySetRefused, each with its `reason`.
    """
    fetched = await _source(settings, fetcher, clock).read(urgent=True)
    return KeySet.read(fetched.body, settings.algorithms)


# --- sources ----------------------------------------------------------------------------------------------------------


class _KeySource(Protocol):
    """A place from which a key set is read."""

    async def read(self, *, urgent: bool) -> FetchedDocument:
        """Read the key set; raises FetchFailed or DiscoveryRefused.

        With `urgent` a request waits for it, so a known address is used however old it is.
        """
        ...

    def invalidate(self) -> None:
        """Drop a cached address; called after each read that failed, or whose keys are unusable."""
        ...


def _source(settings: IssuerSettings, fetcher: Fetcher, clock: Clock) -> _KeySource:
    keys = settings.keys
    if keys.file is not None:
        return _KeyFile(keys.file, keys)
    if keys.uri is not None:
        return _KeyUrl(keys.uri, keys, fetcher)
    return _DiscoveredUrl(settings, fetcher, clock)


class _KeyFile:
    """A key set in a file."""

    def __init__(self, path: Path, keys: KeySettings) -> None:
        self._path = path
        self._keys = keys

    async def read(self, *, urgent: bool) -> FetchedDocument:
        try:
            async with asyncio.timeout(self._keys.timeout.total_seconds()):
                return FetchedDocument(await asyncio.to_thread(read_file, self._path, self._keys.max_size))
        except TimeoutError:
            raise FetchFailed(FetchReason.TIMEOUT, "could not be read in time") from None

    def invalidate(self) -> None:
        """Nothing is cached."""


class _KeyUrl:
    """A key set at a configured URL."""

    def __init__(self, uri: str, keys: KeySettings, fetcher: Fetcher) -> None:
        self._uri = uri
        self._keys = keys
        self._fetcher = fetcher

    async def read(self, *, urgent: bool) -> FetchedDocument:
        return await _get(self._fetcher, self._uri, self._keys)

    def invalidate(self) -> None:
        """Nothing is cached."""


class _DiscoveredUrl:
    """A key set at the URL in the issuer's metadata.

    The URL is cached for the `lifetime` of the metadata. After that a read which is not urgent
    looks it up again, and an urgent one still uses it. If the look-up fails, the cached URL stays.
    `invalidate` drops it.
    """

    def __init__(self, settings: IssuerSettings, fetcher: Fetcher, clock: Clock) -> None:
        self._issuer = settings.issuer
        self._keys = settings.keys
        self._fetcher = fetcher
        self._clock = clock
        self._uri: str | None = None
        self._fresh_until = 0.0

    async def read(self, *, urgent: bool) -> FetchedDocument:
        uri = await self._current_uri(urgent=urgent)
        return await _get(self._fetcher, uri, self._keys, only_public=is_foreign(uri, self._issuer))

    def invalidate(self) -> None:
        self._uri = None

    async def _current_uri(self, *, urgent: bool) -> str:
        """The URL of the key set, looked up if necessary; raises if none is known."""
        if self._uri is not None and (urgent or self._clock.elapsed() < self._fresh_until):
            return self._uri
        try:
            self._uri, max_age = await self._discover()
        except (FetchFailed, DiscoveryRefused):
            if self._uri is None:
                raise
        else:
            self._fresh_until = self._clock.elapsed() + lifetime(self._keys, max_age).total_seconds()
        return self._uri

    async def _discover(self) -> tuple[str, timedelta | None]:
        """The URL in the first usable metadata, and its `max_age`; raises if there is none."""
        refused: DiscoveryRefused | None = None
        failed: FetchFailed | None = None
        for url in metadata_urls(self._issuer):
            try:
                document = await _get(self._fetcher, url, self._keys)
                return jwks_uri(document.body, self._issuer), document.max_age
            except DiscoveryRefused as error:
                refused = refused or error
            except FetchFailed as error:
                failed = error
        # A refused document explains more than a missing one.
        cause = refused or failed
        assert cause is not None, "there is at least one metadata URL"
        try:
            raise cause
        finally:
            del refused, failed, cause


async def _get(fetcher: Fetcher, url: str, keys: KeySettings, *, only_public: bool = False) -> FetchedDocument:
    return await fetcher.get(
        url, timeout=keys.timeout, max_size=keys.max_size, only_public=only_public, ca_file=keys.ca_file
    )


def read_file(path: Path, max_size: int) -> bytes:
    """The bytes of a regular file, at most `max_size`; raises FetchFailed. Blocks."""
    try:
        # Devices and pipes may have no end, or block the reader.
        if not path.is_file():
            path.stat()
            raise FetchFailed(FetchReason.FILE, "is not a regular file")
        with path.open("rb") as file:
            text = file.read(max_size + 1)
    except OSError as error:
        raise FetchFailed(FetchReason.FILE, f"cannot be read: {error.strerror}") from None
    if len(text) > max_size:
        raise FetchFailed(FetchReason.TOO_LARGE, f"is larger than {max_size} bytes")
    return text
