"""Where things are, as a file writes it: listen addresses, URLs, hosts, origins, mount paths, files, folders.

What lives here: the notations, one reader each, and the annotated types that models use. What must not: looking names
up, any key or default of the configuration. What holds: a reader gives the canonical form or raises ValueError; what is
canonical reads as itself; no message quotes the text it refuses, because that text may have come from a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, PlainSerializer, PlainValidator, WithJsonSchema

from taskgate.auth.discovery import may_be_asked

_AUTHORITY = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_])?")
_NUMERIC = re.compile(r"(?:.*\.)?[0-9]+\.?")
_LOOPBACK = IPv4Network("127.0.0.0/8")
_HIGHEST_PORT = 65535
_LONGEST_FETCHED = 2048
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not bound
_LOCALHOST = frozenset({"127.0.0.1", "::1"})
_USUAL_PORTS = {"http": 80, "https": 443}

# What editors check; the readers below know more.
_HOST = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
_URL = r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s#]+$"
_ORIGIN = rf"^[A-Za-z][A-Za-z0-9+.-]*://{_HOST}(:[0-9]{{1,5}})?$"
_MOUNT = r"^(/[A-Za-z0-9._~-]+)+$"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindAddress:
    """An address to listen on; `host` is without brackets, `port` 0 asks for a free one."""

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
    def is_everywhere(self) -> bool:
        """Whether it stands for every address of the machine, none of which others can tell from it."""
        return self.host in _EVERYWHERE

    def overlaps(self, other: BindAddress) -> bool:
        """Whether the two would listen on one port of one address, as far as can be said without looking names up.

        A free port is nobody else's. The name localhost is 127.0.0.1 and ::1, and 0.0.0.0 and :: are every address.
        """
        if self.port != other.port or self.port == 0:
            return False
        ours, theirs = self._addresses, other._addresses
        return not (_EVERYWHERE.isdisjoint(ours | theirs) and ours.isdisjoint(theirs))

    @property
    def _addresses(self) -> frozenset[str]:
        return _LOCALHOST if self.host == "localhost" else frozenset({self.host})


def read_listen(written: object) -> BindAddress:
    """The address that `HOST:PORT` or `[IPV6]:PORT` means; a Listen passes."""
    if isinstance(written, BindAddress):
        return written
    host, port = _authority(written) if isinstance(written, str) else (None, None)
    if host is None or port is None:
        raise ValueError("must be HOST:PORT or [IPV6]:PORT, such as 127.0.0.1:8080")
    return BindAddress(host=host, port=port)


MASK: Final = "********"
"""What stands where a secret would be shown."""


def masked(text: str) -> str:
    """A text as it may be shown: of a URL, the values of its query are hidden, since keys of services stand there."""
    if "://" not in text or "?" not in text:
        return text
    place, _, query = text.partition("?")
    parts = (part.partition("=") for part in query.split("&"))
    return f"{place}?" + "&".join(f"{name}={MASK}" if equals else MASK for name, equals, _ in parts)


def read_url(written: str) -> str:
    """The URL itself, when it is absolute http(s) with a host, without user, password or fragment."""
    # urlsplit drops some control characters silently, so the alphabet is checked before it sees the text.
    if not re.fullmatch(r"https?://[!-~]+", written, re.IGNORECASE):
        raise ValueError("must be an absolute http or https URL, in ASCII and without spaces")
    if "#" in written:
        raise ValueError("must not have a fragment")
    if MASK in written.partition("?")[2]:
        raise ValueError(f"must not have {MASK} in its query, which stands for what is not shown")
    authority = re.split(r"[/?\\]", written.split("://", 1)[1], maxsplit=1)[0]
    if "@" in authority:
        raise ValueError("must not hold a user name or password")
    host, port = _authority(authority)
    if host is None or port == 0:
        raise ValueError("must name a host, and a port from 1 to 65535 if any")
    return written


def read_public_url(written: str) -> str:
    """As `read_url`, without a query; a slash at the end is dropped, because paths are appended."""
    if "?" in read_url(written):
        raise ValueError("must not have a query")
    return written.rstrip("/")


def read_fetched_url(written: str) -> str:
    """As `read_url`, for what is fetched to be believed: https, or plain http that does not leave this machine."""
    read_url(written)
    if len(written) > _LONGEST_FETCHED or "\\" in written:
        raise ValueError(f"must be at most {_LONGEST_FETCHED} characters, without a backslash")
    if not may_be_asked(written):
        raise ValueError("must be https, or plain http on a loopback host (127.0.0.1, [::1] or localhost)")
    return written


def read_issuer(written: str) -> str:
    """As `read_fetched_url`, without a query. Nothing is normalised, because issuers are compared letter by letter."""
    if "?" in read_fetched_url(written):
        raise ValueError("must not have a query")
    return written


def read_host(written: str) -> str:
    """A value of the Host header, `HOST` or `HOST:PORT`, in lower case."""
    host, port = _authority(written)
    if host is None:
        raise ValueError("must be HOST or HOST:PORT, without scheme or wildcard")
    return _bracketed(host) if port is None else f"{_bracketed(host)}:{port}"


def read_origin(written: str) -> str:
    """A value of the Origin header as browsers send it: lower case, without the scheme's usual port."""
    if not re.fullmatch(_ORIGIN, written):
        raise ValueError("must be an origin such as https://app.example.com, without path or wildcard")
    parts = urlsplit(written)
    host, port = _authority(parts.netloc)
    if host is None:
        raise ValueError("must name a host, and a port from 0 to 65535 if any")
    suffix = "" if port in (None, _USUAL_PORTS.get(parts.scheme)) else f":{port}"
    return f"{parts.scheme}://{_bracketed(host)}{suffix}"


def read_mount_path(written: str) -> str:
    """The path itself, when it can be told from every other path byte by byte."""
    segments = written.split("/")[1:]
    if not re.fullmatch(_MOUNT, written) or "." in segments or ".." in segments:
        raise ValueError("must be a path such as /reports/mcp: letters, digits and . _ ~ -, no slash at the end")
    if segments[0] == ".well-known":
        raise ValueError("must not lie under /.well-known, which is reserved")
    return written


def read_file_path(written: object) -> Path:
    """The path of a file; a Path passes."""
    if isinstance(written, Path):
        return written
    if not isinstance(written, str) or not written.isprintable() or not written.strip():
        raise ValueError("must be the path of a file")
    return Path(written)


def read_folder_path(written: object) -> Path:
    """As `read_file_path`, for a folder."""
    try:
        return read_file_path(written)
    except ValueError:
        raise ValueError("must be the path of a folder") from None


def read_database_path(written: object) -> Path:
    """As `read_file_path`, for a file of SQLite."""
    # sqlite3 would take this name for a database that dies with the process.
    if written == ":memory:":
        raise ValueError("must be the path of a file; to keep nothing, set store.backend to memory")
    return read_file_path(written)


def _authority(written: str) -> tuple[str | None, int | None]:
    """Host in canonical form and port; the host is None when either is malformed."""
    match = _AUTHORITY.fullmatch(written)
    port = int(match["port"]) if match and match["port"] else None
    if match is None or (port or 0) > _HIGHEST_PORT:
        return None, None
    try:
        if match["six"]:
            return str(IPv6Address(match["six"])), port
        # A last label of digits makes it an IPv4 address for every URL parser, so 127.1 and 1.2.3 are no names.
        if _NUMERIC.fullmatch(match["name"]):
            return str(IPv4Address(match["name"])), port
    except ValueError:
        return None, None
    name = match["name"].lower()
    return (name if _NAME.fullmatch(name) else None), port


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _pattern(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


ListenAddress = Annotated[
    BindAddress,
    PlainValidator(read_listen),
    PlainSerializer(str, when_used="json"),
    _pattern(rf"^{_HOST}:[0-9]{{1,5}}$"),
]
Url = Annotated[str, AfterValidator(read_url), _pattern(_URL)]
FetchedUrl = Annotated[str, AfterValidator(read_fetched_url), _pattern(_URL)]
Issuer = Annotated[str, AfterValidator(read_issuer), _pattern(_URL)]
PublicUrl = Annotated[str, AfterValidator(read_public_url), _pattern(_URL)]
Host = Annotated[str, AfterValidator(read_host), _pattern(rf"^{_HOST}(:[0-9]{{1,5}})?$")]
Origin = Annotated[str, AfterValidator(read_origin), _pattern(_ORIGIN)]
MountPath = Annotated[str, AfterValidator(read_mount_path), _pattern(_MOUNT)]
FilePath = Annotated[Path, PlainValidator(read_file_path), PlainSerializer(str, when_used="json"), _pattern(r"\S")]
FolderPath = Annotated[Path, PlainValidator(read_folder_path), PlainSerializer(str, when_used="json"), _pattern(r"\S")]
DatabasePath = Annotated[
    Path, PlainValidator(read_database_path), PlainSerializer(str, when_used="json"), _pattern(r"\S")
]
