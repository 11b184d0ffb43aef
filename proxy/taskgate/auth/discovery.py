"""Discovery of an issuer's keys (RFC 8414, OpenID Connect), and which addresses are allowed.

`metadata_urls` says where metadata may be, `jwks_uri` reads the address of the keys from a
document. `fetch` does the requests, and asks `is_allowed` before each.
"""

import re
from ipaddress import ip_address
from typing import Final, Literal

import orjson
from yarl import URL

_OAUTH: Final = "/.well-known/oauth-authorization-server"
_OIDC: Final = "/.well-known/openid-configuration"
_CHARACTERS: Final = re.compile(r"[!-\[\]-~]{1,2048}")
"""URL parsers disagree about blanks, control characters and backslashes, so these are refused."""


class DiscoveryRefused(ValueError):
    """Metadata that leads to no keys; the text has nothing of the document.

    `reason` is `address` for an address that is not allowed, `document` for one that is no
    metadata, `issuer` for the metadata of another issuer.
    """

    def __init__(self, reason: Literal["address", "document", "issuer"]) -> None:
        super().__init__(f"The issuer's metadata cannot be used: {reason}")
        self.reason: Final = reason


def is_allowed(address: str) -> bool:
    """Whether the gateway may fetch from an address: https, or http to this machine (A-AUTH-17).

    Addresses with a user, a password or a fragment are refused.
    """
    if not _CHARACTERS.fullmatch(address) or "#" in address:
        return False
    try:
        url = URL(address)
    except ValueError:
        return False
    # Anything before an @, even if empty, hides which host it is.
    if not url.raw_host or "@" in address.split("/", 3)[2]:
        return False
    return url.scheme == "https" or (url.scheme == "http" and _is_this_machine(url.raw_host))


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """The addresses to try for an issuer's metadata, in order.

    Raises DiscoveryRefused (`address`).
    """
    if not is_allowed(issuer) or "?" in issuer:
        raise DiscoveryRefused("address")
    scheme, _, rest = issuer.partition("://")
    authority, _, path = rest.partition("/")
    origin, path = f"{scheme}://{authority}", f"/{path}".rstrip("/")
    # Without a path the last two are equal.
    return tuple(dict.fromkeys((f"{origin}{_OAUTH}{path}", f"{origin}{path}{_OIDC}", f"{origin}{_OIDC}{path}")))


def jwks_uri(document: bytes, issuer: str) -> str:
    """The address of the keys in the metadata of `issuer`; raises DiscoveryRefused.

    The document must name the issuer code point by code point. Only an issuer on this machine may
    name a plain http address.
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
    if not is_allowed(address) or (_is_plain(address) and not _is_plain(issuer)):
        raise DiscoveryRefused("address")
    if is_foreign(address, issuer) and not _may_be_public(URL(address).raw_host or ""):
        raise DiscoveryRefused("address")
    return address


def is_foreign(address: str, issuer: str) -> bool:
    """Whether an address is on another host than its issuer; then it must be public.

    The operator trusts the issuer's host alone; its metadata could name any host of the internal
    network.
    """
    named, own = URL(address).raw_host or "", URL(issuer).raw_host or ""
    return named != own and not (_is_this_machine(named) and _is_this_machine(own))


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet."""
    parsed = ip_address(address.partition("%")[0])
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_global


def _may_be_public(host: str) -> bool:
    try:
        return is_public(host)
    except ValueError:
        # A host name: the resolver of `fetch` checks the addresses that it stands for.
        return True


def _is_plain(address: str) -> bool:
    return URL(address).scheme == "http"


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
