"""Getting what an issuer publishes over HTTP, from a server that may be slow, broken, or no longer the issuer's.

What must not live here: what is fetched when, and what it means. No exception of aiohttp passes from here.
"""

import asyncio
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import TracebackType
from typing import Final, Protocol, Self

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientSSLError,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
    ThreadedResolver,
    hdrs,
)
from aiohttp.abc import ResolveResult
from multidict import CIMultiDictProxy

from taskgate.auth.discovery import is_public, may_be_asked

_HEADERS: Final = {
    hdrs.ACCEPT: "application/json, application/jwk-set+json",
    hdrs.ACCEPT_ENCODING: "identity",
    hdrs.USER_AGENT: "taskgate",
}
_TYPES: Final = re.compile(
    r"(application/json|[a-z0-9.-]+/[a-z0-9.-]+\+json|text/json|text/plain|(application|binary)/octet-stream)?"
)
"""Plain text, octets and no type at all are what plain file servers say of a key set; a page for people is none."""
_MAX_AGE: Final = re.compile(r"(?:^|,)\s*max-age=([0-9]{1,10})\s*(?:,|$)", re.IGNORECASE)


class FetchReason(StrEnum):
    """Why nothing was fetched."""

    ADDRESS = "address"
    """One that must not be asked."""
    UNREACHABLE = "unreachable"
    TLS = "tls"
    TIMEOUT = "timeout"
    REDIRECT = "redirect"
    STATUS = "status"
    ENCODING = "encoding"
    CONTENT_TYPE = "content_type"
    TOO_LARGE = "too_large"
    BROKEN = "broken"
    """It is no HTTP, or ends before its end."""
    FILE = "file"
    """It cannot be read."""


class FetchFailed(Exception):
    """Nothing was fetched. The text says why, and neither from where nor in a library's words."""

    def __init__(self, reason: FetchReason) -> None:
        super().__init__(f"Nothing was fetched: {reason.value}")
        self.reason: Final = reason.value


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was fetched, and how long it holds where its server says so."""

    body: bytes
    max_age: timedelta | None = None


class Fetch(Protocol):
    """The way to what issuers publish."""

    async def get(self, url: str, *, timeout: timedelta, max_size: int, only_public: bool = False) -> Fetched:
        """The whole of it, at most `max_size` bytes, within `timeout` from the call. Raises FetchFailed.

        `only_public`: from public addresses alone, whatever the name of the host stands for.
        """
        ...


class AiohttpFetch:
    """Fetch over aiohttp: follows nothing, remembers nothing, and takes nothing from the environment.

    Belongs to one event loop and is closed at its end.
    """

    def __init__(self) -> None:
        # By whether they connect to public addresses alone.
        self._sessions: dict[bool, ClientSession] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every connection. May be called again."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def get(self, url: str, *, timeout: timedelta, max_size: int, only_public: bool = False) -> Fetched:
        """See Fetch. A server that hangs up without an answer is asked once more."""
        if not may_be_asked(url):
            raise FetchFailed(FetchReason.ADDRESS)
        session = self._sessions.get(only_public)
        if session is None:
            session = self._sessions[only_public] = _new_session(only_public=only_public)
        try:
            async with (
                asyncio.timeout(timeout.total_seconds()),
                session.get(url, headers=_HEADERS, allow_redirects=False) as response,
            ):
                return await _read(response, max_size)
        except TimeoutError:
            raise FetchFailed(FetchReason.TIMEOUT) from None
        except ClientSSLError:
            raise FetchFailed(FetchReason.TLS) from None
        except ClientConnectorError:
            raise FetchFailed(FetchReason.UNREACHABLE) from None
        except ValueError:
            raise FetchFailed(FetchReason.ADDRESS) from None
        except (ClientError, OSError):
            raise FetchFailed(FetchReason.BROKEN) from None


def max_age_of(cache_control: Iterable[str]) -> timedelta | None:
    """The `max-age` of an answer; None where it names none. That it must not be kept is not listened to."""
    found = _MAX_AGE.search(",".join(cache_control))
    return None if found is None else timedelta(seconds=int(found[1]))


class _PublicResolver(ThreadedResolver):
    """Finds the public addresses of a host. Raises ValueError where it has none."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = [each for each in await super().resolve(host, port, family) if is_public(each["host"])]
        if not found:
            raise ValueError("the host has no public address")
        return found


def _new_session(*, only_public: bool) -> ClientSession:
    resolver = _PublicResolver() if only_public else None
    # Fetches are minutes apart: a connection that is kept would only be found dead.
    return ClientSession(
        connector=TCPConnector(force_close=True, use_dns_cache=False, resolver=resolver),
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        timeout=ClientTimeout(total=None, sock_connect=None),
    )


async def _read(response: ClientResponse, max_size: int) -> Fetched:
    _expect_usable(response.status, response.headers)
    if (response.content_length or 0) > max_size:
        raise FetchFailed(FetchReason.TOO_LARGE)
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > max_size:
            raise FetchFailed(FetchReason.TOO_LARGE)
    return Fetched(bytes(body), max_age_of(response.headers.getall(hdrs.CACHE_CONTROL, ())))


def _expect_usable(status: int, headers: CIMultiDictProxy[str]) -> None:
    if status != 200:
        raise FetchFailed(FetchReason.REDIRECT if 300 <= status < 400 else FetchReason.STATUS)
    if any(coding.strip().lower() != "identity" for coding in headers.getall(hdrs.CONTENT_ENCODING, ())):
        raise FetchFailed(FetchReason.ENCODING)
    if not _TYPES.fullmatch(headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()):
        raise FetchFailed(FetchReason.CONTENT_TYPE)
