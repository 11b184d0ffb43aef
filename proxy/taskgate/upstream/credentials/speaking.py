"""Credentials of requests to a server: `Credentials` makes their headers.

They are configured headers, a bearer token, and headers that name the caller. A request's
headers are made anew, so none of the host's headers is in them. No token of one auth context is
used for another. There is one `Credentials` per server; the `SessionTransport` of each session asks
it for every request. So sessions that are open get replaced secrets (`use`) with their next request.

A server that answers 401 may know more than the gateway: a secret was replaced, or a token revoked.
`replaced` looks for that, once for each request.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from taskgate.clock import Clock, Entropy
from taskgate.errors import UpstreamFailed
from taskgate.upstream import failures
from taskgate.upstream.calls import Principal
from taskgate.upstream.credentials.tokens import Granted, Tokens
from taskgate.upstream.settings import FixedHeader, GrantKind, GrantSettings, UpstreamObserver, UpstreamSettings

if TYPE_CHECKING:
    from taskgate.upstream.credentials.grants import TokenEndpoint

Look = Callable[[], Awaitable[None]]
"""Looks for replaced secrets, and has `Credentials.use` called before it returns if there are any."""


async def look_nowhere() -> None:
    """Find no replaced secrets."""


_AUTHORIZATION: Final = "Authorization"
# Visible ASCII, except the escape character and the separator of list values.
_PLAIN: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "%,")


class Credentials:
    """The credentials for one server. It belongs to one event loop, and is closed at the end.

    `token` gets the token of a request, `fields` makes its headers, `replaced` tells that the server
    refused them. `observer` is told the duration and success of each token request.
    """

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        observer: UpstreamObserver,
        clock: Clock,
        entropy: Entropy,
        look: Look = look_nowhere,
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._look = look
        self._identity = settings.identity
        self._names_caller = settings.identity.subject is not None or settings.identity.issuer is not None
        self._fixed = _fixed_of(settings)
        grant = settings.credentials
        self._grant = grant if isinstance(grant, GrantSettings) else None
        self._endpoint: TokenEndpoint | None = None
        if self._grant is not None:
            # Most gateways request no tokens, and load nothing for that.
            from taskgate.upstream.credentials import grants  # noqa: PLC0415

            self._endpoint = grants.TokenEndpoint(
                self._grant,
                upstream=settings.name,
                connect=settings.connect.total_seconds(),
                patience=(settings.connect + settings.first_byte).total_seconds(),
                clock=clock,
                entropy=entropy,
                proxy=settings.egress.proxy_for(self._grant.token_url),
            )
        self._tokens = Tokens(self._ask, clock=clock)

    def use(self, settings: UpstreamSettings) -> None:
        """Use the secrets of these settings from the next request on. They have the same mode.

        Tokens of the old secret are still good, until the server refuses them.
        """
        self._fixed = _fixed_of(settings)
        if self._endpoint is not None and isinstance(settings.credentials, GrantSettings):
            self._grant = settings.credentials
            self._endpoint.use(self._grant)

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

    async def replaced(self, principal: Principal, token: str | None, shown: Mapping[str, str]) -> bool:
        """Whether a request that the server refused with 401 has other credentials when it is sent again.

        `shown` are its headers from `fields`. Its token is forgotten, which counts if it was used
        before. Replaced secrets are looked for.
        """
        is_other = False
        if token is not None and self._grant is not None and self._grant.keeps:
            is_other = self._tokens.drop(_key(self._grant, principal), token)
        if self._fixed:
            await self._look()
        return is_other or any(shown.get(name) != value for name, value in self._fixed.items())

    def refused_twice(self, principal: Principal, token: str | None) -> None:
        """Note that the server refused a token which was requested after a refusal: the token is not the cause."""
        if token is not None and self._grant is not None and self._grant.keeps:
            self._tokens.spare(_key(self._grant, principal), token)

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
            raise failures.SubjectRefused(failures.no_token())
        began = self._clock.elapsed()
        try:
            granted = await self._granted(endpoint, exchanged)
        except UpstreamFailed:
            self._observer.credentials_got(self._clock.elapsed() - began, False)
            raise
        self._observer.credentials_got(self._clock.elapsed() - began, True)
        return granted

    async def _granted(self, endpoint: "TokenEndpoint", subject_token: str | None) -> Granted:
        """Request a token; once more if the secret that was refused has been replaced."""
        before = self._grant
        try:
            return await endpoint.grant(subject_token)
        except failures.ClientRefused:
            await self._look()
            if self._grant == before:
                raise
        return await endpoint.grant(subject_token)


def _fixed_of(settings: UpstreamSettings) -> Mapping[str, str]:
    """Return the headers that are the same for every request."""
    header = settings.credentials
    return {**settings.headers, header.name: header.value} if isinstance(header, FixedHeader) else settings.headers


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
