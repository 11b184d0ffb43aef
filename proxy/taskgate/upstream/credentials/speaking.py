"""Credentials of requests to a server: `Credentials` makes their headers.

They are configured headers, a bearer token, and headers that name the caller. A request's
headers are made anew, so none of the host's headers is in them. No token of one auth context is
used for another. There is one `Credentials` per server; the `SessionTransport` of each session asks
it for every request.
"""

from collections.abc import Hashable, Mapping
from typing import Final
from urllib.parse import quote

from taskgate.clock import Clock, Entropy
from taskgate.errors import UpstreamFailed
from taskgate.upstream import failures
from taskgate.upstream.calls import Principal
from taskgate.upstream.credentials.grants import Granted, SubjectRefused, TokenEndpoint
from taskgate.upstream.credentials.tokens import Tokens
from taskgate.upstream.settings import FixedHeader, GrantKind, GrantSettings, UpstreamObserver, UpstreamSettings

_AUTHORIZATION: Final = "Authorization"
# Visible ASCII, except the escape character and the separator of list values.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%,")


class Credentials:
    """The credentials for one server. It belongs to one event loop, and is closed at the end.

    `token` gets the token of a request, `fields` makes its headers, `refused` tells that the server
    refused the token. `observer` is told the duration and success of each token request.
    """

    def __init__(
        self, settings: UpstreamSettings, *, observer: UpstreamObserver, clock: Clock, entropy: Entropy
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._identity = settings.identity
        self._names_caller = settings.identity.subject is not None or settings.identity.issuer is not None
        self._fixed: Mapping[str, str] = settings.headers
        self._grant: GrantSettings | None = None
        self._endpoint: TokenEndpoint | None = None
        match settings.credentials:
            case FixedHeader(name=name, value=value):
                self._fixed = {**settings.headers, name: value}
            case GrantSettings() as grant:
                self._grant = grant
                self._endpoint = TokenEndpoint(
                    grant,
                    upstream=settings.name,
                    connect=settings.connect.total_seconds(),
                    patience=(settings.connect + settings.first_byte).total_seconds(),
                    clock=clock,
                    entropy=entropy,
                )
            case None:
                pass
        self._tokens = Tokens(self._ask, clock=clock)

    async def token(self, principal: Principal) -> str | None:
        """Return the token for a principal, cached or new; None if the credentials are no token.
        Raises UpstreamFailed."""
        grant = self._grant
        if self._names_caller and not principal.is_known:
            # Only the context is remembered: without these headers the server would take the call
            # for another caller's.
            raise failures.no_token()
        if grant is None:
            return None
        if grant.kind is GrantKind.TOKEN_EXCHANGE and principal.token is None:
            raise failures.no_token()
        if not grant.keeps:
            return (await self._ask(principal)).token
        return await self._tokens.get(_key(grant, principal), principal)

    def fields(self, principal: Principal, token: str | None) -> Mapping[str, str]:
        """Return the headers with the credentials and the caller's identity. `token` is the result
        of `token` for the same principal."""
        fields = self._fixed if token is None else {**self._fixed, _AUTHORIZATION: f"Bearer {token}"}
        named = self._identity
        if named.context is not None:
            fields = {**fields, named.context: principal.context}
        if named.subject is not None and principal.subject is not None:
            fields = {**fields, named.subject: written(principal.subject)}
        if named.issuer is not None and principal.issuer is not None:
            fields = {**fields, named.issuer: written(principal.issuer)}
        return fields

    def refused(self, principal: Principal, token: str) -> None:
        """Forget a token that the server refused with 401; the next request gets another."""
        if self._grant is not None:
            self._tokens.drop(_key(self._grant, principal), token)

    async def close(self) -> None:
        """Stop all token requests."""
        await self._tokens.close()
        if self._endpoint is not None:
            await self._endpoint.close()

    async def _ask(self, principal: Principal) -> Granted:
        """Request a token for a principal. Raises UpstreamFailed; SubjectRefused if the caller's
        own token has expired, or may be the cause."""
        grant, endpoint = self._grant, self._endpoint
        assert grant is not None, "credentials are requested only with a grant"
        assert endpoint is not None, "a grant has a token endpoint"
        exchanged = principal.token if grant.kind is GrantKind.TOKEN_EXCHANGE else None
        if exchanged is not None and principal.good_until is not None and principal.good_until <= self._clock.wall():
            # It would be refused; the caller may have a newer one with another request.
            raise SubjectRefused(failures.no_token())
        began = self._clock.elapsed()
        try:
            granted = await endpoint.grant(exchanged)
        except UpstreamFailed:
            self._observer.credentials_got(self._clock.elapsed() - began, False)
            raise
        self._observer.credentials_got(self._clock.elapsed() - began, True)
        return granted


def written(name: str) -> str:
    """Encode a subject or an issuer for a header, unambiguously: percent-encoded UTF-8, except most of visible
    ASCII."""
    return quote(name, safe=_PLAIN)


def _key(grant: GrantSettings, principal: Principal) -> Hashable:
    """Return the cache key of a token. It has the scopes: a caller with fewer must not get what
    more allow."""
    if grant.kind is not GrantKind.TOKEN_EXCHANGE:
        return None
    return principal.context, principal.subject, principal.client, principal.scopes
