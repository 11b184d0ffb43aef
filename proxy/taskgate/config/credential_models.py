"""The configuration of what the gateway shows to a server: the sections `credentials`, `identity_headers` and `tls`.

What lives here: their keys with types, defaults and bounds. What must not: rules between keys (credential_coherence),
what floors below make of them (servers). What holds: no repr and no JSON of a section shows a secret.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PlainSerializer, WithJsonSchema

from taskgate.config.addresses import MASK, FetchedUrl, FilePath, Url, read_host
from taskgate.config.fields import ONCE_EACH, Flag, Scope, Section, Text

# RFC 9110, 5.1 and 5.6.2.
_HEADER = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"
_HIDDEN = r"^[!-~]([ -~]{0,8190}[!-~])?$"
_SERVER_NAME = r"^[A-Za-z0-9._-]+$"
_MADE_HERE = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "origin",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})


def _header(written: str) -> str:
    if not re.fullmatch(_HEADER, written):
        raise ValueError("must be the name of a header: 1 to 128 letters, digits and some signs, such as X-Api-Key")
    if written.lower() in _MADE_HERE or written.lower().startswith("mcp-"):
        raise ValueError("must not be a header that the gateway itself or HTTP needs")
    return written


def _identity_header(written: str) -> str:
    if written.lower() in _CREDENTIALS:
        raise ValueError("must not be a header for credentials")
    return written


def _secret(written: str) -> str:
    if not re.fullmatch(_HIDDEN, written):
        raise ValueError("must be 1 to 8192 characters of ASCII without control characters, or spaces at the ends")
    if written == MASK:
        raise ValueError(f"must not be {MASK}, which stands for a secret that is not shown")
    return written


def _server_name(written: str) -> str:
    if not re.fullmatch(_SERVER_NAME, written):
        raise ValueError("must be the name of a host, without a port")
    try:
        return read_host(written)
    except ValueError:
        raise ValueError("must be the name of a host, without a port") from None


def _pattern(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


HeaderName = Annotated[str, AfterValidator(_header), _pattern(_HEADER)]
IdentityHeader = Annotated[HeaderName, AfterValidator(_identity_header)]
HIDDEN: Final = PlainSerializer(lambda _: MASK, return_type=str, when_used="json")
"""Marks a type whose values are shown to nobody; a field of it also needs `repr=False`."""
Secret = Annotated[str, AfterValidator(_secret), HIDDEN, _pattern(_HIDDEN)]
ServerName = Annotated[str, AfterValidator(_server_name), _pattern(_SERVER_NAME)]


class CredentialsSection(Section):
    """What the gateway shows to a server. What hosts come with never goes further."""

    mode: Literal["none", "header", "client_credentials", "token_exchange", "mtls"] = "none"
    """How the gateway identifies itself; the other keys of the section belong to some of the modes.

    header: with one header of every request; client_credentials: with a token of its own; token_exchange: with a token
    that it gets for the caller's; mtls: with the certificate of tls alone.
    """
    header: HeaderName | None = None
    """The header of mode header."""
    value: Secret | None = Field(default=None, repr=False)
    """What is in that header."""
    token_url: FetchedUrl | None = None
    """Where tokens are asked for: an https URL, or an http one on a loopback host."""
    client_id: Text | None = None
    """What the gateway is called there."""
    client_secret: Secret | None = Field(default=None, repr=False)
    """What the gateway proves it with, by HTTP's Basic scheme."""
    resource: Url | None = None
    """The URL of what the tokens are for; null names none."""
    audience: Text | None = None
    """The name of what the tokens are for; null names none."""
    scopes: Annotated[tuple[Scope, ...], *ONCE_EACH] = ()
    """The scopes that are asked for; [] leaves them to the token endpoint."""
    cache: Flag = True
    """Whether a token serves for 90 % of its life; else every request is made with a new one."""


class IdentityHeadersSection(Section):
    """How a server is told for whom a request is. Hosts cannot set these headers."""

    context: IdentityHeader | None = None
    """The header for the reference of the caller's context, which names nobody; null tells nothing."""
    subject: IdentityHeader | None = None
    """The header for the caller's sub, percent-encoded but for visible ASCII other than % and ,; null tells nothing."""


class ServerTlsSection(Section):
    """How an https server is recognised, and what the gateway shows of itself."""

    ca_file: FilePath | None = None
    """The authorities that it must be certified by, as PEM; null means those of the system."""
    cert_file: FilePath | None = None
    """The certificate that the gateway shows, as PEM; null shows none."""
    key_file: FilePath | None = None
    """The key of that certificate, as PEM and without a password."""
    server_name: ServerName | None = None
    """The name that its certificate must have; null means the host of url."""
    insecure_skip_verify: Flag = False
    """Whether any certificate will do: whoever is on the way can read and change everything then."""
