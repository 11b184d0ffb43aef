"""Where a shared store is, as a file writes it: the URL of a server, and the nodes that know where one is.

What lives here: these two notations, one reader each, what a URL says in parts, and the annotated types that models
use. What must not: looking names up, any key or default of the configuration. What holds: no message quotes the text it
refuses, because that text may have come from a secret.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, WithJsonSchema

from taskgate.config.addresses import BindAddress, read_host, read_listen

_PATTERN: Final = r"^rediss?://[^\s/?#@]*(/[0-9]{1,4})?$"
_URL: Final = re.compile(r"(?P<scheme>rediss?)://(?P<authority>[^\s/?#@]*)(?:/(?P<database>[0-9]{1,4}))?", re.ASCII)
_SHAPE: Final = "must be redis://HOST:PORT/DATABASE, with TLS rediss://; the port and the database may be left out"
_PORT: Final = 6379
_SENTINELS_PORT: Final = 26379
_NODE: Final = r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$"


class StoreAddress(NamedTuple):
    """What the URL of a store says; `server` is None where it names no host."""

    tls: bool
    server: BindAddress | None
    database: int


def place_of(url: str) -> StoreAddress:
    """What a URL says. ValueError where it is none."""
    # The message for one with a user in it says where that goes.
    if "@" in url:
        raise ValueError("must not hold a user name or password: username and password are keys of their own")
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(_SHAPE)
    server = _server(match["authority"], _PORT) if match["authority"] else None
    return StoreAddress(tls=match["scheme"] == "rediss", server=server, database=int(match["database"] or 0))


def node_of(written: str) -> BindAddress:
    """The address of a sentinel; without a port it is the usual one. ValueError where it is none."""
    return _server(written, _SENTINELS_PORT)


def _server(authority: str, usual: int) -> BindAddress:
    try:
        named = read_host(authority)
    except ValueError:
        raise ValueError("must name a host, and a port from 1 to 65535 if any") from None
    has_port = not named.endswith("]") and ":" in named
    address = read_listen(named if has_port else f"{named}:{usual}")
    if address.port == 0:
        raise ValueError("must name a host, and a port from 1 to 65535 if any")
    return address


def _read_url(written: str) -> str:
    place_of(written)
    return written


def _read_node(written: str) -> str:
    return str(node_of(written))


def _pattern(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


StoreUrl = Annotated[str, AfterValidator(_read_url), _pattern(_PATTERN)]
Node = Annotated[str, AfterValidator(_read_node), _pattern(_NODE)]
