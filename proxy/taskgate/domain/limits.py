"""Caps on stored tasks, and other limits for some callers: `Caps`, `Override`.

`Caps.applicable` says against which caps a new task is checked; the stores do the counting.
`Overrides` finds the limits that an operator gives to callers of a tenant or with certain claims.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, overload

from taskgate.domain.rates import RateLimit

# --- caps -------------------------------------------------------------------------------------------------------------


class CapScope(StrEnum):
    """Which records a cap counts together with a new one: those of its caller, its person, tenant,
    tool or upstream, or all.
    """

    CONTEXT = "context"
    SUBJECT = "subject"
    """All clients of one person or service."""
    TENANT = "tenant"
    TOOL = "tool"
    """A tool of one upstream: a tool of the same name at another upstream is another tool."""
    UPSTREAM = "upstream"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """A cap of records, or of bytes with `bytes`, over a scope. A new task beyond it is refused.

    A cap of records: at most `limit` unfinished, unexpired ones, the new one included. A cap of
    bytes counts stored parameters and outcomes until they are purged. It refuses a new task once
    these bytes have reached `limit`. It is over CONTEXT, SUBJECT or GLOBAL only. `place` is the index of the
    scope among all scopes; stores use it as a key.
    """

    scope: CapScope
    limit: int
    bytes: bool = False
    place: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", list(CapScope).index(self.scope))


SUBJECT_SHARE: Final = 2
"""A person has so many times what one of its clients may have, unless the operator says otherwise."""


class Caps(NamedTuple):
    """The operator's caps; None means no cap. Those of a subject then follow that of a context, times
    SUBJECT_SHARE.

    `kept_…` are bytes.
    """

    tasks_per_context: int
    tasks_per_subject: int | None = None
    tasks_per_tenant: int | None = None
    tasks_per_tool: int | None = None
    tasks_per_upstream: int | None = None
    tasks_global: int | None = None
    kept_per_context: int | None = None
    kept_per_subject: int | None = None
    kept_global: int | None = None

    def applicable(self, overrides: Mapping[str, int], tool_cap: int | None, has_tenant: bool) -> tuple[Cap, ...]:
        """The caps of a new task: caps of records, then caps of bytes, each by the narrowest scope
        first.

        `overrides` are the caller's own limits under the names of the fields above. `tool_cap` is
        the limit that a rule sets for the tool, and wins over them. Caps of tenants are left out
        for a caller without a tenant.
        """
        return _applicable(self, tuple(overrides.items()), tool_cap, has_tenant)


@lru_cache(maxsize=256)
def _applicable(
    caps: Caps, overrides: tuple[tuple[str, int], ...], tool_cap: int | None, has_tenant: bool
) -> tuple[Cap, ...]:
    own = caps._replace(**dict(overrides)) if overrides else caps
    limits = (
        (CapScope.CONTEXT, own.tasks_per_context, False),
        (CapScope.SUBJECT, subject_limit(own.tasks_per_subject, own.tasks_per_context), False),
        (CapScope.TENANT, own.tasks_per_tenant if has_tenant else None, False),
        (CapScope.TOOL, own.tasks_per_tool if tool_cap is None else tool_cap, False),
        (CapScope.UPSTREAM, own.tasks_per_upstream, False),
        (CapScope.GLOBAL, own.tasks_global, False),
        (CapScope.CONTEXT, own.kept_per_context, True),
        (CapScope.SUBJECT, subject_limit(own.kept_per_subject, own.kept_per_context), True),
        (CapScope.GLOBAL, own.kept_global, True),
    )
    return tuple(
        Cap(scope=scope, limit=limit, bytes=of_bytes) for scope, limit, of_bytes in limits if limit is not None
    )


@overload
def subject_limit(subject: int | None, context: int) -> int: ...
@overload
def subject_limit(subject: int | None, context: int | None) -> int | None: ...
def subject_limit(subject: int | None, context: int | None) -> int | None:
    """The limit of a person: `subject` if the operator sets one, else a multiple of that of a client."""
    if subject is not None or context is None:
        return subject
    return SUBJECT_SHARE * context


# --- overrides --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Limits for callers of `tenant` that have all of `claims`; None and {} mean any caller.

    A caller has a claim if its value is one of the given values, or a list with one of them.
    `rates` are by name of the policy, `caps` by name of the field of Caps. `calls` is the caller's
    share of a server's permits. Limits that are not named stay the general ones.
    """

    tenant: str | None = None
    claims: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rates: Mapping[str, RateLimit] = field(default_factory=dict)
    caps: Mapping[str, int] = field(default_factory=dict)
    calls: int | None = None
    ttl_max: timedelta | None = None

    def matches(self, tenant: str | None, claims: Mapping[str, Any]) -> bool:
        """Whether the override is for a caller of that tenant with those claims."""
        if self.tenant is not None and self.tenant != tenant:
            return False
        return all(_matching_values(claims.get(name), values) for name, values in self.claims.items())


class Overrides(tuple[Override, ...]):
    """All overrides, in the order of the configuration file."""

    def __init__(self, overrides: Iterable[Override] = ()) -> None:
        self._for_any_tenant = tuple(each for each in self if each.tenant is None)
        tenants = {each.tenant for each in self} - {None}
        self._by_tenant = {one: tuple(each for each in self if each.tenant in (None, one)) for one in tenants}
        values: dict[str, frozenset[str]] = {}
        for name, some in (claim for each in self for claim in each.claims.items()):
            values[name] = values.get(name, frozenset()) | some
        self._values = tuple(values.items())

    def find(self, tenant: str | None, claims: Mapping[str, Any]) -> Override | None:
        """The first override for a caller of that tenant with those claims.

        The cost does not grow with the overrides of other tenants.
        """
        candidates = self._by_tenant.get(tenant, self._for_any_tenant)
        return next((each for each in candidates if each.matches(tenant, claims)), None)

    def relevant_claims(self, claims: Mapping[str, Any]) -> tuple[frozenset[str], ...]:
        """The values of a caller's claims that any override looks at: a cache key for `find`.

        Callers of one tenant with equal keys have the same override.
        """
        if not self._values:
            return ()
        return tuple([_matching_values(claims.get(name), values) for name, values in self._values])


def claim_text(value: object) -> str | None:
    """How a configuration file writes one value of a claim; None if it cannot.

    Text stands as it is, numbers and booleans as in JSON. A whole number has no fraction, however
    the token writes it.
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
    return None


def _matching_values(claim: object, values: frozenset[str]) -> frozenset[str]:
    texts = map(claim_text, claim if isinstance(claim, list) else [claim])
    return frozenset(text for text in texts if text is not None and text in values)
