"""Where an issuer says that its keys are: what to ask (RFC 8414, OpenID Connect), and what an answer says. Pure.

Here stands which addresses may be asked at all. What must not live here: asking.
"""

import re
from ipaddress import ip_address
from typing import Final, Literal

import orjson
from yarl import URL

_OAUTH: Final = "/.well-known/oauth-authorization-server"
_OIDC: Final = "/.well-known/openid-configuration"
_CHARACTERS: Final = re.compile(r"[!-\[\]-~]{1,2048}")
"""No blank, no control character and no backslash: readers of addresses disagree about them."""


class DiscoveryRefused(ValueError):
    """No keys are to be had this way: `address` is one that must not be asked, `document` is none of metadata, and
    `issuer` one of somebody else. The text says nothing of what was read."""

    def __init__(self, reason: Literal["address", "document", "issuer"]) -> None:
        super().__init__(f"The issuer's metadata cannot be used: {reason}")
        self.reason: Final = reason


def may_be_asked(address: str) -> bool:
    """Whether something may be fetched from there: https, or plain http from this machine (A-AUTH-17).

    An address with a user, a password or a fragment is not for fetching.
    """
    if not _CHARACTERS.fullmatch(address) or "#" in address:
        return False
    try:
        url = URL(address)
    except ValueError:
        return False
    # What stands before the host, even empty, hides which host it is.
    if not url.raw_host or "@" in address.split("/", 3)[2]:
        return False
    return url.scheme == "https" or (url.scheme == "http" and _is_this_machine(url.raw_host))


def metadata_addresses(issuer: str) -> tuple[str, ...]:
    """Where the issuer's metadata may be, in the order in which to ask. Raises DiscoveryRefused (`address`)."""
    if not may_be_asked(issuer) or "?" in issuer:
        raise DiscoveryRefused("address")
    scheme, _, rest = issuer.partition("://")
    authority, _, path = rest.partition("/")
    origin, path = f"{scheme}://{authority}", f"/{path}".rstrip("/")
    # Without a path the last two are one.
    return tuple(dict.fromkeys((f"{origin}{_OAUTH}{path}", f"{origin}{path}{_OIDC}", f"{origin}{_OIDC}{path}")))


def keys_address(document: bytes, issuer: str) -> str:
    """Where the keys are, by the metadata of `issuer`. Raises DiscoveryRefused.

    The document must name the issuer code point by code point, and only an issuer on this machine may send us to plain
    http.
    """
    try:
        metadata = orjson.loads(document)
    except orjson.JSONDecodeError:
        raise DiscoveryRefused("document") from None
    if not isinstance(metadata, dict):
        raise DiscoveryRefused("document")
    if metadata.get("issuer") != issuer:
        raise DiscoveryRefused("issuer")
    address = metadata.get("jwks_uri")
    if not isinstance(address, str):
        raise DiscoveryRefused("document")
    if not may_be_asked(address) or (_is_plain(address) and not _is_plain(issuer)):
        raise DiscoveryRefused("address")
    if leads_elsewhere(address, issuer) and not _may_be_public(URL(address).raw_host or ""):
        raise DiscoveryRefused("address")
    return address


def leads_elsewhere(address: str, issuer: str) -> bool:
    """Whether an address is on another host than its issuer: then it has to be a public one.

    The operator chose the issuer's host, and no other: what its metadata name could be anything within our network.
    """
    named, own = URL(address).raw_host or "", URL(issuer).raw_host or ""
    return named != own and not (_is_this_machine(named) and _is_this_machine(own))


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet."""
    read = ip_address(address.partition("%")[0])
    return (getattr(read, "ipv4_mapped", None) or read).is_global


def _may_be_public(host: str) -> bool:
    try:
        return is_public(host)
    except ValueError:
        # A name: its addresses are looked at by what connects.
        return True


def _is_plain(address: str) -> bool:
    return URL(address).scheme == "http"


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
