"""Access rules decide on requests, as an oracle that shares nothing with them does."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.auth.authorization import AccessDecision, AccessEffect, AccessPolicy, AccessRefusal, AccessRule
from taskgate.auth.context import Identity
from unit.auth.identities import identity

DENY = AccessEffect.DENY


def rule(name: str = "r", *scopes: str, **changes: Any) -> AccessRule:
    return AccessRule(name=name, require_scopes=frozenset(scopes), **changes)


def matches(
    one: AccessRule,
    who: Identity | None = None,
    *,
    method: str = "tools/call",
    upstream: str = "reports",
    tool: str | None = "build",
) -> bool:
    return one.matches(who, method=method, upstream=upstream, tool=tool)


def judge(policy: AccessPolicy, who: Identity | None = None, tool: str | None = "build") -> AccessDecision:
    return policy.decide(who, method="tools/call", upstream="reports", tool=tool)


def test_the_effects_are_the_words_of_the_configuration() -> None:
    assert [str(effect) for effect in AccessEffect] == ["allow", "deny"]


# --- what a rule matches ----------------------------------------------------------------------------------------------


def test_a_rule_that_names_nothing_matches_everything() -> None:
    assert matches(rule())
    assert matches(rule(), identity(), method="initialize", upstream="", tool=None)


@pytest.mark.parametrize(
    ("globs", "method", "expected"),
    [
        (("tasks/*",), "tasks/get", True),
        (("tasks/*",), "tasks/", True),
        (("tasks/*",), "tools/call", False),
        (("tasks/*",), "Tasks/get", False),
        (("tools/call", "tools/list"), "tools/list", True),
        (("tools/call",), "tools/call_", False),
        (("*",), "notifications/tasks/status", True),
        (("tools/*", "prompts/*"), "prompts/get", True),
        ((), "tools/call", False),
    ],
)
def test_a_method_matches_any_of_the_globs(globs: tuple[str, ...], method: str, expected: bool) -> None:
    assert matches(rule(methods=globs), method=method) is expected


def test_a_rule_of_one_upstream_says_nothing_of_another() -> None:
    assert matches(rule(upstream="reports"))
    assert not matches(rule(upstream="reports"), upstream="Reports")
    assert not matches(rule(upstream="report"))


@pytest.mark.parametrize(
    ("glob", "tool", "expected"),
    [
        ("delete_*", "delete_all", True),
        ("delete_*", "Delete_all", False),
        ("DELETE_*", "delete_all", False),
        ("delete_?", "delete_10", False),
        ("*", "", True),
        ("*", "a/b\nc", True),
        ("*", None, False),
        (None, None, True),
    ],
)
def test_a_rule_about_tools_matches_only_requests_that_name_one(
    glob: str | None, tool: str | None, expected: bool
) -> None:
    assert matches(rule(tool=glob), tool=tool) is expected


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("staff", True),
        ("admin", True),
        ("staff admin", False),
        ("Staff", False),
        (["guest", "staff"], True),
        (["guest"], False),
        ([], False),
        ([["staff"]], False),
        ([7, None, {"staff": 1}], False),
        ({"staff": True}, False),
        (True, False),
        (7, False),
        (None, False),
    ],
)
def test_a_claim_is_a_value_or_a_list_that_has_one(claim: object, expected: bool) -> None:
    assert matches(rule(claims={"role": frozenset({"staff", "admin"})}), identity(role=claim)) is expected


@pytest.mark.parametrize(
    ("claim", "value", "expected"),
    [
        (True, "true", True),
        (False, "false", True),
        (True, "True", False),
        (True, "1", False),
        (1, "true", False),
        (5, "5", True),
        (5.0, "5", True),
        (5.5, "5.5", True),
        (-3, "-3", True),
        ([1, True, "x"], "true", True),
        ([1, True, "x"], "1", True),
        (float("inf"), "inf", True),
        (None, "null", False),
        ({"a": 1}, "1", False),
    ],
)
def test_a_number_and_a_boolean_are_what_a_file_writes(claim: object, value: str, expected: bool) -> None:
    denies = rule(claims={"flag": frozenset({value})}, effect=DENY)
    assert matches(denies, identity(flag=claim)) is expected


def test_every_claim_that_a_rule_names_must_be_there() -> None:
    one = rule(claims={"role": frozenset({"staff"}), "tenant": frozenset({"gold"})})
    assert matches(one, identity(role="staff", tenant="gold"))
    assert not matches(one, identity(role="staff"))
    assert not matches(one, identity(role="staff", tenant="iron"))
    assert not matches(rule(claims={"role": frozenset()}), identity(role="staff"))


def test_nobody_has_no_claims() -> None:
    assert not matches(rule(claims={"role": frozenset({"staff"})}), None)


def test_all_conditions_of_a_rule_hold_together() -> None:
    one = rule(methods=("tools/*",), upstream="reports", tool="b*", claims={"role": frozenset({"staff"})})
    who = identity(role="staff")
    assert matches(one, who)
    assert not matches(one, who, method="tasks/get")
    assert not matches(one, who, upstream="other")
    assert not matches(one, who, tool="c")
    assert not matches(one, identity(role="guest"))


# --- what becomes of a request ----------------------------------------------------------------------------------------


def test_without_rules_the_default_decides_and_names_no_rule() -> None:
    assert judge(AccessPolicy()) == AccessDecision(allowed=True)
    assert judge(AccessPolicy(default=DENY)) == AccessDecision(allowed=False)


def test_a_rule_that_does_not_match_leaves_it_to_the_default() -> None:
    assert judge(AccessPolicy(rules=(rule(tool="x"),), default=DENY)) == AccessDecision(allowed=False)
    assert judge(AccessPolicy(rules=(rule(tool="x", effect=DENY),))) == AccessDecision(allowed=True)


def test_the_first_rule_that_matches_decides() -> None:
    rules = (rule("other", effect=DENY, tool="x"), rule("first"), rule("second", effect=DENY))
    assert judge(AccessPolicy(rules=rules, default=DENY)) == AccessDecision(allowed=True, rule="first")
    assert judge(AccessPolicy(rules=rules[::-1])) == AccessDecision(allowed=False, rule="second")


def test_a_rule_allows_who_has_all_its_scopes() -> None:
    policy = AccessPolicy(rules=(rule("r", "read", "write"),), default=DENY)
    assert judge(policy, identity("read", "write", "more")) == AccessDecision(allowed=True, rule="r")


@pytest.mark.parametrize("who", [None, identity(), identity("read"), identity("other")])
def test_whatever_scope_is_missing_all_that_are_needed_are_named(who: Identity | None) -> None:
    policy = AccessPolicy(rules=(rule("r", "read", "write"), rule("later")))
    assert judge(policy, who) == AccessDecision(allowed=False, missing_scopes=frozenset({"read", "write"}), rule="r")


def test_a_rule_that_denies_names_no_scope_that_would_help() -> None:
    policy = AccessPolicy(rules=(rule("closed", effect=DENY),))
    assert judge(policy, identity("admin")) == AccessDecision(allowed=False, rule="closed")


def test_a_claim_chooses_the_rule() -> None:
    rules = (
        rule("staff", claims={"role": frozenset({"staff"})}),
        rule("rest", "reports.admin"),
    )
    policy = AccessPolicy(rules=rules)
    assert judge(policy, identity(role="staff")).rule == "staff"
    assert judge(policy, identity("reports.admin", role="guest")) == AccessDecision(allowed=True, rule="rest")
    assert not judge(policy, None).allowed


def test_a_task_is_judged_by_the_tool_it_runs() -> None:
    policy = AccessPolicy(
        rules=(
            rule("delete", "reports.admin", upstream="reports", tool="delete_*"),
            rule("tasks", methods=("tasks/*",)),
        ),
        default=DENY,
    )

    def get(tool: str | None) -> AccessDecision:
        return policy.decide(identity(), method="tasks/get", upstream="reports", tool=tool)

    assert get("delete_all").missing_scopes == {"reports.admin"}
    assert get("build") == get(None) == AccessDecision(allowed=True, rule="tasks")
    assert not judge(policy, identity(), tool="build").allowed


# --- shadow rules -----------------------------------------------------------------------------------------------------


def test_a_shadow_rule_tells_what_it_would_have_refused_and_decides_nothing() -> None:
    rules = (
        rule("closed", effect=DENY, shadow=True),
        rule("scoped", "a", "b", shadow=True),
        rule("live", "c"),
    )
    told = (AccessRefusal("closed", frozenset()), AccessRefusal("scoped", frozenset({"a", "b"})))
    assert judge(AccessPolicy(rules=rules), identity("c")) == AccessDecision(
        allowed=True, rule="live", shadow_refusals=told
    )
    refused = AccessDecision(allowed=False, rule="live", missing_scopes=frozenset({"c"}), shadow_refusals=told)
    assert judge(AccessPolicy(rules=rules), identity("a")) == refused


def test_shadow_rules_alone_leave_it_to_the_default() -> None:
    rules = (rule("s", effect=DENY, shadow=True),)
    told = (AccessRefusal("s", frozenset()),)
    assert judge(AccessPolicy(rules=rules)) == AccessDecision(allowed=True, shadow_refusals=told)
    assert judge(AccessPolicy(rules=rules, default=DENY)) == AccessDecision(allowed=False, shadow_refusals=told)


def test_a_shadow_rule_is_silent_about_what_it_allows_what_it_does_not_match_and_what_was_decided_before() -> None:
    rules = (
        rule("would allow", "a", shadow=True),
        rule("elsewhere", effect=DENY, tool="x", shadow=True),
        rule("live"),
        rule("behind", effect=DENY, shadow=True),
    )
    assert judge(AccessPolicy(rules=rules), identity("a")) == AccessDecision(allowed=True, rule="live")


# --- broader scopes ---------------------------------------------------------------------------------------------------


def test_a_broader_scope_implies_narrower_ones_through_any_number_of_steps() -> None:
    implied = {"admin": frozenset({"write", "audit"}), "write": frozenset({"read"})}
    policy = AccessPolicy(rules=(rule("r", "read", "audit"),), implied=implied)
    assert judge(policy, identity("admin")).allowed
    assert not judge(policy, identity("write")).allowed
    assert policy.scopes(identity("admin")) == {"admin", "write", "audit", "read"}
    assert policy.scopes(identity("read")) == {"read"}
    assert policy.scopes(None) == frozenset()


def test_scopes_that_imply_each_other_are_the_same() -> None:
    implied = {"a": frozenset({"b"}), "b": frozenset({"c", "b"}), "c": frozenset({"a"})}
    policy = AccessPolicy(implied=implied)
    assert {policy.scopes(identity(one)) for one in "abc"} == {frozenset("abc")}


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
