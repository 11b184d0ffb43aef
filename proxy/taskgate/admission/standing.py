"""Where a caller stands: the tenant it is counted with, and the limits that are its own.

What must not live here: the limits themselves (`domain`), and who somebody is (`auth`).
"""

import json
from collections import OrderedDict
from hashlib import blake2s
from typing import Final, NamedTuple

from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext, Identity
from taskgate.domain.limits import Override

_REMEMBERED: Final = 10_000


class QuotaSubject(NamedTuple):
    """`tenant` is an opaque reference that no two tenants share, not even of the same name at two issuers."""

    tenant: str | None
    override: Override | None


class QuotaSubjects:
    """Knows where callers stand by the rules as they are now, and remembers it of those who came last."""

    def __init__(self, live: RuntimeConfig) -> None:
        self._live = live
        self._overrides = live.now.overrides
        self._nobodys = QuotaSubject(None, self._overrides.find(None, {}))
        # By all that it depends on, which is little: neither who somebody is nor the rest of what a token says.
        self._known: OrderedDict[_Apart, QuotaSubject] = OrderedDict()

    def of(self, caller: AuthContext) -> QuotaSubject:
        """Where a caller stands."""
        if self._live.now.overrides is not self._overrides:
            self._overrides = self._live.now.overrides
            self._nobodys = QuotaSubject(None, self._overrides.find(None, {}))
            self._known.clear()
        identity = caller.identity
        if identity is None:
            return self._nobodys
        apart = (identity.issuer, identity.tenant, self._overrides.relevant_claims(identity.claims))
        known = self._known.get(apart)
        if known is not None:
            self._known.move_to_end(apart)
            return known
        standing = QuotaSubject(_reference(identity), self._overrides.find(identity.tenant, identity.claims))
        if len(self._known) >= _REMEMBERED:
            self._known.popitem(last=False)
        self._known[apart] = standing
        return standing

    def calls(self, caller: AuthContext) -> int | None:
        """The caller's own share of a server's slots; None where it is as everybody's."""
        override = self.of(caller).override
        return None if override is None else override.calls


_Apart = tuple[str, str | None, tuple[frozenset[str], ...]]


def _reference(identity: Identity) -> str | None:
    if identity.tenant is None:
        return None
    named = json.dumps([identity.issuer, identity.tenant], separators=(",", ":")).encode()
    return blake2s(named, digest_size=16).hexdigest()
