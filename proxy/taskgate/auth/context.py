"""The auth context: who a request speaks for, reduced to what tasks and sessions are bound to. Pure."""

from dataclasses import dataclass, field
from datetime import datetime

from taskgate.auth.settings import Claims
from taskgate.domain.record import OwnerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a verified token says of who sent it.

    `issuer_name` is the operator's name of its issuer. From `expires_at` on the token is not accepted; what the issuer
    is granted for its clock is in it.
    """

    issuer_name: str
    issuer: str
    subject: str
    client_id: str | None
    tenant: str | None
    scopes: frozenset[str]
    expires_at: datetime
    claims: Claims = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthContext:
    """One caller as far as the gateway can tell callers apart; `key` is no secret and names nobody.

    `earlier` is the same caller's key under the deployment key that is being replaced, so that what was bound to it is
    still found. `identity` and `token` are None without authentication.
    """

    key: str
    earlier: str | None = None
    identity: Identity | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def good_until(self) -> datetime | None:
        """When nothing must be given out any more for what was asked with this token; None where there is no end."""
        return None if self.identity is None else self.identity.expires_at

    def owner(self, mount: str) -> OwnerKey:
        """What belongs to this caller at one mount: ids of one mount are unknown at another (I-ISO-6)."""
        return OwnerKey(self.key, mount)

    def owners(self, mount: str) -> tuple[OwnerKey, ...]:
        """Every key under which something of this caller may be found, the present one first."""
        if self.earlier is None:
            return (self.owner(mount),)
        return (self.owner(mount), OwnerKey(self.earlier, mount))


ANONYMOUS = AuthContext(key="anonymous")
"""Everybody, where there is no authentication: one context, one cap, and ids that nobody can guess between them."""
