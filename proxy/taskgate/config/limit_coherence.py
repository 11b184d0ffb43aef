"""What the keys about limits say together.

What lives here: the rules between keys of one policy of `limits.rate`, between policies, and between those and
`limits.overrides`; and which of them need tenants or tokens. What must not: the models. What holds: as in coherence,
malformed parts contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from taskgate.config.numbers import read_rate
from taskgate.config.problems import Location, dotted
from taskgate.config.retention import ceiling, mode_of
from taskgate.config.units import DurationIn, write_duration
from taskgate.config.written import Contradiction, listed, section

_RATES: Final = ("limits", "rate")
_OVERRIDES: Final = ("limits", "overrides")
_READ: Final = ("methods", "tool")
_SHARED_ONLY: Final = ("open", "closed")
_OVERRIDABLE: Final = ("context", "tenant")


def limit_contradictions(written: object, usual: object) -> Iterator[Contradiction]:
    """Every contradiction among these keys; a key that `written` lacks is as in `usual`."""
    if section(written, "limits").get("on_store_error") in _SHARED_ONLY and not _is_shared(written):
        yield ("limits", "on_store_error"), "must be local unless store.backend is redis: nobody else counts"
    policies: dict[str, Mapping[str, object]] = {}
    for index, policy in enumerate(map(section, listed(written, *_RATES))):
        here = (*_RATES, index)
        name = policy.get("name")
        if isinstance(name, str) and policies.setdefault(name, policy) is not policy:
            yield (*here, "name"), "must not be the name of another policy"
        yield from _of_policy(policy, here)
        if policy.get("scope") == "tenant" and not has_tenants(written):
            yield (*here, "scope"), f"must not be tenant {without_tenants(written)}"
    if _RATES[1] not in section(written, _RATES[0]):
        policies = {str(each["name"]): each for each in map(section, listed(usual, *_RATES))}
    for index, override in enumerate(map(section, listed(written, *_OVERRIDES))):
        here = (*_OVERRIDES, index)
        yield from _of_match(override, here, written)
        yield from _of_rates(override, here, policies)
        yield from _of_length(override, here, written)


def _of_policy(policy: Mapping[str, object], here: Location) -> Iterator[Contradiction]:
    event, before = policy.get("event"), policy.get("before_auth") is True
    if event == "auth_failure" and policy.get("scope") != "ip":
        yield (*here, "scope"), "must be ip with event auth_failure: nobody knows whose request it was"
    if event == "lookup_failure" and policy.get("scope") == "tool":
        yield (*here, "scope"), "must not be tool with event lookup_failure: what was not found has none"
    if before and event is not None:
        yield (*here, "before_auth"), "must be false with an event"
    elif before and policy.get("scope") != "ip":
        yield (*here, "scope"), "must be ip with before_auth: nobody knows yet whose request it is"
    for key in _READ:
        if policy.get(key) is not None and (event is not None or before):
            why = "with an event, which is no request" if event is not None else "with before_auth: nothing is read yet"
            yield (*here, key), f"must be null {why}"
    methods = listed(policy, "methods")
    if "*" in methods and len(methods) > 1:
        yield (*here, "methods"), "must not hold more than *, which means what no other policy of the scope names"
    yield from _of_burst(policy, here)


def _of_burst(policy: Mapping[str, object], here: Location) -> Iterator[Contradiction]:
    cost, burst = policy.get("cost", 1), policy.get("burst")
    if burst is None:
        try:
            most, what = read_rate(policy.get("rate")).count, "the number of the rate, where burst is not given"
        except ValueError:
            return
    elif isinstance(burst, int):
        most, what = burst, dotted((*here, "burst"))
    else:
        return
    if isinstance(cost, int) and cost > most >= 1:
        yield (*here, "cost"), f"must be at most {what}, or nothing would ever pass"


def _of_match(override: Mapping[str, object], here: Location, written: object) -> Iterator[Contradiction]:
    where = (*here, "match")
    match = section(override, "match")
    if match.get("tenant") is not None and not has_tenants(written):
        yield (*where, "tenant"), f"must be null {without_tenants(written)}"
    if section(match, "claims") and mode_of(written) == "none":
        yield (*where, "claims"), "must be empty with auth.mode none, where nobody has claims"
    if section(override, "concurrency").get("tasks_per_tenant") is not None and not has_tenants(written):
        yield (*here, "concurrency", "tasks_per_tenant"), f"must be null {without_tenants(written)}"


def _of_rates(
    override: Mapping[str, object], here: Location, policies: Mapping[str, Mapping[str, object]]
) -> Iterator[Contradiction]:
    for name in section(override, "rate"):
        policy = policies.get(name)
        if policy is None:
            yield (*here, "rate", name), "must be the name of a policy of limits.rate"
        elif policy.get("scope") not in _OVERRIDABLE:
            yield (
                (*here, "rate", name),
                "must be the name of a policy of scope context or tenant: others have no caller",
            )


def _of_length(override: Mapping[str, object], here: Location, written: object) -> Iterator[Contradiction]:
    longest = ceiling(written)
    try:
        length = DurationIn().read(override.get("ttl_max"))
    except ValueError:
        return
    if length > longest:
        yield (*here, "ttl_max"), f"must be at most {write_duration(longest)} with auth.mode {mode_of(written)}"


def _is_shared(written: object) -> bool:
    return section(written, "store").get("backend") == "redis"


def has_tenants(written: object) -> bool:
    issuers = section(written, "auth", "issuers")
    return any(section(each, "claims").get("tenant") is not None for each in issuers.values())


def without_tenants(written: object) -> str:
    if mode_of(written) == "none":
        return "with auth.mode none, where nobody has a tenant"
    return "unless an issuer has claims.tenant: nobody has a tenant"
