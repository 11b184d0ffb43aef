"""Pages of lists: `ListQuery` asks for one, `ListCursors` encrypts the place where the next one starts.

A place may contain the id of a task, which is nearly a secret. So a cursor is encrypted
(AES-256-GCM), and opens for the same list only.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from taskgate.clock import Entropy
from taskgate.operators.access import ApiError
from taskgate.operators.routes import WHOLE, Query

MAX_CURSOR: Final = 16 * 2**10
"""The most characters of a cursor. A place may name an id of any length up to 4 KiB."""
MAX_PAGE: Final = 100
"""The most items of one page."""
_NONCE: Final = 12
_CURSOR: Final = r"^[A-Za-z0-9_-]+$"


class ListQuery(Query):
    """Base of the query of a list: the page. Parameters beside it select items."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="The most items of the page."), WHOLE] = 50
    cursor: Annotated[
        Annotated[str, StringConstraints(max_length=MAX_CURSOR, pattern=_CURSOR)] | None,
        Field(description="`next` of the page before, with the same other parameters."),
    ] = None

    @property
    def listing(self) -> str:
        """A text that is the same for all pages of a list, and for no other list."""
        return type(self).__name__ + self.model_dump_json(exclude={"cursor", "limit"})


Keys = Callable[[], tuple[bytes, bytes | None]]
"""Returns the key that encrypts, 32 bytes, and the one before it, which still decrypts."""


class ListCursors:
    """Cursors under the present keys."""

    def __init__(self, keys: Keys, entropy: Entropy) -> None:
        self._keys = keys
        self._entropy = entropy

    def seal(self, place: list[Any], listing: str) -> str:
        """Encrypt a place, which is JSON, for the list that `listing` describes."""
        nonce = self._entropy.token(_NONCE)
        sealed = _cipher(self._keys()[0]).encrypt(nonce, json.dumps(place).encode(), listing.encode())
        return _encoded(nonce + sealed)

    def open(self, cursor: str, listing: str) -> list[Any]:
        """The place in a cursor. Raises ApiError (400) for any text that was not made for this list."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see `_cipher`

        sealed = _decoded(cursor)
        for key in self._keys():
            try:
                if key is not None:
                    opened = _cipher(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], listing.encode())
                    return list(json.loads(opened))
            except (InvalidTag, ValueError):
                continue
        raise ApiError(400, "invalid_cursor", "the cursor is not of this list: start again without one")


def _encoded(sealed: bytes) -> str:
    return urlsafe_b64encode(sealed).rstrip(b"=").decode()


def _decoded(cursor: str) -> bytes:
    """The bytes in a cursor; none for a text that `_encoded` does not make."""
    try:
        sealed = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (Error, ValueError):
        return b""
    # The library skips characters that it does not know, and bits at the end.
    return sealed if _encoded(sealed) == cursor else b""


def _cipher(key: bytes) -> Any:
    # It loads a library of some MiB that a gateway without operators saves.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(key)
