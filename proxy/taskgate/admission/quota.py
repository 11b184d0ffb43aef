"""Quotas: the subject that a caller counts as, and the HTTP fields that report what is left.

Rate limits and caps count by caller or by tenant. `QuotaSubjects` finds the tenant of a caller, and
the override of the configuration that gives it other limits than the usual ones, if any.
`quota_fields` makes the fields for `RateLimiter`.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2s
from math import ceil
from typing import Final, NamedTuple

from taskgate.admission.rules import RuntimeConfig
from taskgate.auth.context import AuthContext, Identity
from taskgate.domain.limits import Override
from taskgate.domain.rates import Demand, RateLimit, RateVerdict

_REMEMBERED: Final = 10_000
_NO_RATES: Final[Mapping[str, RateLimit]] = {}

QuotaFields = tuple[tuple[str, str], ...]
"""The HTTP fields that report what is left; empty if the operator does not expose them."""


class QuotaSubject(NamedTuple):
    """The tenant and the override of a caller, each None if there is none, and its own rates.

    `tenant` is an opaque reference, which differs for equal names of two issuers. `rates` replace
    limits of policies, by name.
    """

    tenant: str | None
    override: Override | None
    rates: Mapping[str, RateLimit] = _NO_RATES


class QuotaSubjects:
    """The subjects of callers by the present configuration. The recent ones are cached."""

    def __init__(self, live: RuntimeConfig) -> None:
        self._live = live
        self._overrides = live.current.overrides
        self._anonymous = _subject(None, self._overrides.find(None, {}))
        # The key has only what the subject depends on, so callers share entries.
        self._cache: OrderedDict[_CacheKey, QuotaSubject] = OrderedDict()

    def of(self, caller: AuthContext) -> QuotaSubject:
        """The subject of a caller."""
        if self._live.current.overrides is not self._overrides:
            self._overrides = self._live.current.overrides
            self._anonymous = _subject(None, self._overrides.find(None, {}))
            self._cache.clear()
        identity = caller.identity
        if identity is None:
            return self._anonymous
        key = (identity.issuer, identity.tenant, self._overrides.relevant_claims(identity.claims))
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        subject = _subject(_reference(identity), self._overrides.find(identity.tenant, identity.claims))
        if len(self._cache) >= _REMEMBERED:
            self._cache.popitem(last=False)
        self._cache[key] = subject
        return subject

    def concurrency_share(self, caller: AuthContext) -> int | None:
        """The caller's own share of a server's slots; None for the usual one."""
        override = self.of(caller).override
        return None if override is None else override.calls


_CacheKey = tuple[str, str | None, tuple[frozenset[str], ...]]


def _subject(tenant: str | None, override: Override | None) -> QuotaSubject:
    return QuotaSubject(tenant, override, _NO_RATES if override is None else override.rates)


def _reference(identity: Identity) -> str | None:
    if identity.tenant is None:
        return None
    named = json.dumps([identity.issuer, identity.tenant], separators=(",", ":")).encode()
    return blake2s(named, digest_size=16).hexdigest()


# --- the HTTP fields --------------------------------------------------------------------------------------------------


def quota_fields(demands: Sequence[Demand], verdicts: Sequence[RateVerdict]) -> QuotaFields:
    """The fields of draft-ietf-httpapi-ratelimit-headers-11 for all enforced policies, the scarcest
    first.
    """
    enforced = [pair for pair in zip(demands, verdicts, strict=True) if not pair[0].policy.shadow]
    if not enforced:
        return ()
    enforced.sort(key=lambda pair: (pair[1].remaining, -pair[1].reset_after))
    policies = (f'"{each.policy.name}";q={each.limit.burst};w={_seconds(_window(each))}' for each, _ in enforced)
    left = (
        f'"{each.policy.name}";r={verdict.remaining};t={_seconds(verdict.reset_after)}' for each, verdict in enforced
    )
    return (("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(left)))


def _window(demand: Demand) -> float:
    """The seconds in which an empty budget fills up."""
    return demand.limit.every * demand.limit.burst


def _seconds(seconds: float) -> int:
    """Whole seconds, rounded up except for a rounding error of the arithmetic."""
    return max(0, ceil(seconds - 1e-6))
