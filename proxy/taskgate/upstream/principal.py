"""The caller that a request to a server is made for: `Principal`. Values only.

Sessions and gateways attach it to each request; `credentials` makes tokens and headers from it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller that a request to a server is made for, as far as known.

    `context` tells callers apart and contains no name. `subject`, `client` and `token` are None if
    callers need no token, or none is at hand. `scopes` and `good_until` are those of the token.
    `is_known` is False if only the context is remembered.
    """

    context: str
    subject: str | None = None
    client: str | None = None
    token: str | None = field(default=None, repr=False)
    scopes: frozenset[str] = frozenset()
    good_until: datetime | None = None
    is_known: bool = True


PrincipalSource = Callable[[], Principal]
"""Returns the principal of a session: always the same context, with the caller's latest accepted
token."""
