"""An issuer as tests tell it to be: what is fetched from it, what is heard of it, and its keys."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from helpers.key_server import signing_key
from helpers.manual_clock import ManualClock
from helpers.waiting import bounded, eventually
from taskgate.auth.claims import IssuerSettings, KeySettings
from taskgate.auth.fetch import FetchedDocument, FetchFailed, FetchReason, HttpFetcher
from taskgate.auth.jwks import IssuerKeys
from taskgate.auth.jwt import Keys

ISSUER = "https://idp.example.com/tenant"
URI = "https://idp.example.com/keys"
OAUTH = "https://idp.example.com/.well-known/oauth-authorization-server/tenant"
OIDC = "https://idp.example.com/tenant/.well-known/openid-configuration"
OIDC_INSERTED = "https://idp.example.com/.well-known/openid-configuration/tenant"
SOON = timedelta(milliseconds=50)
SECOND = timedelta(seconds=1)

_Closable = TypeVar("_Closable", IssuerKeys, HttpFetcher)

FIRST, SECOND_KEY = signing_key("EC").jwk("first"), signing_key("EC", 1).jwk("second")


def key_set(*jwks: dict[str, Any], max_age: timedelta | None = None) -> FetchedDocument:
    return FetchedDocument(json.dumps({"keys": list(jwks)}).encode(), max_age)


def metadata(uri: object = URI, *, issuer: str = ISSUER, max_age: timedelta | None = None) -> FetchedDocument:
    return FetchedDocument(json.dumps({"issuer": issuer, "jwks_uri": uri}).encode(), max_age)


class ScriptedFetch:
    """A Fetch that answers what it is told; what it is told nothing of is a bad status.

    `asked` is what was fetched, `bounds` how long and how large it might be.
    """

    def __init__(self) -> None:
        self.answers: dict[str, FetchedDocument | Exception | Callable[[], Awaitable[FetchedDocument]]] = {}
        self.asked: list[str] = []
        self.asked_of_the_public: list[str] = []
        self.bounds: set[tuple[timedelta, int]] = set()

    async def get(
        self, url: str, *, timeout: timedelta, max_size: int, only_public: bool = False, ca_file: Path | None = None
    ) -> FetchedDocument:
        self.asked.append(url)
        if only_public:
            self.asked_of_the_public.append(url)
        self.bounds.add((timeout, max_size))
        given = self.answers.get(url, FetchFailed(FetchReason.STATUS))
        if isinstance(given, Exception):
            raise given
        return given if isinstance(given, FetchedDocument) else await given()


class Gate:
    """An answer that waits until the test has it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._given: asyncio.Future[FetchedDocument] = asyncio.get_running_loop().create_future()

    def give(self, fetched: FetchedDocument) -> None:
        self._given.set_result(fetched)

    async def __call__(self) -> FetchedDocument:
        self.begun.set()
        return await self._given


class Heard:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str, int]] = []

    def refreshed(self, issuer: str, outcome: str, keys: int) -> None:
        self.all.append((issuer, outcome, keys))

    @property
    def outcomes(self) -> list[str]:
        return [outcome for _, outcome, _ in self.all]


class Sleeps:
    """Waits that the test ends. `asked` is how long each was to be."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        self._waiting.append(asyncio.get_running_loop().create_future())
        await self._waiting[-1]

    async def nth(self, count: int) -> float:
        """How long the wait of that number is to be, once it has begun."""
        await eventually(lambda: len(self.asked) >= count)
        return self.asked[count - 1]

    def end(self) -> None:
        self._waiting.popleft().set_result(None)


def settings_of(*, issuer: str = ISSUER, **keys: Any) -> IssuerSettings:
    return IssuerSettings(name="corp", issuer=issuer, keys=KeySettings(**keys))


@asynccontextmanager
async def closing(opened: _Closable) -> AsyncIterator[_Closable]:
    try:
        yield opened
    finally:
        async with bounded():
            await opened.close()


async def found(keys: Keys, kid: str | None = "first") -> list[str | None]:
    async with bounded():
        return [key.key_id for key in await keys.find(kid, "ES256")]


@asynccontextmanager
async def started(
    fetch: ScriptedFetch, clock: ManualClock, heard: Heard, **settings: Any
) -> AsyncIterator[tuple[IssuerKeys, Sleeps]]:
    sleeps = Sleeps()
    keys = IssuerKeys(settings_of(**{"uri": URI} | settings), fetch, clock, heard, sleep=sleeps)
    async with closing(keys):
        keys.start()
        yield keys, sleeps


async def after(clock: ManualClock, sleeps: Sleeps, count: int) -> float:
    """Let the wait of that number pass; how long it was."""
    seconds = await sleeps.nth(count)
    clock.advance(timedelta(seconds=seconds))
    sleeps.end()
    return seconds
