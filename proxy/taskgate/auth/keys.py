"""The seam to the keys that an issuer signs with. Where they come from, and how old they may be, stands behind it."""

from typing import Protocol

from jwt import PyJWK


class Keys(Protocol):
    """The keys of one issuer."""

    async def find(self, kid: str | None, algorithm: str) -> tuple[PyJWK, ...]:
        """The keys that may have signed a token with this key id and algorithm; () where the issuer has no such key.

        Every one is bound to `algorithm`. Raises KeysUnavailable where that cannot be told.
        """
        ...
