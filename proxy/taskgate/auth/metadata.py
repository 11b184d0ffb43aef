"""OAuth metadata: that of mounts, for hosts (RFC 9728), and that of issuers (RFC 8414, OpenID Connect).

Hosts read in the first which authorization servers give tokens for a mount; challenges name its
URL. The scope `offline_access` is left out: it concerns a host and its authorization server only
(A-AUTH-9).

The gateway reads in the second where the keys of an issuer are. `metadata_urls` says where it may
be, `jwks_uri` reads the address of the keys from it. `fetch` does the requests, and asks
`is_allowed` before each.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import urlsplit

import orjson
from yarl import URL

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"

_HIDDEN_SCOPES = frozenset({"offline_access"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_QUOTABLE = re.compile(r"[ -~]*")
# RFC 6749, 3.3. The allowed characters need no escape, and cannot be read as two scopes.
_SCOPE = re.compile(r"[!#-\[\]-~]+")


def canonical_url(public_url: str, mount_path: str) -> str:
    """The canonical URL of a mount: `resource` and the audience of its tokens (A-AUTH-11).

    Scheme and host are in lower case, without the default port and a slash at the end. The
    configuration has checked `public_url`: it has a host, but no user name, query or fragment.
    """
    parts = urlsplit(public_url)
    assert parts.hostname is not None, "a URL with a host"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}{mount_path.rstrip('/')}"


def metadata_path(mount_path: str) -> str:
    """The path of a mount's document on the gateway's own listener."""
    return WELL_KNOWN + mount_path.rstrip("/")


def document_url(resource: str) -> str:
    """The URL of the document of a canonical URL: the well-known path is between host and path."""
    parts = urlsplit(resource)
    return f"{parts.scheme}://{parts.netloc}{metadata_path(parts.path)}"


def root_mount(mount_paths: Sequence[str]) -> str | None:
    """The mount whose document is also served at `WELL_KNOWN`, for hosts that know no other path.

    It is the only mount, or None. With several mounts a host could get a token for the wrong
    audience there; without the document it looks elsewhere.
    """
    return mount_paths[0] if len(mount_paths) == 1 else None


def resource_document(
    resource: str,
    *,
    authorization_servers: Sequence[str],
    scopes: Iterable[str] = (),
    documentation: str | None = None,
    extra: Mapping[str, object] = MappingProxyType({}),
) -> bytes:
    """The metadata of a protected resource, as JSON in UTF-8.

    `extra` are further fields of the operator. The configuration has checked them.
    """
    fields: dict[str, object] = {
        "resource": resource,
        "authorization_servers": list(authorization_servers),
        "bearer_methods_supported": ["header"],
    }
    if shown := _shown_scopes(scopes):
        fields["scopes_supported"] = shown
    if documentation is not None:
        fields["resource_documentation"] = documentation
    return json.dumps({**fields, **extra}, ensure_ascii=False, separators=(",", ":")).encode()


def challenge(
    metadata_url: str | None, *, token_sent: bool, scopes: Iterable[str] = (), detail: str | None = None
) -> str:
    """`WWW-Authenticate` of a 401; it names an error only if a token was sent, with `detail` about it.

    `metadata_url` is None if no document is served. Raises ValueError for an invalid scope, and for
    a URL or a detail that is not printable ASCII.
    """
    return _challenge("invalid_token" if token_sent else None, metadata_url, scopes, detail)


def scope_challenge(metadata_url: str | None, scopes: Iterable[str]) -> str:
    """`WWW-Authenticate` of a 403: `scopes` are all that the operation needs.

    Raises as `challenge` does.
    """
    return _challenge("insufficient_scope", metadata_url, scopes)


def _challenge(error: str | None, metadata_url: str | None, scopes: Iterable[str], detail: str | None = None) -> str:
    # Hosts search the field for the first of a name: what tokens contain comes last.
    parameters = {
        "error": error,
        "scope": " ".join(_shown_scopes(scopes)),
        "resource_metadata": metadata_url,
        "error_description": detail,
    }
    return f"Bearer {', '.join(f'{name}={_quoted(value)}' for name, value in parameters.items() if value)}".rstrip()


def _shown_scopes(scopes: Iterable[str]) -> list[str]:
    """Each scope once, sorted."""
    shown = sorted({*scopes} - _HIDDEN_SCOPES)
    if not all(_SCOPE.fullmatch(scope) for scope in shown):
        raise ValueError("a scope is visible ASCII without quotation mark and backslash")
    return shown


def _quoted(text: str) -> str:
    """A quoted-string of RFC 9110, 5.6.4."""
    if not _QUOTABLE.fullmatch(text):
        raise ValueError("a challenge is printable ASCII")
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'


# --- metadata of issuers ----------------------------------------------------------------------------------------------

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
        metadata = orjson.loads(document.removeprefix(BOM_UTF8))
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
