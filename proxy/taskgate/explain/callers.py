"""Whose token it is, found out as a gateway that runs would.

What must not live here: contexts, which nobody needs to know for this: the key they are made with is not touched.
"""

from collections.abc import Mapping
from typing import Final

from taskgate.auth.bearer import token_of
from taskgate.auth.binding import ContextKeys
from taskgate.auth.context import Identity
from taskgate.auth.fetching import AiohttpFetch
from taskgate.auth.jwks import IssuerKeys
from taskgate.auth.jwt import Verifier
from taskgate.clock import SystemClock, SystemEntropy
from taskgate.config import GatewayConfig
from taskgate.errors import KeysUnavailable, Unauthenticated
from taskgate.wiring.authentication import resource_of

WHY: Final[Mapping[str, str]] = {
    "missing": "auth.mode is required, and there is no token",
    "malformed": "it is no JWT, or one that asks for what is never done",
    "typ": "its typ is none that the issuer's profile takes",
    "alg": "its algorithm is none of the issuer's algorithms",
    "unknown_kid": "the issuer has no such key",
    "signature": "its signature is wrong",
    "expired": "it has expired, or is older than max_token_age",
    "not_yet_valid": "it is not valid yet",
    "issuer": "its iss is no issuer of the file",
    "audience": "its aud names neither the upstream's path on this gateway nor one of the issuer's audience",
    "claim": "a claim that it must have is missing or malformed",
}


class TokenRefused(Exception):
    """Who comes with that token gets HTTP 401, or 503 where it cannot be judged; the text says why."""


async def who_is(config: GatewayConfig, upstream: str, token: str | None) -> Identity | None:
    """Whose token it is, None with `auth.mode: none`. The issuer's keys are fetched. Raises TokenRefused."""
    if config.auth.mode == "none":
        return None
    clock, fetch = SystemClock(), AiohttpFetch()
    keys = [(settings, IssuerKeys(settings, fetch, clock, _Deaf())) for settings in config.auth.to_issuer_settings()]
    bind = config.auth.context.bind
    verifier = Verifier(
        keys,
        bind=ContextKeys(SystemEntropy().token(32), bind=bind).bind,
        bound=bind,
        clock=clock,
        heard=lambda *_: None,
    )
    audience = resource_of(config, config.server.listen.port, config.upstreams[upstream].path)
    try:
        sent = token_of([] if token is None else [f"Bearer {token}"], "")
        return (await verifier.verify(sent, audience=audience)).identity
    except Unauthenticated as refusal:
        if not refusal.token_sent:
            raise TokenRefused(f"refused (missing): {WHY['missing']}") from None
        whose = "" if refusal.issuer is None else f" of the issuer {refusal.issuer}"
        raise TokenRefused(f"a token{whose} is refused ({refusal.reason}): {WHY[refusal.reason]}") from None
    except KeysUnavailable as error:
        raise TokenRefused(f"the token cannot be judged: {error}") from None
    finally:
        for _, each in keys:
            await each.close()
        await fetch.close()


class _Deaf:
    def refreshed(self, issuer: str, outcome: str, keys: int) -> None:
        """Nobody wants to know."""
