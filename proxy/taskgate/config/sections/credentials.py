"""Sections `credentials`, `identity_headers` and `tls` of an upstream: what a server is shown.

A secret is in no repr and in no JSON of a section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from taskgate.config.addresses import FilePath, SecureUrl, Url, read_host
from taskgate.config.fields import KIB, MIB, UNIQUE, Flag, Scope, Secret, Section, SizeIn, Text, json_pattern
from taskgate.config.problems import Conflict, Location, dotted, list_at, mapping_at
from taskgate.config.sections.auth import auth_mode, count_identity_sources
from taskgate.upstream.settings import (
    AssertionKey,
    ClientAuth,
    ExchangeProfile,
    FixedHeader,
    GrantKind,
    GrantSettings,
    IdentityHeaders,
    UpstreamTls,
)

# RFC 9110, 5.1 and 5.6.2.
_HEADER = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"
_SERVER_NAME = r"^[A-Za-z0-9._-]+$"
_GATEWAY_HEADERS = frozenset(
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
"""Headers that the gateway itself sets, or HTTP needs."""
_CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})


def _check_header(name: str) -> str:
    if not re.fullmatch(_HEADER, name):
        raise ValueError("must be the name of a header: 1 to 128 letters, digits and some signs, such as X-Api-Key")
    if name.lower() in _GATEWAY_HEADERS or name.lower().startswith("mcp-"):
        raise ValueError("must not be a header that the gateway itself or HTTP needs")
    return name


def _check_identity_header(name: str) -> str:
    if name.lower() in _CREDENTIAL_HEADERS:
        raise ValueError("must not be a header for credentials")
    return name


def _read_server_name(written: str) -> str:
    if not re.fullmatch(_SERVER_NAME, written):
        raise ValueError("must be the name of a host, without a port")
    try:
        return read_host(written)
    except ValueError:
        raise ValueError("must be the name of a host, without a port") from None


HeaderName = Annotated[str, AfterValidator(_check_header), json_pattern(_HEADER)]
IdentityHeader = Annotated[HeaderName, AfterValidator(_check_identity_header)]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
ServerName = Annotated[str, AfterValidator(_read_server_name), json_pattern(_SERVER_NAME)]


class CredentialsSection(Section):
    """Credentials of the gateway for a server. Those of hosts are never forwarded."""

    mode: Literal["none", "header", "client_credentials", "token_exchange", "mtls"] = "none"
    """How the gateway authenticates at the server; the other keys of the section apply to some of
    the modes.

    header: one header of every request; client_credentials: an access token of its own;
    token_exchange: an access token in exchange for the caller's; mtls: the certificate of tls alone.
    """
    header: HeaderName | None = None
    """The header of mode header."""
    value: Secret | None = Field(default=None, repr=False)
    """The value of that header."""
    token_url: SecureUrl | None = None
    """The token endpoint: an https URL, or an http one on a loopback host."""
    ca_file: FilePath | None = None
    """The certificate authorities that are trusted for token_url, as PEM; null means those of the
    system, whatever tls has. It is read for each token.
    """
    max_token: Annotated[int, SizeIn(least=KIB, most=MIB)] = 16 * KIB
    """The longest token that is accepted from it. Servers bound the head of a request, too."""
    client_id: Text | None = None
    """The gateway's client id at the token endpoint."""
    client_auth: Literal["basic", "post", "private_key_jwt", "federated"] = "basic"
    """How the gateway authenticates at the token endpoint.

    basic: client_secret by HTTP's Basic scheme; post: client_secret in the form; private_key_jwt: an
    assertion that it signs with key_file; federated: the token in assertion_file.
    """
    client_secret: Secret | None = Field(default=None, repr=False)
    """The gateway's client secret."""
    key_file: FilePath | None = None
    """The private key of private_key_jwt, in PEM and without a password; read for each token.

    A certificate in the same file adds its thumbprint to assertions, as x5t#S256.
    """
    key_id: Text | None = None
    """The id of that key in assertions, their kid; null means none."""
    algorithm: Algorithm | None = None
    """The algorithm of assertions; null means RS256 for RSA keys, EdDSA, or ES256, ES384 and ES512 by
    the curve.
    """
    assertion_audience: Text | None = None
    """The aud of assertions; null means token_url."""
    assertion_file: FilePath | None = None
    """The file with the token of federated, which a platform renews; read for each token."""
    profile: Literal["rfc8693", "entra"] = "rfc8693"
    """The form of a token exchange; entra: the on-behalf-of flow of Microsoft Entra ID."""
    resource: Url | None = None
    """The resource URL that tokens are requested for; null names none."""
    audience: Text | None = None
    """The audience that tokens are requested for; null names none."""
    scopes: Annotated[tuple[Scope, ...], *UNIQUE] = ()
    """The scopes that are requested; [] leaves them to the token endpoint."""
    cache: Flag = True
    """Whether a token is used for 90 % of its lifetime; otherwise every request gets a new one."""

    def to_settings(self) -> FixedHeader | GrantSettings | None:
        """Return the settings of the mode, None for the modes none and mtls."""
        if self.mode == "header":
            assert self.header is not None, "mode header needs a header"
            assert self.value is not None, "mode header needs a value"
            return FixedHeader(name=self.header, value=self.value)
        if self.mode in ("client_credentials", "token_exchange"):
            assert self.token_url is not None, "a grant needs a token_url"
            assert self.client_id is not None, "a grant needs a client_id"
            return GrantSettings(
                kind=GrantKind(self.mode),
                profile=ExchangeProfile(self.profile),
                token_url=self.token_url,
                ca_file=self.ca_file,
                max_token=self.max_token,
                client_id=self.client_id,
                client_auth=ClientAuth(self.client_auth),
                client_secret=self.client_secret,
                assertion_key=self._assertion_key(),
                assertion_file=self.assertion_file,
                resource=self.resource,
                audience=self.audience,
                scopes=self.scopes,
                keeps=self.cache,
            )
        return None

    def _assertion_key(self) -> AssertionKey | None:
        if self.key_file is None:
            return None
        return AssertionKey(
            file=self.key_file, id=self.key_id, algorithm=self.algorithm, audience=self.assertion_audience
        )


class IdentityHeadersSection(Section):
    """Headers that tell a server who the caller is. Hosts cannot set these headers."""

    context: IdentityHeader | None = None
    """The header for the reference of the caller's auth context, which is a pseudonym; null sends
    none.
    """
    subject: IdentityHeader | None = None
    """The header for the caller's sub, percent-encoded except visible ASCII other than % and ,;
    null sends none.
    """
    issuer: IdentityHeader | None = None
    """The header for the issuer of the caller's token, its iss, encoded as the sub; null sends none.

    With more than one issuer, subject requires it: a sub names a user of its issuer alone.
    """

    def to_settings(self) -> IdentityHeaders:
        """Return the settings of these headers."""
        return IdentityHeaders(context=self.context, subject=self.subject, issuer=self.issuer)


class ServerTlsSection(Section):
    """TLS to an https server: the authorities that it trusts, and the gateway's client certificate."""

    ca_file: FilePath | None = None
    """The certificate authorities that are trusted, as PEM; null means those of the system."""
    cert_file: FilePath | None = None
    """The gateway's client certificate, as PEM; null means none."""
    key_file: FilePath | None = None
    """The key of that certificate, as PEM and without a password."""
    server_name: ServerName | None = None
    """The name that its certificate must have; null means the host of url."""
    insecure_skip_verify: Flag = False
    """Whether the server's certificate is not checked: anyone on the network path can then read and
    change everything.
    """

    def to_settings(self) -> UpstreamTls:
        """Return the settings of TLS."""
        return UpstreamTls(
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            server_name=self.server_name,
            insecure_skip_verify=self.insecure_skip_verify,
        )


# --- rules between keys ---------------------------------------------------------------------------------------------


_HEADER_KEYS = ("header", "value")
_CLIENT_KEYS = ("token_url", "client_id")
_SIGNED_KEYS = ("key_file", "key_id", "algorithm", "assertion_audience")
_PROOF_KEYS = ("client_secret", *_SIGNED_KEYS, "assertion_file")
_TARGET_KEYS = ("resource", "audience")
_GRANTS = ("client_credentials", "token_exchange")
_GRANT_KEYS = (*_CLIENT_KEYS, *_PROOF_KEYS, *_TARGET_KEYS, "ca_file")
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "header": _HEADER_KEYS,
    "client_credentials": _CLIENT_KEYS,
    "token_exchange": _CLIENT_KEYS,
    "mtls": (),
}
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "header": _HEADER_KEYS,
    "client_credentials": _GRANT_KEYS,
    "token_exchange": _GRANT_KEYS,
}
_PROOFS: Mapping[str, tuple[str, ...]] = {
    "basic": ("client_secret",),
    "post": ("client_secret",),
    "private_key_jwt": _SIGNED_KEYS,
    "federated": ("assertion_file",),
}
"""The keys of each way of `client_auth`; the first one is required."""
_DEFAULTS: Mapping[str, object] = CredentialsSection().model_dump(mode="json")
_GRANT_TERMS = ("client_auth", "max_token", "profile")
"""Keys of grants that are never null."""


def credential_conflicts(raw: object) -> Iterator[Conflict]:
    """Find conflicts between keys of these sections, with `auth.mode`, and with the URL."""
    anonymous = auth_mode(raw) == "none"
    has_tokens, has_several_issuers = bool(mapping_at(raw, "auth", "issuers")), count_identity_sources(raw) > 1
    for name in mapping_at(raw, "upstreams"):
        here = ("upstreams", name)
        upstream = mapping_at(raw, *here)
        credentials, where = mapping_at(upstream, "credentials"), (*here, "credentials")
        yield from _mode_conflicts(credentials, where, anonymous=anonymous, has_tokens=has_tokens)
        yield from _header_conflicts(upstream, here)
        yield from _identity_conflicts(
            mapping_at(upstream, "identity_headers"),
            (*here, "identity_headers"),
            anonymous=anonymous,
            has_several_issuers=has_several_issuers,
        )
        yield from _tls_conflicts(upstream, here)


def _mode_conflicts(
    given: Mapping[str, object], where: Location, *, anonymous: bool, has_tokens: bool
) -> Iterator[Conflict]:
    mode = given.get("mode", "none")
    if not isinstance(mode, str) or mode not in _REQUIRED:
        return
    for key in _REQUIRED[mode]:
        if given.get(key) is None:
            yield (*where, key), f"is required with mode {mode}"
    for key in (*_HEADER_KEYS, *_GRANT_KEYS):
        if given.get(key) is not None and key not in _ALLOWED.get(mode, ()):
            yield (*where, key), f"must be null with mode {mode}"
    uses_grant = mode in _GRANTS
    if list_at(given, "scopes") and not uses_grant:
        yield (*where, "scopes"), f"must be empty with mode {mode}"
    if given.get("cache") is False and not uses_grant:
        yield (*where, "cache"), f"must be true with mode {mode}"
    if uses_grant:
        yield from _client_conflicts(given, where, mode)
        if given.get("ca_file") is not None and not str(given.get("token_url")).lower().startswith("https:"):
            yield (*where, "ca_file"), "must be null unless token_url is https"
    else:
        for key in _GRANT_TERMS:
            if given.get(key, _DEFAULTS[key]) != _DEFAULTS[key]:
                yield (*where, key), f"must be {_DEFAULTS[key]} with mode {mode}"
    yield from _exchange_conflicts(given, where, mode)
    if mode == "token_exchange" and anonymous:
        yield (*where, "mode"), "must not be token_exchange with auth.mode none, where callers have no token"
    elif mode == "token_exchange" and not has_tokens:
        yield (*where, "mode"), "must not be token_exchange without auth.issuers: an API key is no token to exchange"


def _client_conflicts(given: Mapping[str, object], where: Location, mode: str) -> Iterator[Conflict]:
    """Find keys that are missing for the way of `client_auth`, and those of another way."""
    way = given.get("client_auth", _DEFAULTS["client_auth"])
    if not isinstance(way, str) or way not in _PROOFS:
        return
    needed = _PROOFS[way][0]
    because = f"mode {mode}" if way == "basic" else f"client_auth {way}"
    if given.get(needed) is None:
        yield (*where, needed), f"is required with {because}"
    for key in _PROOF_KEYS:
        if given.get(key) is not None and key not in _PROOFS[way]:
            yield (*where, key), f"must be null with client_auth {way}"


def _exchange_conflicts(given: Mapping[str, object], where: Location, mode: str) -> Iterator[Conflict]:
    """Find keys that an exchange lacks, or that its profile does not have."""
    audience, scopes = given.get("audience"), list_at(given, "scopes")
    if given.get("profile") != "entra":
        if mode == "token_exchange" and audience is None and given.get("resource") is None:
            yield (*where, "audience"), "is required with mode token_exchange, unless resource is given"
    elif mode == "client_credentials":
        yield (*where, "profile"), f"must be rfc8693 with mode {mode}"
    elif mode == "token_exchange":
        if given.get("resource") is not None:
            yield (*where, "resource"), "must be null with profile entra, whose scopes name the resource"
        if audience is None and not scopes:
            yield (*where, "scopes"), "is required with profile entra, unless audience is given"
        if audience is not None and not all(str(scope).startswith(f"{audience}/") for scope in scopes):
            yield (
                (*where, "scopes"),
                "must begin with audience and a slash with profile entra, which asks by scopes alone",
            )


def _identity_conflicts(
    identity: Mapping[str, object], where: Location, *, anonymous: bool, has_several_issuers: bool
) -> Iterator[Conflict]:
    for key in ("subject", "issuer"):
        if anonymous and identity.get(key) is not None:
            yield (*where, key), f"must be null with auth.mode none, where callers have no {key}"
    if has_several_issuers and not anonymous and identity.get("subject") is not None and identity.get("issuer") is None:
        yield (
            (*where, "issuer"),
            "is required with subject and more than one of auth.issuers, where auth.api_keys count as one: "
            "one sub at two issuers is two users, whom the server tells apart by this header",
        )


def _header_conflicts(upstream: Mapping[str, object], here: Location) -> Iterator[Conflict]:
    credentials, identity = mapping_at(upstream, "credentials"), mapping_at(upstream, "identity_headers")
    owners: dict[str, Location] = {}
    if credentials.get("mode") in _GRANTS:
        owners["authorization"] = (*here, "credentials", "mode")
    for location, name in (
        ((*here, "credentials", "header"), credentials.get("header")),
        *(((*here, "identity_headers", key), identity.get(key)) for key in ("context", "subject", "issuer")),
        *(((*here, "headers", name), name) for name in mapping_at(upstream, "headers")),
    ):
        if isinstance(name, str) and owners.setdefault(name.lower(), location) != location:
            yield location, f"must not be the header of {dotted(owners[name.lower()])}"


def _tls_conflicts(upstream: Mapping[str, object], here: Location) -> Iterator[Conflict]:
    tls, url, where = mapping_at(upstream, "tls"), upstream.get("url"), (*here, "tls")
    mode = mapping_at(upstream, "credentials").get("mode")
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if tls.get(one) is None and (tls.get(other) is not None or mode == "mtls"):
            yield (*where, one), f"is required with {'mode mtls' if mode == 'mtls' else other}"
    if not isinstance(url, str) or url.lower().startswith("https:"):
        return
    if mode == "mtls":
        yield (*here, "url"), "must be https with mode mtls"
    for key in ("ca_file", "cert_file", "key_file", "server_name"):
        if tls.get(key) is not None:
            yield (*where, key), "must be null unless url is https"
    if tls.get("insecure_skip_verify") is True:
        yield (*where, "insecure_skip_verify"), "must be false unless url is https"
