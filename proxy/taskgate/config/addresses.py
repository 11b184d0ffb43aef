"""Addresses in a file: listen addresses, URLs, hosts, networks, mount paths and file paths.

Each notation has a reader and an `Annotated` type for the fields of models. A reader returns the
canonical form or raises ValueError; a canonical form reads as itself. No name is looked up. No
message quotes the text that it refuses, because the text may have come from a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, PlainSerializer, PlainValidator, ValidationInfo

from taskgate.auth.metadata import is_allowed
from taskgate.config.fields import MASK, json_pattern
from taskgate.ip_addresses import unmapped

_AUTHORITY = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_])?")
_SCHEME = re.compile(r"[A-Za-z0-9+.-]://")
_NUMERIC = re.compile(r"(?:.*\.)?[0-9]+\.?")
_LOOPBACK = IPv4Network("127.0.0.0/8")
_MAX_PORT = 65535
_MAX_SECURE_URL = 2048
_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not bound
_LOCALHOST = frozenset({"127.0.0.1", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}

# The patterns of the JSON Schema; the readers check more.
_HOST = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
_URL = r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s#]+$"
_ORIGIN = rf"^[A-Za-z][A-Za-z0-9+.-]*://({_HOST}(:[0-9]{{1,5}})?)?$"
_MOUNT = r"^(/|(/[A-Za-z0-9._~-]+)+)$"


# --- listen addresses and hosts -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BindAddress:
    """An address to listen on; `host` has no brackets, `port` 0 asks for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it: 127.0.0.0/8, ::1 or the name localhost."""
        if ":" in self.host:
            return IPv6Address(self.host) == IPv6Address("::1")
        if _NUMERIC.fullmatch(self.host):
            return IPv4Address(self.host) in _LOOPBACK
        return self.host == "localhost"

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every address of the machine, so clients use other addresses."""
        return self.host in _WILDCARDS

    def overlaps(self, other: BindAddress) -> bool:
        """Whether both listen on one port of one address, as far as is known without DNS.

        A free port is never shared. The name localhost is 127.0.0.1 and ::1; 0.0.0.0 and :: are
        every address.
        """
        if self.port != other.port or self.port == 0:
            return False
        ours, theirs = self._addresses, other._addresses
        return not (_WILDCARDS.isdisjoint(ours | theirs) and ours.isdisjoint(theirs))

    @property
    def _addresses(self) -> frozenset[str]:
        return _LOCALHOST if self.host == "localhost" else frozenset({self.host})


def read_listen(written: object) -> BindAddress:
    """Read `HOST:PORT` or `[IPV6]:PORT`; a BindAddress is returned as is."""
    if isinstance(written, BindAddress):
        return written
    host, port = _authority(written) if isinstance(written, str) else (None, None)
    if host is None or port is None:
        raise ValueError("must be HOST:PORT or [IPV6]:PORT, such as 127.0.0.1:8080")
    return BindAddress(host=host, port=port)


def read_host(written: str) -> str:
    """Read a value of the Host header, `HOST` or `HOST:PORT`, in lower case."""
    host, port = _authority(written)
    if host is None:
        raise ValueError("must be HOST or HOST:PORT, without scheme or wildcard")
    return _bracketed(host) if port is None else f"{_bracketed(host)}:{port}"


def read_host_name(written: str) -> str:
    """Read a name, or `*.NAME` for all names below it, in lower case."""
    host, port = _authority(written.removeprefix("*."))
    if host is None or port is not None or ":" in host or _NUMERIC.fullmatch(host):
        raise ValueError("must be a name such as gateway.example.com or *.example.com, without scheme or port")
    return written.lower()


def read_origin(written: str) -> str:
    """Read a value of the Origin header as browsers send it.

    It is in lower case, without the default port of its scheme. A scheme of an application may have
    a place that is no host, or none: `app://.` and `file://` are as they are written.
    """
    if not re.fullmatch(_ORIGIN, written):
        raise ValueError("must be an origin such as https://app.example.com, without path or wildcard")
    parts = urlsplit(written)
    host, port = _authority(parts.netloc)
    if host is None:
        if parts.scheme not in _DEFAULT_PORTS and ":" not in parts.netloc:
            return written.lower()
        raise ValueError("must name a host, and a port from 0 to 65535 if any")
    suffix = "" if port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{port}"
    return f"{parts.scheme}://{_bracketed(host)}{suffix}"


def _authority(written: str) -> tuple[str | None, int | None]:
    """Return the canonical host and the port; the host is None when either is malformed."""
    match = _AUTHORITY.fullmatch(written)
    port = int(match["port"]) if match and match["port"] else None
    if match is None or (port or 0) > _MAX_PORT:
        return None, None
    try:
        if match["six"]:
            return str(IPv6Address(match["six"])), port
        # URL parsers read a name whose last label is digits as an IPv4 address, so 127.1 is no name.
        if _NUMERIC.fullmatch(match["name"]):
            return str(IPv4Address(match["name"])), port
    except ValueError:
        return None, None
    name = match["name"].lower()
    return (name if _NAME.fullmatch(name) else None), port


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


ListenAddress = Annotated[
    BindAddress,
    PlainValidator(read_listen),
    PlainSerializer(str, when_used="json"),
    json_pattern(rf"^{_HOST}:[0-9]{{1,5}}$"),
]
HostName = Annotated[str, AfterValidator(read_host_name), json_pattern(r"^(\*\.)?[A-Za-z0-9_][A-Za-z0-9._-]*$")]
Host = Annotated[str, AfterValidator(read_host), json_pattern(rf"^{_HOST}(:[0-9]{{1,5}})?$")]
Origin = Annotated[str, AfterValidator(read_origin), json_pattern(_ORIGIN)]


# --- networks -------------------------------------------------------------------------------------------------------


_NETWORK = r"[0-9A-Fa-f:.]+(/[0-9]{1,3})?"
_NETWORK_EXPECTED = "must be a network such as 10.0.0.0/8 or fd00::/8, or one address"


def read_network(written: object) -> IPv4Network | IPv6Network:
    """Read `ADDRESS/BITS` or one address; an IPv4-mapped network becomes an IPv4 one.

    A network is returned as is.
    """
    if isinstance(written, IPv4Network | IPv6Network):
        return written
    if not isinstance(written, str) or not re.fullmatch(_NETWORK, written):
        raise ValueError(_NETWORK_EXPECTED)
    try:
        network = ip_network(written, strict=False)
    except ValueError:
        raise ValueError(_NETWORK_EXPECTED) from None
    if network.network_address != ip_network(written.partition("/")[0]).network_address:
        raise ValueError("must not have bits set behind its prefix: 10.0.0.0/8 is a network, 10.0.0.1 one address")
    return unmapped(network)


Network = Annotated[
    IPv4Network | IPv6Network,
    PlainValidator(read_network),
    PlainSerializer(str, when_used="json"),
    json_pattern(f"^{_NETWORK}$"),
]


# --- URLs -----------------------------------------------------------------------------------------------------------


def masked(text: str) -> str:
    """Mask the values in the query of a URL, which may be API keys; another text stays as it is."""
    if not _SCHEME.search(text) or "?" not in text:
        return text
    place, _, query = text.partition("?")
    parts = (part.partition("=") for part in query.split("&"))
    return f"{place}?" + "&".join(f"{name}={MASK}" if equals else MASK for name, equals, _ in parts)


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, which logs show. Its path and query may have keys."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def read_url(written: str) -> str:
    """Return an absolute http(s) URL with a host, without user, password or fragment."""
    # urlsplit silently drops some control characters, so the alphabet is checked first.
    if not re.fullmatch(r"https?://[!-~]+", written, re.IGNORECASE):
        raise ValueError("must be an absolute http or https URL, in ASCII and without spaces")
    if "#" in written:
        raise ValueError("must not have a fragment")
    authority = re.split(r"[/?\\]", written.split("://", 1)[1], maxsplit=1)[0]
    if "@" in authority:
        raise ValueError("must not hold a user name or password")
    host, port = _authority(authority)
    if host is None or port == 0:
        raise ValueError("must name a host, and a port from 1 to 65535 if any")
    return written


def read_public_url(written: str) -> str:
    """Read a URL without a query; a slash at its end is dropped, because paths are appended."""
    if "?" in read_url(written):
        raise ValueError("must not have a query")
    if "\\" in written:
        raise ValueError("must not have a backslash")
    return written.rstrip("/")


def read_secure_url(written: str) -> str:
    """Return a URL whose answer is trusted: https, or http on a loopback host."""
    read_url(written)
    if len(written) > _MAX_SECURE_URL or "\\" in written:
        raise ValueError(f"must be at most {_MAX_SECURE_URL} characters, without a backslash")
    if not is_allowed(written):
        raise ValueError("must be https, or plain http on a loopback host (127.0.0.1, [::1] or localhost)")
    return written


def read_issuer(written: str) -> str:
    """Return a secure URL without a query, as it is, because issuers are compared byte by byte."""
    if "?" in read_secure_url(written):
        raise ValueError("must not have a query")
    return written


Url = Annotated[str, AfterValidator(read_url), json_pattern(_URL)]
SecureUrl = Annotated[str, AfterValidator(read_secure_url), json_pattern(_URL)]
Issuer = Annotated[str, AfterValidator(read_issuer), json_pattern(_URL)]
PublicUrl = Annotated[str, AfterValidator(read_public_url), json_pattern(_URL)]


# --- Redis servers --------------------------------------------------------------------------------------------------


_REDIS = re.compile(r"(?P<scheme>rediss?)://(?P<authority>[^\s/?#@]*)(?:/(?P<database>[0-9]{1,4}))?", re.ASCII)
_REDIS_PORT = 6379
_SENTINEL_PORT = 26379


class StoreAddress(NamedTuple):
    """The parts of a `redis://` URL; `server` is None where it names no host."""

    tls: bool
    server: BindAddress | None
    database: int


def read_store_url(url: str) -> StoreAddress:
    """Read `redis://HOST:PORT/DATABASE`, with TLS `rediss://`; host, port and database are
    optional.
    """
    if "@" in url:
        raise ValueError("must not hold a user name or password: username and password are keys of their own")
    match = _REDIS.fullmatch(url)
    if match is None:
        raise ValueError(
            "must be redis://HOST:PORT/DATABASE, with TLS rediss://; the port and the database may be left out"
        )
    server = _redis_server(match["authority"], _REDIS_PORT) if match["authority"] else None
    return StoreAddress(tls=match["scheme"] == "rediss", server=server, database=int(match["database"] or 0))


def read_sentinel(written: str) -> BindAddress:
    """Read the address of a sentinel, `HOST` or `HOST:PORT`; the default port is 26379."""
    return _redis_server(written, _SENTINEL_PORT)


def _redis_server(authority: str, default_port: int) -> BindAddress:
    try:
        named = read_host(authority)
    except ValueError:
        raise ValueError("must name a host, and a port from 1 to 65535 if any") from None
    has_port = not named.endswith("]") and ":" in named
    address = read_listen(named if has_port else f"{named}:{default_port}")
    if address.port == 0:
        raise ValueError("must name a host, and a port from 1 to 65535 if any")
    return address


def _check_store_url(url: str) -> str:
    read_store_url(url)
    return url


StoreUrl = Annotated[str, AfterValidator(_check_store_url), json_pattern(r"^rediss?://[^\s/?#@]*(/[0-9]{1,4})?$")]
Sentinel = Annotated[
    str,
    AfterValidator(lambda written: str(read_sentinel(written))),
    json_pattern(rf"^{_HOST}(:[0-9]{{1,5}})?$"),
]


# --- paths ----------------------------------------------------------------------------------------------------------


def read_mount_path(written: str) -> str:
    """Return a path that differs from every other mount path byte by byte."""
    segments = written.split("/")[1:]
    if not re.fullmatch(_MOUNT, written) or "." in segments or ".." in segments:
        raise ValueError("must be a path such as /reports/mcp: letters, digits and . _ ~ -, no slash at the end")
    if segments[0] == ".well-known":
        raise ValueError("must not lie under /.well-known, which is reserved")
    return written


def read_file_path(written: object) -> Path:
    """Read the path of a file; a Path is returned as is."""
    if isinstance(written, Path):
        return written
    if not isinstance(written, str) or not written.isprintable() or not written.strip():
        raise ValueError("must be the path of a file")
    return Path(written)


def read_folder_path(written: object) -> Path:
    """Read the path of a folder; a Path is returned as is."""
    try:
        return read_file_path(written)
    except ValueError:
        raise ValueError("must be the path of a folder") from None


def read_database_path(written: object) -> Path:
    """Read the path of a file of SQLite; a Path is returned as is."""
    # sqlite3 takes this name for a database in memory.
    if written == ":memory:":
        raise ValueError("must be the path of a file; to keep nothing, set store.backend to memory")
    return read_file_path(written)


def _in_folder(path: Path, info: ValidationInfo) -> Path:
    """Join a relative path to the folder of the file, if the context of the validation has one."""
    return path if info.context is None else info.context.folder / path


MountPath = Annotated[str, AfterValidator(read_mount_path), json_pattern(_MOUNT)]
_JOINED = AfterValidator(_in_folder)
_WRITTEN = PlainSerializer(str, when_used="json")
FilePath = Annotated[Path, PlainValidator(read_file_path), _JOINED, _WRITTEN, json_pattern(r"\S")]
FolderPath = Annotated[Path, PlainValidator(read_folder_path), _JOINED, _WRITTEN, json_pattern(r"\S")]
DatabasePath = Annotated[Path, PlainValidator(read_database_path), _JOINED, _WRITTEN, json_pattern(r"\S")]
