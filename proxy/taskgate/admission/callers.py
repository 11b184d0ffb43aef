"""Who asks: from what a request carries to the auth context it belongs to.

What must not live here: how a token is judged (`auth`), and what a context may do.
"""

from collections.abc import Callable
from typing import Protocol

from taskgate.admission.incidents import Incidents
from taskgate.admission.mounts import Mount
from taskgate.auth.bearer import bearer_token
from taskgate.auth.context import ANONYMOUS, AuthContext
from taskgate.errors import AuthReason, KeysUnavailable, Unauthenticated
from taskgate.streams.exchange import Exchange
from taskgate.upstream.principal import Principal


class Callers(Protocol):
    """Tells callers apart, or does not."""

    async def identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        """The context of one request. Raises Unauthenticated, or KeysUnavailable where that cannot be said now."""
        ...

    def knows(self, exchange: Exchange, mount: Mount) -> bool:
        """Whether who asks is remembered as let in before; cheap, and not the last word."""
        ...


class TokenJudge(Protocol):
    """Judges tokens; see auth.jwt.TokenVerifier."""

    def is_cached(self, token: str, *, audience: str) -> bool:
        """Whether a token was found good before, and is remembered."""
        ...

    async def verify(self, token: str, *, audience: str) -> AuthContext:
        """The context of a token that is good for `audience`. Raises Unauthenticated or KeysUnavailable."""
        ...


class Everybody:
    """Without authentication: one caller, whoever it is."""

    async def identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        """The anonymous context; see Callers."""
        return ANONYMOUS

    def knows(self, exchange: Exchange, mount: Mount) -> bool:
        """No caller is refused for a token; see Callers."""
        return False


class Bearers:
    """Callers by their bearer tokens.

    `refused` hears of requests whose token was never judged, `incidents` of everybody who is not let in.
    """

    def __init__(self, judge: TokenJudge, refused: Callable[[AuthReason], None], incidents: Incidents) -> None:
        self._judge = judge
        self._refused = refused
        self._incidents = incidents

    async def identify(self, exchange: Exchange, mount: Mount) -> AuthContext:
        """The context of the request's one token; see Callers."""
        try:
            return await self._judge.verify(self._token(exchange), audience=mount.resource)
        except (Unauthenticated, KeysUnavailable) as refusal:
            self._incidents.unidentified(exchange, mount.name, refusal.reason)
            raise

    def knows(self, exchange: Exchange, mount: Mount) -> bool:
        """Whether the request's one token was found good before; see Callers."""
        inbound = exchange.head
        try:
            return self._judge.is_cached(bearer_token(inbound.authorization, inbound.query), audience=mount.resource)
        except Unauthenticated:
            return False

    def _token(self, exchange: Exchange) -> str:
        inbound = exchange.head
        try:
            return bearer_token(inbound.authorization, inbound.query)
        except Unauthenticated as refusal:
            self._refused(AuthReason(refusal.reason))
            raise


def principal(caller: AuthContext) -> Principal:
    """A caller as servers may be told of them."""
    identity = caller.identity
    if identity is None:
        return Principal(context=caller.key)
    return Principal(
        context=caller.key,
        subject=identity.subject,
        client=identity.client_id,
        token=caller.token,
        scopes=identity.scopes,
        good_until=identity.expires_at,
    )
