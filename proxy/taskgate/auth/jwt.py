"""Whether a bearer token is good, and whose auth context it stands for.

What is asked of a token stands in `bearer` and `claims`; here are the signature, by PyJWT's algorithms, and the memory
of tokens that were found good. PyJWT reads no token for us: it would ask the system for the time, and read it again.
"""

import logging
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from jwt import PyJWK

from taskgate.auth.bearer import Unverified, check_header, look_at
from taskgate.auth.binding import PARTS
from taskgate.auth.claims import PartMissing, read_claims
from taskgate.auth.context import AuthContext, Identity
from taskgate.auth.keys import Keys
from taskgate.auth.settings import IssuerSettings
from taskgate.clock import Clock
from taskgate.errors import AuthReason, KeysUnavailable, Unauthenticated

log = logging.getLogger("taskgate.auth")

OTHER: Final = "_OTHER"
"""Stands for every issuer that is not configured."""
OK: Final = "ok"
ALGORITHMS: Final = frozenset(
    {"ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}
)
"""What an operator can choose from: whoever can check such a signature cannot make one."""


class TokenHeard(Protocol):
    """Told of every outcome: the issuer's name or `OTHER`, and a reason or `OK`.

    `known` tells whether the token was found good before; `caller` is whose it is, where it is good.
    """

    def __call__(self, issuer: str, reason: str, known: bool, caller: AuthContext | None = None) -> None: ...


class Verifier:
    """Tells whose a token is, by the rules and keys of the issuer that it names.

    A good token is remembered for `cache_ttl`, never beyond its end: so long the removal of a key may go unnoticed.
    Refusals are not remembered: whoever floods us sends another token each time. `bound` are the parts that `bind`
    makes a context of. `heard` is told of every outcome.
    """

    def __init__(
        self,
        issuers: Sequence[tuple[IssuerSettings, Keys]],
        *,
        bind: Callable[[Identity, str], AuthContext],
        clock: Clock,
        heard: TokenHeard,
        cache_size: int = 10_000,
        cache_ttl: timedelta = timedelta(seconds=60),
        bound: Collection[str] = PARTS,
    ) -> None:
        """Raises ValueError for an issuer that stands there twice, and for an algorithm not in `ALGORITHMS`."""
        self._issuers = {settings.issuer: (settings, keys) for settings, keys in issuers}
        if len(self._issuers) != len(issuers):
            raise ValueError("an issuer is configured twice")
        if not ALGORITHMS.issuperset(name for settings, _ in issuers for name in settings.algorithms):
            raise ValueError(f"the algorithms to choose from are {', '.join(sorted(ALGORITHMS))}")
        self._bind = bind
        self._bound = bound
        self._clock = clock
        self._heard = heard
        self._good = _GoodTokens(cache_size, cache_ttl)

    def knows(self, token: str, *, audience: str) -> bool:
        """Whether a token was found good and is remembered; it may be over by now. No signature is looked at."""
        return (sha256(token.encode("utf-8", "surrogatepass")).digest(), audience) in self._good

    async def verify(self, token: str, *, audience: str) -> AuthContext:
        """The auth context of a token at the mount whose address is `audience`.

        Raises Unauthenticated, or KeysUnavailable where the token cannot be judged.
        """
        place = (sha256(token.encode("utf-8", "surrogatepass")).digest(), audience)
        known = self._good.find(place, self._clock.wall())
        if known is not None:
            self._heard(known.issuer, OK, True, known.context)
            return known.context
        issuer = OTHER
        try:
            seen = look_at(token)
            settings, keys = self._issuer_of(seen)
            issuer = settings.name
            check_header(seen, settings)
            _check_signature(token, seen, await keys.find(seen.kid, seen.algorithm), settings)
            now = self._clock.wall()
            identity = self._identity(seen, settings, audience, now)
        except (Unauthenticated, KeysUnavailable) as refusal:
            self._heard(issuer, refusal.reason, False)
            raise
        context = self._bind(identity, token)
        self._good.add(place, context, issuer, now, identity.expires_at - now)
        self._heard(issuer, OK, False, context)
        return context

    def _issuer_of(self, seen: Unverified) -> tuple[IssuerSettings, Keys]:
        try:
            return self._issuers[seen.issuer]
        except KeyError:
            raise Unauthenticated(AuthReason.ISSUER) from None

    def _identity(self, seen: Unverified, settings: IssuerSettings, audience: str, now: datetime) -> Identity:
        try:
            return read_claims(seen.claims, settings, audience=audience, now=now, bound=self._bound)
        except PartMissing as missing:
            log.warning("Refused a token: it has no usable claim for %s", missing.setting)
            raise Unauthenticated(AuthReason.CLAIM, issuer=settings.name) from None


def _check_signature(token: str, seen: Unverified, candidates: tuple[PyJWK, ...], settings: IssuerSettings) -> None:
    """Raises Unauthenticated unless one of the keys signed the token: UNKNOWN_KID, SIGNATURE or ALG.

    ALG is for keys that are not there for the token's algorithm, or too short for it. `seen` is how `look_at` read the
    token, so its letters are base64url already, with one spelling for each signature.
    """
    reason = AuthReason.ALG if candidates else AuthReason.UNKNOWN_KID
    signed, _, written = token.rpartition(".")
    message, signature = signed.encode("ascii"), urlsafe_b64decode(written + "=" * (-len(written) % 4))
    for key in candidates[:_TRIES]:
        # The algorithm is the key's own, and a key does nothing for a token that names another.
        if key.algorithm_name != seen.algorithm or key.Algorithm.check_key_length(key.key) is not None:
            continue
        if key.Algorithm.verify(message, key.key, signature):
            return
        reason = AuthReason.SIGNATURE
    raise Unauthenticated(reason, issuer=settings.name)


class _Good(NamedTuple):
    context: AuthContext
    issuer: str
    since: datetime
    until: datetime


class _GoodTokens:
    """The tokens that were found good, by their digest and audience; the least recently used is forgotten first."""

    def __init__(self, size: int, ttl: timedelta) -> None:
        self._size = size
        self._ttl = ttl
        self._found: OrderedDict[tuple[bytes, str], _Good] = OrderedDict()

    def __contains__(self, place: tuple[bytes, str]) -> bool:
        return place in self._found

    def find(self, place: tuple[bytes, str], now: datetime) -> _Good | None:
        good = self._found.get(place)
        if good is None:
            return None
        # A clock that was set back may stand before the token's beginning.
        if good.since <= now < good.until:
            self._found.move_to_end(place)
            return good
        del self._found[place]
        return None

    def add(self, place: tuple[bytes, str], context: AuthContext, issuer: str, now: datetime, left: timedelta) -> None:
        """Remembers a token that is good for the time `left`."""
        self._found[place] = _Good(context, issuer, now, now + min(self._ttl, left))
        while len(self._found) > self._size:
            self._found.popitem(last=False)


_TRIES: Final = 8
"""Signatures that one token is worth, if it does not name a key."""
