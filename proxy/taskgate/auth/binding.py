"""The reference of an auth context: a keyed digest of who somebody is. Pure.

Whoever holds the deployment key can tell whether a reference is somebody's; nobody else learns anything from it.
"""

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Collection
from typing import Final

from taskgate.auth.context import AuthContext, Identity

PARTS: Final = ("iss", "tenant", "sub", "client_id")
"""What an auth context can be made of, in the order of the digest."""
MIN_KEY: Final = 32
"""Bytes of a deployment key: with fewer it would be weaker than the digest."""
LENGTH: Final = 22
"""Letters of a reference: 132 bits, and never a word that stands for a context of its own."""


class ContextKeys:
    """The deployment keys, the present one and the one it replaces, and which parts count.

    Raises ValueError for a key that is too short, an unknown part, and for parts with neither an issuer nor a subject.
    """

    __slots__ = ("_bound", "_current", "_previous")

    def __init__(self, current: bytes, previous: bytes | None = None, bind: Collection[str] = PARTS) -> None:
        if len(current) < MIN_KEY or (previous is not None and len(previous) < MIN_KEY):
            raise ValueError(f"a deployment key has at least {MIN_KEY} bytes")
        if not set(bind) <= set(PARTS):
            raise ValueError(f"an auth context is made of {', '.join(PARTS)}")
        if {"iss", "sub"}.isdisjoint(bind):
            raise ValueError("an auth context without issuer and subject would belong to everybody")
        self._current = current
        self._previous = previous
        self._bound = frozenset(bind)

    def bind(self, identity: Identity, token: str | None) -> AuthContext:
        """The auth context of somebody: the same for the same parts, whatever else the token says.

        No part may hold surrogates (`read_claims` lets none through): a pair of them is spelt like another letter.
        """
        text = self._canonical(identity)
        earlier = None if self._previous is None else _reference(self._previous, text)
        return AuthContext(key=_reference(self._current, text), earlier=earlier, identity=identity, token=token)

    def _canonical(self, identity: Identity) -> bytes:
        """All parts in their order, as JSON in which every text has one spelling; null for what does not count."""
        values = (identity.issuer, identity.tenant, identity.subject, identity.client_id)
        counted = [value if part in self._bound else None for part, value in zip(PARTS, values, strict=True)]
        return json.dumps(counted, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def _reference(key: bytes, text: bytes) -> str:
    return urlsafe_b64encode(hmac.digest(key, text, "sha256"))[:LENGTH].decode("ascii")
