"""API keys of hosts: `KeyVerifier` finds the caller of a key, and `new_key` makes one.

The configuration has the SHA-256 of each key, never the key. No slow hash is needed, and no salt:
they protect passwords, which can be guessed. 128 random bits cannot, at any speed. A key is found by
its digest. The time of that may depend on digests. They show nothing of a key, since another digest
needs another key.

The identity of a key has a fixed issuer, and the subject and tenant of its entry. So tasks belong to
the subject, and another key of it finds them. The name of the entry is the id of the credential (`jti`).
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final
from weakref import WeakSet

from taskgate.auth.claims import API_KEY_PREFIX, API_KEYS, ApiKeySettings, bearer_token
from taskgate.auth.context import AuthContext, Identity
from taskgate.auth.jwt import OK, TokenListener
from taskgate.clock import Clock, Entropy
from taskgate.errors import AuthReason, Unauthenticated

ISSUER: Final = "urn:taskgate:api-keys"
"""The issuer in the identity of a key. It is no URL, so it is no issuer of tokens."""
_RANDOM_BYTES: Final = 32
_KEY: Final = re.compile(rf"{API_KEY_PREFIX}[A-Za-z0-9_-]{{22,128}}").fullmatch
"""A key that can have 128 random bits, at six in each character."""


def new_key(entropy: Entropy) -> str:
    """Make a key of 256 random bits."""
    return API_KEY_PREFIX + urlsafe_b64encode(entropy.token(_RANDOM_BYTES)).rstrip(b"=").decode()


def is_long_enough(key: str) -> bool:
    """Whether a text has the form of a key, and can have 128 random bits."""
    return _KEY(key) is not None


def key_digest(key: str) -> str:
    """The SHA-256 of a key, in hexadecimal digits."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class VerifiedKey:
    """A key of the configuration, with its caller. `was_used`: a host has sent it."""

    __slots__ = ("__weakref__", "_clock", "_report", "context", "is_revoked", "settings", "was_used")

    def __init__(self, settings: ApiKeySettings, context: AuthContext, clock: Clock, report: Callable[[], object]):
        self.settings = settings
        self.context = context
        self._clock = clock
        self._report = report
        self.is_revoked = self.was_used = False

    @property
    def is_expired(self) -> bool:
        """Whether the end of the key has come."""
        return self.settings.expires is not None and self.settings.expires <= self._clock.wall()

    def recall(self) -> bool:
        if self.is_revoked or self.is_expired:
            return False
        self._report()
        return True


class KeyVerifier:
    """The verifier of API keys. `bind` makes the context of an identity.

    Once for each `verify`, before that returns or raises, `listener` is called with the outcome. A
    key that was used before calls `on_recall` instead.
    """

    def __init__(
        self,
        keys: Iterable[ApiKeySettings],
        *,
        bind: Callable[[Identity, None], AuthContext],
        clock: Clock,
        listener: TokenListener,
        on_recall: Callable[[], object],
    ) -> None:
        self._listener = listener
        self.settings: Final = frozenset(keys)
        self._keys = {
            settings.digest: VerifiedKey(settings, bind(_identity(settings), None), clock, on_recall)
            for settings in self.settings
        }
        # These keys, and those of earlier verifiers by which requests under way were admitted.
        self._revocable = WeakSet(self._keys.values())

    @staticmethod
    def is_key(token: str) -> bool:
        """Whether a text is an API key by its beginning, and so no token."""
        return token.startswith(API_KEY_PREFIX)

    @staticmethod
    def read(authorization: Sequence[str], api_keys: Sequence[str], query: str) -> str:
        """The token or key of a request, from its Authorization and X-API-Key fields and its query.

        Raises Unauthenticated: MALFORMED for several that differ, API_KEY for an X-API-Key that is none,
        and what `bearer_token` raises.
        """
        sent = set(api_keys)
        try:
            sent.add(bearer_token(authorization, query))
        except Unauthenticated as refusal:
            if refusal.token_sent:
                raise
        if not sent:
            advice = f"an API key ({API_KEY_PREFIX}...) is sent as Authorization: Bearer KEY, or as X-API-Key: KEY"
            raise Unauthenticated(AuthReason.MISSING, detail=advice)
        if len(sent) > 1:
            raise _refusal(AuthReason.MALFORMED, "Authorization and X-API-Key differ: send one of them")
        (token,) = sent
        if api_keys and not KeyVerifier.is_key(token):
            raise _refusal(AuthReason.API_KEY, f"X-API-Key has no API key: one begins with {API_KEY_PREFIX}")
        return token

    def is_known(self, key: str) -> bool:
        """Whether the configuration has this key; it may have expired."""
        return key_digest(key) in self._keys

    def contexts(self) -> Iterator[AuthContext]:
        """The auth contexts of the keys that were used; the same one may come several times."""
        return (each.context for each in self._keys.values() if each.was_used)

    def verify(self, key: str) -> VerifiedKey:
        """The entry of a key. Raises Unauthenticated, API_KEY or EXPIRED."""
        found = self._keys.get(key_digest(key))
        if found is None:
            self._listener(API_KEYS, AuthReason.API_KEY)
            raise _refusal(AuthReason.API_KEY, "the API key is unknown or was removed: ask the operator for another")
        if found.is_expired:
            self._listener(API_KEYS, AuthReason.EXPIRED)
            raise _refusal(AuthReason.EXPIRED, "the API key expired: ask the operator for another")
        if found.was_used:
            found.recall()
        else:
            found.was_used = True
            self._listener(API_KEYS, OK, found.context)
        return found

    def revoke(self, after: "KeyVerifier | None") -> None:
        """Revoke the keys that `after`, which takes the place of this one, has not or has otherwise.

        `after` takes over the others: requests that they admitted may be under way at a later reload.
        """
        for each in tuple(self._revocable):
            each.is_revoked = after is None or each.settings not in after.settings
            if after is not None and not each.is_revoked:
                after._revocable.add(each)


def _identity(settings: ApiKeySettings) -> Identity:
    return Identity(
        issuer_name=API_KEYS,
        issuer=ISSUER,
        subject=settings.subject,
        client_id=None,
        tenant=settings.tenant,
        scopes=settings.scopes,
        expires_at=settings.expires,
        claims={"iss": ISSUER, "sub": settings.subject, "jti": settings.name},
        method="api_key",
    )


def _refusal(reason: AuthReason, detail: str) -> Unauthenticated:
    return Unauthenticated(reason, detail=detail, what="API key")
