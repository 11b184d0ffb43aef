"""Verification of bearer tokens: `TokenVerifier`, which returns a `VerifiedToken`.

`claims` parses the token and reads its identity; here are the signature check, by PyJWT's
algorithms, and the cache of good tokens. A connection that has a VerifiedToken asks only that cache,
by `recall`. PyJWT's own parser is not used: it would parse the token a second time, and take the
time from the system.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from taskgate.auth.claims import (
    ContextPartMissing,
    IssuerSettings,
    UnverifiedToken,
    check_header,
    parse_token,
    read_claims,
)
from taskgate.auth.context import CONTEXT_PARTS, AuthContext, Identity
from taskgate.clock import Clock
from taskgate.errors import AuthReason, KeysUnavailable, Unauthenticated

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger("taskgate.auth")

OTHER: Final = "_OTHER"
"""The label of every issuer that is not configured."""
OK: Final = "ok"


class Keys(Protocol):
    """The keys of one issuer."""

    async def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
        """The keys that may have signed a token with this key id and algorithm, or ().

        Each is bound to `algorithm`. Raises KeysUnavailable if that cannot be determined.
        """
        ...


class TokenListener(Protocol):
    """A function that gets the outcome of each verification: the issuer's name or `OTHER`, and a
    reason or `OK`.

    `caller` is the auth context of a good token.
    """

    def __call__(self, issuer: str, reason: str, caller: AuthContext | None = None) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class VerifiedToken:
    """A token that was found good, in the cache of its verifier from `since` until `until`.

    Both are seconds of the wall clock. `is_cached` ends when the cache drops the token. `report` is
    called each time that it is recalled. A token is never revoked: what it began ends when it expires.
    """

    is_revoked: ClassVar[bool] = False
    verifier: TokenVerifier
    key: tuple[bytes, str]
    context: AuthContext
    report: Callable[[], object]
    since: float
    until: float
    is_cached: bool = True

    def recall(self) -> bool:
        """Whether the cache still has the token. If so, it counts as used now, and is reported."""
        if not self.is_cached:
            return False
        verifier = self.verifier
        # A clock that was set back may be before the start of the token.
        if not self.since <= verifier.wall_seconds() < self.until:
            verifier.drop(self)
            return False
        verifier.use(self.key)
        self.report()
        return True


class TokenVerifier:
    """The verifier of tokens, by the settings and keys of the issuers that they name.

    A good token is cached for `cache_ttl`, at most until it expires; for that time the withdrawal
    of a key may go unnoticed. Of too many, the least recently used is dropped. Refusals are not
    cached, because a flood has a new token in each request. `bound` are the parts of an identity
    from which `bind` makes a context.

    Once for each `verify`, before that returns or raises, `listener` is called with the outcome. A
    token in the cache calls the function that `on_recall` returned for its issuer instead.
    """

    def __init__(
        self,
        issuers: Sequence[tuple[IssuerSettings, Keys]],
        *,
        bind: Callable[[Identity, str], AuthContext],
        clock: Clock,
        listener: TokenListener,
        on_recall: Callable[[str], Callable[[], object]],
        cache_size: int = 10_000,
        cache_ttl: timedelta = timedelta(seconds=60),
        bound: Collection[str] = CONTEXT_PARTS,
    ) -> None:
        self._issuers = {settings.issuer: (settings, keys) for settings, keys in issuers}
        self._bind = bind
        self._bound = bound
        self._clock = clock
        self._listener = listener
        self._on_recall = on_recall
        self._cache_size = cache_size
        self._cache_ttl = cache_ttl
        self._cache: OrderedDict[tuple[bytes, str], VerifiedToken] = OrderedDict()
        self.wall_seconds = clock.wall_seconds
        self.use = self._cache.move_to_end
        """Counts the token of a key as used now."""

    def is_cached(self, token: str, *, audience: str) -> bool:
        """Whether the cache has a token; a hint only, because it may have expired since.

        It verifies nothing and calls no listener.
        """
        return (sha256(token.encode("utf-8", "surrogatepass")).digest(), audience) in self._cache

    def contexts(self) -> Iterator[AuthContext]:
        """The auth contexts of the tokens in the cache, of which some may have expired."""
        return (verified.context for verified in self._cache.values())

    async def verify(self, token: str, *, audience: str) -> VerifiedToken:
        """The verified token, with its auth context, at the mount whose address is `audience`.

        Raises Unauthenticated, or KeysUnavailable if the token cannot be verified now.
        """
        key = (sha256(token.encode("utf-8", "surrogatepass")).digest(), audience)
        cached = self._cache.get(key)
        if cached is not None and cached.recall():
            return cached
        issuer = OTHER
        try:
            unverified = parse_token(token)
            settings, keys = self._issuer_of(unverified)
            issuer = settings.name
            check_header(unverified, settings)
            candidates = await keys.find(unverified.kid, unverified.algorithm)
            check_signature(token, unverified, candidates, settings)
            now = self._clock.wall()
            identity = self._identity(unverified, settings, audience, now)
        except (Unauthenticated, KeysUnavailable) as refusal:
            self._listener(issuer, refusal.reason)
            raise
        assert identity.expires_at is not None, "a token has an end"
        context, until = self._bind(identity, token), now + min(self._cache_ttl, identity.expires_at - now)
        # The same token may have been verified meanwhile.
        self.drop(self._cache.get(key))
        verified = self._cache[key] = VerifiedToken(
            self, key, context, self._on_recall(issuer), now.timestamp(), until.timestamp()
        )
        while len(self._cache) > self._cache_size:
            self.drop(next(iter(self._cache.values())))
        self._listener(issuer, OK, context)
        return verified

    def drop(self, token: VerifiedToken | None) -> None:
        """Drop a cached token; no connection recalls it any more."""
        if token is not None:
            token.is_cached = False
            del self._cache[token.key]

    def _issuer_of(self, token: UnverifiedToken) -> tuple[IssuerSettings, Keys]:
        try:
            return self._issuers[token.issuer]
        except KeyError:
            raise Unauthenticated(AuthReason.ISSUER) from None

    def _identity(self, token: UnverifiedToken, settings: IssuerSettings, audience: str, now: datetime) -> Identity:
        try:
            return read_claims(token.claims, settings, audience=audience, now=now, bound=self._bound)
        except ContextPartMissing as missing:
            log.warning("Refused a token: it has no usable claim for %s", missing.setting)
            raise Unauthenticated(AuthReason.CLAIM, issuer=settings.name, detail=missing.detail) from None


def check_signature(
    token: str, unverified: UnverifiedToken, candidates: tuple[PyJWK, ...], settings: IssuerSettings
) -> None:
    """Raise Unauthenticated unless one of the keys signed the token: UNKNOWN_KID, SIGNATURE or ALG.

    ALG means that no key is for the token's algorithm, or long enough for it. `parse_token` has
    checked that the token is base64url with one spelling for each signature.
    """
    reason = AuthReason.ALG if candidates else AuthReason.UNKNOWN_KID
    signed, _, encoded = token.rpartition(".")
    message, signature = signed.encode("ascii"), urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    for key in candidates:
        # The algorithm is the key's own: a key does not verify a token that names another.
        if key.algorithm_name != unverified.algorithm or key.Algorithm.check_key_length(key.key) is not None:
            continue
        if key.Algorithm.verify(message, key.key, signature):
            return
        reason = AuthReason.SIGNATURE
    raise Unauthenticated(reason, issuer=settings.name)
