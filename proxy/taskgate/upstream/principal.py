"""The caller that a request to a server is made for: `Principal`. Values only.

A session has a `PrincipalSource`; a request may name another principal than that of its session.
`credentials` makes the tokens and headers of a request from its principal.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller that a request to a server is made for, as far as known.

    `context` is the auth context: an id that tells callers apart and contains no name. `subject`,
    `client`, `token`, `scopes` and `good_until` (the end of the token's validity) are from the
    caller's token. They are empty if callers need no token, or none is at hand. `is_known` is False
    if only the context is known, from the record of a task.
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
