"""Access rules decide on requests, as an oracle that shares nothing with them does."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from taskgate.auth.authorization import AccessEffect, AccessPolicy, AccessRule
from taskgate.auth.context import Identity
from unit.auth.identities import identity

DENY = AccessEffect.DENY


def test_the_effects_are_the_words_of_the_configuration() -> None:
    assert [str(effect) for effect in AccessEffect] == ["allow", "deny"]


# --- against an oracle ------------------------------------------------------------------------------------------------


SCOPES = ("a", "b", "c")
TOOLS = ("x", "xy", "y")
METHODS = ("tools/call", "tools/list", "tasks/get")
scopes = st.frozensets(st.sampled_from(SCOPES))
implications = st.dictionaries(st.sampled_from(SCOPES), scopes)
claims = st.dictionaries(
    st.sampled_from(("role", "team")),
    st.sampled_from(["p", "q", 1, None]) | st.lists(st.sampled_from(["p", "q", 1]), max_size=2),
)
identities = st.none() | st.builds(lambda held, said: identity(*held, **said), scopes, claims)
# Every glob here is a name or ends in its only star: the oracle needs no other.
conditions = st.fixed_dictionaries(
    {
        "methods": st.none() | st.lists(st.sampled_from([*METHODS, "tools/*", "*"]), max_size=2).map(tuple),
        "upstream": st.sampled_from([None, "m", "n"]),
        "tool": st.sampled_from([None, "*", "x*", "xy"]),
        "claims": st.dictionaries(st.sampled_from(("role", "team")), st.frozensets(st.sampled_from("pq")), max_size=1),
        "shadow": st.booleans(),
    }
)
outcomes = st.just({"effect": DENY}) | st.builds(lambda needed: {"require_scopes": needed}, scopes)


def named(parts: list[tuple[dict[str, Any], dict[str, Any]]]) -> tuple[AccessRule, ...]:
    return tuple(AccessRule(name=f"r{place}", **left, **right) for place, (left, right) in enumerate(parts))


rule_lists = st.lists(st.tuples(conditions, outcomes), max_size=5).map(named)


def starts(glob: str, name: str) -> bool:
    return name.startswith(glob[:-1]) if glob.endswith("*") else name == glob


def spoken_of(one: AccessRule, who: Identity | None, method: str, upstream: str, tool: str | None) -> bool:
    if one.methods is not None and not [glob for glob in one.methods if starts(glob, method)]:
        return False
    if one.upstream is not None and one.upstream != upstream:
        return False
    if one.tool is not None and (tool is None or not starts(one.tool, tool)):
        return False
    for claim, values in one.claims.items():
        said = {} if who is None else who.claims
        if not any(said.get(claim) == value or value in _items(said.get(claim)) for value in values):
            return False
    return True


def _items(claim: object) -> list[object]:
    return claim if isinstance(claim, list) else []


def grown(held: frozenset[str], implied: Mapping[str, frozenset[str]]) -> frozenset[str]:
    for _ in SCOPES:
        held = held.union(*(narrower for broader, narrower in implied.items() if broader in held))
    return held


@given(
    rules=rule_lists,
    default=st.sampled_from(AccessEffect),
    implied=implications,
    who=identities,
    method=st.sampled_from(METHODS),
    upstream=st.sampled_from("mn"),
    tool=st.sampled_from([None, *TOOLS]),
)
def test_a_policy_decides_as_its_rules_read(
    rules: tuple[AccessRule, ...],
    default: AccessEffect,
    implied: dict[str, frozenset[str]],
    who: Identity | None,
    method: str,
    upstream: str,
    tool: str | None,
) -> None:
    policy = AccessPolicy(rules=rules, default=default, implied=implied)
    found = policy.decide(who, method=method, upstream=upstream, tool=tool)

    held = grown(who.scopes if who else frozenset(), implied)
    heard = [one for one in rules if spoken_of(one, who, method, upstream, tool)]
    live = [place for place, one in enumerate(heard) if not one.shadow]
    end = live[0] if live else len(heard)
    against = {one.name for one in heard if one.effect is DENY or one.require_scopes - held}
    assert [told.rule for told in found.shadow_refusals] == [one.name for one in heard[:end] if one.name in against]
    if not live:
        assert (found.allowed, found.rule, found.missing_scopes) == (default is AccessEffect.ALLOW, None, frozenset())
        return
    decider = heard[end]
    assert found.rule == decider.name
    assert found.allowed is (decider.name not in against)
    assert found.missing_scopes == (frozenset() if found.allowed else decider.require_scopes)
