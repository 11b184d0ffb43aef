"""HTTP requests for the documents of issuers: `HttpFetcher`.

The server may be slow, broken, or no longer the issuer's, so sizes, times, types and addresses are
checked. Every failure is a `FetchFailed`, also those of aiohttp.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

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
from yarl import URL

from taskgate.auth.metadata import is_allowed, is_public
from taskgate.content_codings import CodingBroken, CodingRefused, read_plain
from taskgate.egress import DIRECT, Egress

_HEADERS: Final = {
    hdrs.ACCEPT: "application/json, application/jwk-set+json",
    hdrs.ACCEPT_ENCODING: "identity",
    hdrs.USER_AGENT: "taskgate",
}
_TYPES: Final = re.compile(
    r"(application/json|[a-z0-9.-]+/[a-z0-9.-]+\+json|text/json|text/plain|(application|binary)/octet-stream)?"
)
"""JSON types, and those that plain file servers send with a key set; HTML is refused."""
_MAX_AGE: Final = re.compile(r"(?:^|,)\s*max-age=([0-9]{1,10})\s*(?:,|$)", re.IGNORECASE)


class FetchReason(StrEnum):
    """The reasons why a fetch failed."""

    ADDRESS = "address"
    """The address is not allowed."""
    UNREACHABLE = "unreachable"
    TLS = "tls"
    TIMEOUT = "timeout"
    REDIRECT = "redirect"
    STATUS = "status"
    ENCODING = "encoding"
    CONTENT_TYPE = "content_type"
    TOO_LARGE = "too_large"
    BROKEN = "broken"
    """The answer is not HTTP, or incomplete."""
    FILE = "file"
    """The file cannot be read."""
    CA_FILE = "ca_file"
    """The file with the trusted authorities cannot be used."""


_CAUSES: Final = {
    FetchReason.ADDRESS: "the address is not allowed",
    FetchReason.UNREACHABLE: "no connection",
    FetchReason.TLS: "the certificate is not trusted",
    FetchReason.TIMEOUT: "no answer in time",
    FetchReason.REDIRECT: "it answers with a redirect",
    FetchReason.STATUS: "it answers with an HTTP error",
    FetchReason.ENCODING: "its answer has a coding that was not requested",
    FetchReason.CONTENT_TYPE: "its answer is not JSON",
    FetchReason.TOO_LARGE: "its answer is too large",
    FetchReason.BROKEN: "its answer breaks off, or is not HTTP",
    FetchReason.FILE: "the file cannot be read",
    FetchReason.CA_FILE: "the file of authorities cannot be used",
}


class FetchFailed(Exception):
    """A failed fetch; the text has the reason, but neither the address nor a library's words.

    `problem` says more about a file; None for a URL. `cause` is for operators: an HTTP status or a few
    words.
    """

    def __init__(self, reason: FetchReason, problem: str | None = None, *, cause: str | None = None) -> None:
        super().__init__(f"Nothing was fetched: {reason.value}")
        self.reason: Final = reason.value
        self.problem: Final = problem
        self.cause: Final = cause or problem or _CAUSES[reason]


@dataclass(frozen=True, slots=True)
class FetchedDocument:
    """A document, and how long it is fresh if the server says so."""

    body: bytes
    max_age: timedelta | None = None


class Fetcher(Protocol):
    """The fetcher of issuers' documents."""

    async def get(
        self, url: str, *, timeout: timedelta, max_size: int, only_public: bool = False, ca_file: Path | None = None
    ) -> FetchedDocument:
        """Fetch a whole document of at most `max_size` bytes within `timeout`; raises FetchFailed.

        `only_public` connects to public addresses only, whatever the host name resolves to. `ca_file`
        has the trusted authorities; None means those of the system.
        """
        ...


class HttpFetcher:
    """A Fetcher over aiohttp, without redirects or cookies. `egress` says which proxy leads to a URL.

    Belongs to one event loop; `close` ends its connections.
    """

    def __init__(self, egress: Egress = DIRECT) -> None:
        self._egress = egress
        # By `only_public`.
        self._sessions: dict[bool, ClientSession] = {}

    async def close(self) -> None:
        """Close every connection; may be called again."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def get(
        self, url: str, *, timeout: timedelta, max_size: int, only_public: bool = False, ca_file: Path | None = None
    ) -> FetchedDocument:
        """Fetch a document; a server that closes without an answer is asked once more."""
        if not is_allowed(url):
            raise FetchFailed(FetchReason.ADDRESS)
        proxy = self._egress.proxy_for(url)
        if proxy is not None and only_public:
            await _expect_public(url, timeout)
            only_public = False
        session = self._sessions.get(only_public)
        if session is None:
            session = self._sessions[only_public] = _new_session(only_public=only_public)
        try:
            async with (
                asyncio.timeout(timeout.total_seconds()),
                session.get(
                    # As it is written: percent-encoded characters stay so.
                    URL(url, encoded=True),
                    headers=_HEADERS,
                    allow_redirects=False,
                    proxy=None if proxy is None else proxy.url,
                    ssl=True if ca_file is None else await _trust(ca_file),
                ) as response,
            ):
                return await _read(response, max_size)
        except TimeoutError:
            raise FetchFailed(FetchReason.TIMEOUT) from None
        except ClientSSLError:
            raise FetchFailed(FetchReason.TLS) from None
        except ClientConnectorError as error:
            raise FetchFailed(FetchReason.UNREACHABLE, cause=_words(error.os_error)) from None
        except ValueError:
            raise FetchFailed(FetchReason.ADDRESS) from None
        except (ClientError, OSError):
            raise FetchFailed(FetchReason.BROKEN) from None


def _words(error: OSError) -> str | None:
    """Why there was no connection; None without words for it. An address is not in them."""
    if isinstance(error, socket.gaierror):
        return "no connection: the host name is not known"
    return f"no connection: {os.strerror(error.errno).lower()}" if error.errno else None


def max_age_of(cache_control: Iterable[str]) -> timedelta | None:
    """The `max-age` of Cache-Control fields; None if there is none. `no-store` is ignored."""
    found = _MAX_AGE.search(",".join(cache_control))
    return None if found is None else timedelta(seconds=int(found[1]))


class _PublicResolver(ThreadedResolver):
    """A resolver of public addresses; raises ValueError for a host without any."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = [each for each in await super().resolve(host, port, family) if is_public(each["host"])]
        if not found:
            raise ValueError("the host has no public address")
        return found


async def _expect_public(url: str, timeout: timedelta) -> None:
    """Raise FetchFailed if the host is no public address, or a name that this machine resolves to none.

    A proxy resolves the name itself: of one that is unknown here, its address cannot be checked.
    """
    host = URL(url).host or ""
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            # Of an address it returns just that.
            await _PublicResolver().resolve(host, family=socket.AF_UNSPEC)
    except ValueError:
        raise FetchFailed(FetchReason.ADDRESS) from None
    except TimeoutError:
        raise FetchFailed(FetchReason.TIMEOUT) from None
    except socket.gaierror:
        return
    except OSError:
        raise FetchFailed(FetchReason.BROKEN) from None


async def _trust(ca_file: Path) -> ssl.SSLContext:
    """Return a context that trusts the authorities of a file as it is now. Raises FetchFailed."""
    from taskgate.authorities import AuthoritiesRefused, read_trust  # noqa: PLC0415

    try:
        return await read_trust(ca_file)
    except AuthoritiesRefused as refused:
        raise FetchFailed(FetchReason.CA_FILE, str(refused)) from None


def _new_session(*, only_public: bool) -> ClientSession:
    resolver = _PublicResolver() if only_public else None
    # Fetches are minutes apart: a kept connection would only be found dead.
    return ClientSession(
        connector=TCPConnector(force_close=True, use_dns_cache=False, resolver=resolver),
        cookie_jar=DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        timeout=ClientTimeout(total=None, sock_connect=None),
    )


async def _read(response: ClientResponse, max_size: int) -> FetchedDocument:
    _expect_usable(response.status, response.headers)
    if (response.content_length or 0) > max_size:
        raise FetchFailed(FetchReason.TOO_LARGE)
    try:
        body = await read_plain(
            response.content.iter_any(), response.headers.getall(hdrs.CONTENT_ENCODING, ()), max_size
        )
    except CodingRefused:
        raise FetchFailed(FetchReason.ENCODING) from None
    except CodingBroken:
        raise FetchFailed(FetchReason.BROKEN) from None
    if body is None:
        raise FetchFailed(FetchReason.TOO_LARGE)
    return FetchedDocument(body, max_age_of(response.headers.getall(hdrs.CACHE_CONTROL, ())))


def _expect_usable(status: int, headers: CIMultiDictProxy[str]) -> None:
    if status != 200:
        reason = FetchReason.REDIRECT if 300 <= status < 400 else FetchReason.STATUS
        raise FetchFailed(reason, cause=f"HTTP {status}")
    if not _TYPES.fullmatch(headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()):
        raise FetchFailed(FetchReason.CONTENT_TYPE)
