"""What hosts are told of how to be let in: the document of RFC 9728, where it stands, and the challenges that name it.

Pure text, made once per mount. Whether a request is let in is not judged here, and no HTTP is spoken. `offline_access`
is between a host and its authorization server, so it is never told (A-AUTH-9).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"

_UNTOLD = frozenset({"offline_access"})
_OURS = frozenset(
    {
        "resource",
        "authorization_servers",
        "bearer_methods_supported",
        "scopes_supported",
        "resource_documentation",
    }
)
_USUAL_PORTS = {"http": 80, "https": 443}
_QUOTABLE = re.compile(r"[ -~]*")
# RFC 6749, 3.3. What is allowed there needs no escape and cannot be taken for two scopes.
_SCOPE = re.compile(r"[!#-\[\]-~]+")


def canonical(public_url: str, mount_path: str) -> str:
    """The one name of what is mounted there: `resource` in its document, and the audience of its tokens (A-AUTH-11).

    Scheme and host are in lower case, the scheme's usual port is left out, there is no slash at the end. User name,
    query and fragment of `public_url` are no part of it. ValueError when that names no host.
    """
    parts = urlsplit(public_url)
    if parts.hostname is None:
        raise ValueError("a public URL must name a host")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port in (None, _USUAL_PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}{mount_path.rstrip('/')}"


def metadata_path(mount_path: str) -> str:
    """Where on the gateway's own listener the document of a mount is asked for."""
    return WELL_KNOWN + mount_path.rstrip("/")


def document_url(resource: str) -> str:
    """Where hosts find the document of a `canonical` resource: the well-known name stands between host and path."""
    parts = urlsplit(resource)
    return f"{parts.scheme}://{parts.netloc}{metadata_path(parts.path)}"


def root_mount(mount_paths: Sequence[str]) -> str | None:
    """The mount whose document also stands at `WELL_KNOWN` itself, where hosts look that know no other place.

    It is the only mount there is, or none. Were it one of several, a host of another mount would get a token for the
    wrong audience; without the document it sees that it must look elsewhere.
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

    Raises ValueError without an authorization server, for what is no scope, and when `extra` names a field that is made
    here or is no JSON.
    """
    if not authorization_servers:
        raise ValueError("a protected resource needs at least one authorization server")
    if not _OURS.isdisjoint(extra):
        raise ValueError(f"these fields are not for `extra`: {', '.join(sorted(_OURS & extra.keys()))}")
    fields: dict[str, object] = {
        "resource": resource,
        "authorization_servers": list(authorization_servers),
        "bearer_methods_supported": ["header"],
    }
    if told := _told(scopes):
        fields["scopes_supported"] = told
    if documentation is not None:
        fields["resource_documentation"] = documentation
    try:
        return json.dumps({**fields, **extra}, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except TypeError:
        raise ValueError("`extra` is not JSON") from None


def challenge(metadata_url: str | None, *, token_sent: bool, scopes: Iterable[str] = ()) -> str:
    """`WWW-Authenticate` of a 401. It names an error only where a token was sent, and never why it was not accepted.

    `metadata_url` is None where no document is served. Raises ValueError for what is no scope, and for a URL that is
    not printable ASCII.
    """
    return _challenge("invalid_token" if token_sent else None, metadata_url, scopes)


def scope_challenge(metadata_url: str | None, scopes: Iterable[str]) -> str:
    """`WWW-Authenticate` of a 403: `scopes` are all that the operation needs, at once. Raises as `challenge`."""
    return _challenge("insufficient_scope", metadata_url, scopes)


def _challenge(error: str | None, metadata_url: str | None, scopes: Iterable[str]) -> str:
    parameters = {"error": error, "scope": " ".join(_told(scopes)), "resource_metadata": metadata_url}
    return f"Bearer {', '.join(f'{name}={_quoted(value)}' for name, value in parameters.items() if value)}".rstrip()


def _told(scopes: Iterable[str]) -> list[str]:
    """Each scope once, in an order that does not depend on a set's."""
    told = sorted({*scopes} - _UNTOLD)
    if not all(_SCOPE.fullmatch(scope) for scope in told):
        raise ValueError("a scope is visible ASCII without quotation mark and backslash")
    return told


def _quoted(text: str) -> str:
    """A quoted-string of RFC 9110, 5.6.4."""
    if not _QUOTABLE.fullmatch(text):
        raise ValueError("a challenge is printable ASCII")
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'
