"""The auth context: who a request speaks for, reduced to what tasks and sessions are bound to. Pure."""

from dataclasses import dataclass

from taskgate.tasks.record import OwnerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthContext:
    """One caller as far as the gateway can tell callers apart; `key` is no secret and names nobody."""

    key: str

    def owner(self, mount: str) -> OwnerKey:
        """What belongs to this caller at one mount: ids of one mount are unknown at another (I-ISO-6)."""
        return OwnerKey(self.key, mount)


ANONYMOUS = AuthContext(key="anonymous")
"""Everybody, where there is no authentication: one context, one cap, and ids that nobody can guess between them."""
