"""Other limits for some callers: which of them are a caller's. Pure.

What must not live here: what the limits mean (`domain/rates`, `domain/caps`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from taskgate.domain.gcra import RateLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Limits that stand for the usual ones, for callers of `tenant` who have all of `claims`; None and {} mean any.

    A claim is had when it is one of the values, or a list that has one of them. `rates` are by the names of policies,
    `caps` by those of the fields of Caps; `calls` is the caller's share of a server's slots. What is not named is as
    for everybody.
    """

    tenant: str | None = None
    claims: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rates: Mapping[str, RateLimit] = field(default_factory=dict)
    caps: Mapping[str, int] = field(default_factory=dict)
    calls: int | None = None
    ttl_max: timedelta | None = None

    def matches(self, tenant: str | None, claims: Mapping[str, Any]) -> bool:
        """Whether it is for a caller of that tenant with those claims."""
        if self.tenant is not None and self.tenant != tenant:
            return False
        return all(_found(claims.get(name), values) for name, values in self.claims.items())


class Overrides(tuple[Override, ...]):
    """All of them, in the order of the file."""

    def __init__(self, overrides: Iterable[Override] = ()) -> None:
        self._of_any = tuple(each for each in self if each.tenant is None)
        tenants = {each.tenant for each in self} - {None}
        self._of_tenant = {one: tuple(each for each in self if each.tenant in (None, one)) for one in tenants}
        values: dict[str, frozenset[str]] = {}
        for name, some in (claim for each in self for claim in each.claims.items()):
            values[name] = values.get(name, frozenset()) | some
        self._values = tuple(values.items())

    def of(self, tenant: str | None, claims: Mapping[str, Any]) -> Override | None:
        """The first that is for a caller of that tenant with those claims. Overrides of other tenants cost nothing."""
        there = self._of_tenant.get(tenant, self._of_any)
        return next((each for each in there if each.matches(tenant, claims)), None)

    def told_apart_by(self, claims: Mapping[str, Any]) -> tuple[frozenset[str], ...]:
        """What of a caller's claims matters here: callers of one tenant for whom it is the same have the same."""
        return tuple([_found(claims.get(name), values) for name, values in self._values])


def text_of(said: object) -> str | None:
    """How a file writes one value of a claim: text as it is, numbers and booleans as in JSON; None for all else.

    A whole number is written without a fraction, however the token has it.
    """
    match said:
        case str():
            return said
        case bool():
            return "true" if said else "false"
        case int():
            return str(said)
        case float():
            return str(int(said)) if said.is_integer() else repr(said)
    return None


def _found(said: object, values: frozenset[str]) -> frozenset[str]:
    """Which of the values a claim has."""
    texts = map(text_of, said if isinstance(said, list) else [said])
    return frozenset(text for text in texts if text is not None and text in values)
