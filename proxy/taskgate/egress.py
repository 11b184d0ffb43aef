"""The proxies through which the gateway reaches servers, issuers and token endpoints: `Egress`.

The environment names them (`from_environment`), or the configuration. Loopback is always direct. A
password is in no representation. Pure.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Final
from urllib.parse import unquote, urlsplit

from taskgate.ip_addresses import Address, Network, read_address, unmapped

_PORTS: Final = {"http": 80, "https": 443}
_MASK: Final = "********"
_SPACE: Final = re.compile(r"[\s,]+")
WRONG_PROXY: Final = "must be http://HOST:PORT or http://USER:PASSWORD@HOST:PORT"


class TunnelRefused(OSError):
    """The proxy opened no tunnel. `status` is that of its answer, 0 if it gave none."""

    def __init__(self, status: int) -> None:
        super().__init__("the proxy opened no tunnel")
        self.status = status


@dataclass(frozen=True, slots=True)
class ForwardProxy:
    """A proxy that is spoken to in plain HTTP. `credentials` are user name and password, as in its URL."""

    host: str
    port: int
    credentials: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Its URL for operators."""
        return self._url("" if self.credentials is None else f"{_MASK}@")

    @property
    def url(self) -> str:
        """Its URL, with user name and password."""
        return self._url("" if self.credentials is None else f"{self.credentials}@")

    @property
    def authorization(self) -> str | None:
        """The value of Proxy-Authorization."""
        if self.credentials is None:
            return None
        user, _, password = self.credentials.partition(":")
        return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()

    def _url(self, user: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{user}{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class _Exception:
    """Targets that are reached directly: a network, or a name with all below it, at a port or at all."""

    network: Network | None
    name: str
    port: int | None

    def covers(self, address: Address | None, host: str, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return address is not None and address in self.network
        return self.name in ("*", host) or host.endswith(f".{self.name}")


@dataclass(frozen=True, slots=True)
class Egress:
    """Which proxy leads to a target: `http` or `https` by its scheme, None for the direct way."""

    http: ForwardProxy | None = None
    https: ForwardProxy | None = None
    exceptions: tuple[_Exception, ...] = ()

    def proxy_for(self, url: str) -> ForwardProxy | None:
        """Return the proxy that leads to a URL. Raises ValueError for an invalid one."""
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        proxy = self.https if scheme == "https" else self.http
        if proxy is None:
            return None
        host = (parts.hostname or "").rstrip(".")
        address = read_address(host.partition("%")[0])
        is_loopback = host == "localhost" or host.endswith(".localhost") if address is None else address.is_loopback
        port = parts.port or _PORTS.get(scheme, 0)
        if is_loopback or any(each.covers(address, host, port) for each in self.exceptions):
            return None
        return proxy

    def lines(self) -> list[str]:
        """Return what it does, for operators; nothing if all ways are direct."""
        if self.http == self.https and self.http is not None:
            return [f"{self.http} for http and https"]
        named = (("http", self.http), ("https", self.https))
        return [f"{proxy} for {scheme}" for scheme, proxy in named if proxy is not None]


DIRECT: Final = Egress()


def read_proxy(url: str) -> ForwardProxy:
    """Read the URL of a proxy; one without a scheme is HTTP. Raises ValueError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(WRONG_PROXY) from None
    if parts.scheme.lower() != "http" or not host or not url.isprintable() or " " in url or parts.path not in ("", "/"):
        raise ValueError(WRONG_PROXY)
    if parts.query or parts.fragment:
        raise ValueError(WRONG_PROXY)
    credentials, at, _ = parts.netloc.rpartition("@")
    return ForwardProxy(host, port or _PORTS["http"], credentials if at else None)


def read_exceptions(text: str) -> tuple[_Exception, ...]:
    """Read a list of names, suffixes, addresses and networks, as NO_PROXY has it. No entry is refused."""
    return tuple(_exception(entry) for entry in _SPACE.split(text) if entry)


def from_environment(environ: Mapping[str, str]) -> Egress:
    """Return the proxies that the environment names. Raises ValueError, which names the variable.

    Of two spellings the one in lower case counts.
    """
    return Egress(
        http=_proxy_of("HTTP_PROXY", environ),
        https=_proxy_of("HTTPS_PROXY", environ),
        exceptions=read_exceptions(_variable("NO_PROXY", environ)),
    )


def _variable(name: str, environ: Mapping[str, str]) -> str:
    return environ.get(name.lower()) or environ.get(name) or ""


def _proxy_of(name: str, environ: Mapping[str, str]) -> ForwardProxy | None:
    written = _variable(name, environ).strip()
    try:
        return read_proxy(written) if written else None
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LAST_PORT: Final = 65535


def _exception(entry: str) -> _Exception:
    entry = entry.lower()
    try:
        return _Exception(unmapped(ip_network(entry.strip("[]"), strict=False)), "", None)
    except ValueError:
        pass
    name, colon, digits = entry.rpartition(":")
    port = int(digits) if colon and _PORT.fullmatch(digits) and int(digits) <= _LAST_PORT else None
    name = name if port is not None else entry
    address = read_address(name.strip("[]").partition("%")[0])
    if address is not None:
        return _Exception(ip_network(address), "", port)
    return _Exception(None, name.removeprefix("*.").strip(".") if name != "*" else name, port)
