"""For whom the gateway speaks to a server. Values only; what is shown to the server for them is not made here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody for whom the gateway speaks to a server, as far as they are known.

    `context` tells callers apart and names nobody. `subject`, `client` and `token` are None where nobody was asked for
    a token, or none is at hand; `scopes` and `good_until` are the token's. `is_known` is False for somebody of whom
    only the context is remembered.
    """

    context: str
    subject: str | None = None
    client: str | None = None
    token: str | None = field(default=None, repr=False)
    scopes: frozenset[str] = frozenset()
    good_until: datetime | None = None
    is_known: bool = True


PrincipalSource = Callable[[], Principal]
"""Tells for whom a session speaks: always the same context, with the token that they were last let in with."""
