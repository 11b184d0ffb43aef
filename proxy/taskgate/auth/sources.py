"""Where an issuer's key set is read from: an address, a file, or what the issuer's own metadata names.

What must not live here: what a key set means, and when it is read.
"""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from taskgate.auth.discovery import DiscoveryRefused, keys_address, leads_elsewhere, metadata_addresses
from taskgate.auth.fetching import Fetch, Fetched, FetchFailed, FetchReason
from taskgate.auth.settings import IssuerSettings, KeySettings
from taskgate.clock import Clock


class KeySource(Protocol):
    """One place of keys."""

    async def read(self, *, hurry: bool) -> Fetched:
        """The text of the key set. Raises FetchFailed or DiscoveryRefused. `hurry`: somebody waits for it."""
        ...

    def distrust(self) -> None:
        """What was read last, or not, was of no use."""
        ...


def source_of(settings: IssuerSettings, fetch: Fetch, clock: Clock) -> KeySource:
    """The source that an issuer's settings name."""
    keys = settings.keys
    if keys.file is not None:
        return _File(keys.file, keys)
    if keys.uri is not None:
        return _Address(keys.uri, keys, fetch)
    return _Discovered(settings, fetch, clock)


class _File:
    def __init__(self, path: Path, keys: KeySettings) -> None:
        self._path = path
        self._keys = keys

    async def read(self, *, hurry: bool) -> Fetched:
        try:
            async with asyncio.timeout(self._keys.timeout.total_seconds()):
                return Fetched(await asyncio.to_thread(_contents, self._path, self._keys.max_size))
        except TimeoutError:
            raise FetchFailed(FetchReason.TIMEOUT) from None

    def distrust(self) -> None:
        """There is no other file."""


class _Address:
    def __init__(self, uri: str, keys: KeySettings, fetch: Fetch) -> None:
        self._uri = uri
        self._keys = keys
        self._fetch = fetch

    async def read(self, *, hurry: bool) -> Fetched:
        return await self._fetch.get(self._uri, timeout=self._keys.timeout, max_size=self._keys.max_size)

    def distrust(self) -> None:
        """There is no other address."""


class _Discovered:
    """The address in the metadata holds for as long as keys do, and until what is read there is of no use."""

    def __init__(self, settings: IssuerSettings, fetch: Fetch, clock: Clock) -> None:
        self._issuer = settings.issuer
        self._keys = settings.keys
        self._fetch = fetch
        self._clock = clock
        self._address: str | None = None
        self._until = 0.0

    async def read(self, *, hurry: bool) -> Fetched:
        address = await self._current_address(hurry=hurry)
        return await self._get(address, only_public=leads_elsewhere(address, self._issuer))

    def distrust(self) -> None:
        self._address = None

    async def _current_address(self, *, hurry: bool) -> str:
        if self._address is not None and (hurry or self._clock.elapsed() < self._until):
            return self._address
        try:
            self._address, max_age = await self._discover()
        except (FetchFailed, DiscoveryRefused):
            if self._address is None:
                raise
        else:
            self._until = self._clock.elapsed() + lifespan(self._keys, max_age).total_seconds()
        return self._address

    async def _discover(self) -> tuple[str, timedelta | None]:
        refused: DiscoveryRefused | None = None
        failed: FetchFailed | None = None
        for place in metadata_addresses(self._issuer):
            try:
                document = await self._get(place)
                return keys_address(document.body, self._issuer), document.max_age
            except DiscoveryRefused as error:
                refused = refused or error
            except FetchFailed as error:
                failed = error
        # What an answer says tells an operator more than that the other places have none.
        told = refused or failed
        assert told is not None, "there is always a place to ask"
        raise told

    async def _get(self, address: str, *, only_public: bool = False) -> Fetched:
        keys = self._keys
        return await self._fetch.get(address, timeout=keys.timeout, max_size=keys.max_size, only_public=only_public)


def lifespan(keys: KeySettings, max_age: timedelta | None) -> timedelta:
    """For how long what was fetched is taken for fresh.

    A server may shorten it, not below the cooldown. It cannot lengthen it: a key that its issuer takes back is honoured
    for as long as the operator says.
    """
    longest = min(keys.refresh, keys.stale_max)
    return longest if max_age is None else min(longest, max(max_age, keys.cooldown))


def _contents(path: Path, max_size: int) -> bytes:
    try:
        # What is no file may have no end, or keep its reader waiting.
        if not path.is_file():
            raise FetchFailed(FetchReason.FILE)
        with path.open("rb") as file:
            text = file.read(max_size + 1)
    except OSError:
        raise FetchFailed(FetchReason.FILE) from None
    if len(text) > max_size:
        raise FetchFailed(FetchReason.TOO_LARGE)
    return text
