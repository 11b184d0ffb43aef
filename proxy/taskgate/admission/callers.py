"""The caller of a request: from its bearer token or API key to the auth context that its tasks are bound to.

`BearerCallers` authenticates with a `TokenAuthenticator`, and with a `KeyVerifier` if there are API
keys. Without authentication there is nothing to find out: every request has the context `ANONYMOUS`.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from taskgate.admission.mounts import Mount
from taskgate.admission.security_alerts import SecurityLog
from taskgate.auth.claims import bearer_token
from taskgate.auth.context import AuthContext, Credential
from taskgate.auth.jwt import VerifiedToken
from taskgate.errors import AuthReason, KeysUnavailable, Unauthenticated
from taskgate.streams.exchange import Admission, Exchange
from taskgate.upstream.calls import Principal

if TYPE_CHECKING:
    from taskgate.auth.api_keys import KeyVerifier


class Callers(Protocol):
    """The authentication of requests."""

    async def identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        """The auth context of a request's caller.

        A good token or API key becomes the `token` of the exchange's admission. Raises Unauthenticated
        without one, and KeysUnavailable if the keys to verify a token are not available now.
        """
        ...

    def is_known(self, exchange: Exchange, mount: Mount) -> bool:
        """Whether the request's token was accepted before, by a cheap look into a cache.

        It does not authenticate. Rate limits spare such requests (`RateLimiter.on_connection`).
        """
        ...

    def recent(self) -> Iterable[AuthContext]:
        """The callers of the last requests, as far as they are remembered; one may come several times."""
        ...


class TokenAuthenticator(Protocol):
    """The verification of tokens (`auth.jwt.TokenVerifier`)."""

    def is_cached(self, token: str, *, audience: str) -> bool:
        """Whether a token was accepted before, and is cached."""
        ...

    def contexts(self) -> Iterable[AuthContext]:
        """The callers whose tokens are cached; the same one may come several times."""
        ...

    async def verify(self, token: str, *, audience: str) -> VerifiedToken:
        """Verify a token for `audience`. Raises Unauthenticated or KeysUnavailable."""
        ...


class BearerCallers:
    """The Callers with bearer tokens, and with `api_keys` if there are any.

    `on_refused` is called with the reason for a request that has no single token or key to verify.
    `security_log` gets every request that is refused.
    """

    def __init__(
        self,
        verifier: TokenAuthenticator,
        on_refused: Callable[[AuthReason], None],
        security_log: SecurityLog,
        api_keys: "KeyVerifier | None" = None,
    ) -> None:
        self._verifier = verifier
        self._on_refused = on_refused
        self._security_log = security_log
        self._api_keys = api_keys

    async def identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        verified: Credential
        try:
            token = self._token(exchange)
            if self._api_keys is not None and self._api_keys.is_key(token):
                verified = self._api_keys.verify(token)
            else:
                verified = await self._verifier.verify(token, audience=mount.resource)
        except (Unauthenticated, KeysUnavailable) as refusal:
            self._security_log.log_unauthenticated(exchange, mount.name, refusal)
            raise
        exchange.head.token = verified
        return verified.context

    def is_known(self, exchange: Exchange, mount: Mount) -> bool:
        try:
            token = self._read(exchange.head)
        except Unauthenticated:
            return False
        if self._api_keys is not None and self._api_keys.is_key(token):
            return self._api_keys.is_known(token)
        return self._verifier.is_cached(token, audience=mount.resource)

    def recent(self) -> Iterable[AuthContext]:
        return chain(self._verifier.contexts(), () if self._api_keys is None else self._api_keys.contexts())

    def _token(self, exchange: Exchange) -> str:
        try:
            return self._read(exchange.head)
        except Unauthenticated as refusal:
            self._on_refused(AuthReason(refusal.reason))
            raise

    def _read(self, head: Admission) -> str:
        """Read the one token or key of a request. Raises Unauthenticated."""
        if self._api_keys is None:
            return bearer_token(head.authorization, head.query)
        return self._api_keys.read(head.authorization, head.api_keys, head.query)


def principal_of(caller: AuthContext) -> Principal:
    """The principal of requests to servers that are made for a caller."""
    identity = caller.identity
    if identity is None:
        return Principal(context=caller.key)
    return Principal(
        context=caller.key,
        subject=identity.subject,
        issuer=identity.issuer,
        client=identity.client_id,
        token=caller.token,
        scopes=identity.scopes,
        good_until=identity.expires_at,
        subject_key=caller.subject,
    )
