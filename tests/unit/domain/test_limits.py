"""Caps that a new task is checked against, and other limits for some callers."""

from typing import Any

import pytest

from requirements import covers
from taskgate.domain.limits import Cap, Caps, CapScope, Override, Overrides

# --- caps -------------------------------------------------------------------------------------------------------------

EVERY_CAP = Caps(
    tasks_per_context=1,
    tasks_per_subject=2,
    tasks_per_tenant=3,
    tasks_per_tool=4,
    tasks_per_upstream=5,
    tasks_global=6,
    kept_per_context=7,
    kept_per_subject=8,
    kept_global=9,
)


def listed(caps: tuple[Cap, ...]) -> list[tuple[str, int, bool]]:
    return [(cap.scope.value, cap.limit, cap.bytes) for cap in caps]


def test_every_cap_is_asked_from_what_concerns_fewest_to_what_concerns_everybody() -> None:
    assert listed(EVERY_CAP.applicable({}, None, True)) == [
        ("context", 1, False),
        ("subject", 2, False),
        ("tenant", 3, False),
        ("tool", 4, False),
        ("upstream", 5, False),
        ("global", 6, False),
        ("context", 7, True),
        ("subject", 8, True),
        ("global", 9, True),
    ]


def test_what_the_operator_leaves_open_is_no_cap() -> None:
    assert listed(Caps(tasks_per_context=9).applicable({}, None, True)) == [
        ("context", 9, False),
        ("subject", 18, False),
    ]


@covers("T46")
@pytest.mark.parametrize("own", [{}, {"tasks_per_context": 50, "kept_per_context": 60}], ids=["usual", "override"])
def test_the_clients_of_a_person_have_twice_the_limit_of_one_unless_the_operator_says_otherwise(
    own: dict[str, int],
) -> None:
    caps = Caps(tasks_per_context=9, kept_per_context=7)
    limits = {(scope, of_bytes): limit for scope, limit, of_bytes in listed(caps.applicable(own, None, False))}
    assert limits["subject", False] == 2 * limits["context", False]
    assert limits["subject", True] == 2 * limits["context", True]
    set_apart = caps._replace(tasks_per_subject=3).applicable(own, None, False)
    assert ("subject", 3, False) in listed(set_apart)


def test_a_caller_without_a_tenant_is_not_counted_with_any() -> None:
    assert "tenant" not in [scope for scope, _, _ in listed(EVERY_CAP.applicable({}, None, False))]


@pytest.mark.parametrize("name", Caps._fields)
def test_a_callers_own_limit_stands_for_the_usual_one_and_for_no_other(name: str) -> None:
    assert EVERY_CAP.applicable({name: 99}, None, True) == EVERY_CAP._replace(**{name: 99}).applicable({}, None, True)
    assert 99 in [limit for _, limit, _ in listed(EVERY_CAP.applicable({name: 99}, None, True))]


def test_what_a_rule_says_of_a_tool_wins() -> None:
    by_rule = [cap for cap in EVERY_CAP.applicable({"tasks_per_tool": 50}, 0, True) if cap.scope is CapScope.TOOL]
    assert listed(tuple(by_rule)) == [("tool", 0, False)]
    assert ("tool", 8, False) in listed(Caps(tasks_per_context=1).applicable({}, 8, False))


def test_caps_of_the_same_kind_of_caller_are_made_once() -> None:
    assert EVERY_CAP.applicable({"tasks_per_tool": 50}, 2, True) is EVERY_CAP.applicable(
        {"tasks_per_tool": 50}, 2, True
    )


# --- overrides --------------------------------------------------------------------------------------------------------

GOLD = Override(tenant="gold", caps={"tasks_per_context": 50})
BOTS = Override(claims={"kind": frozenset({"bot", "cron"})})
SAID = Override(claims={"kind": frozenset({"true", "2", "2.5"})})
BOTH = Override(tenant="gold", claims={"kind": frozenset({"bot"}), "plan": frozenset({"pro"})})
ALL = Override()


@pytest.mark.parametrize(
    ("override", "tenant", "claims", "fits"),
    [
        (GOLD, "gold", {}, True),
        (GOLD, "silver", {}, False),
        (GOLD, None, {}, False),
        (BOTS, None, {"kind": "bot"}, True),
        (BOTS, None, {"kind": "cron"}, True),
        (BOTS, None, {"kind": "human"}, False),
        (BOTS, None, {"kind": ["human", "bot"]}, True),
        (BOTS, None, {"kind": ["human"]}, False),
        (BOTS, None, {"kind": [["bot"], {"bot": 1}, 7]}, False),
        (BOTS, None, {"kind": {"bot": True}}, False),
        (BOTS, None, {"kind": None}, False),
        (BOTS, None, {}, False),
        (SAID, None, {"kind": True}, True),
        (SAID, None, {"kind": False}, False),
        (SAID, None, {"kind": 2.0}, True),
        (SAID, None, {"kind": 2.5}, True),
        (SAID, None, {"kind": 2.25}, False),
        (BOTH, "gold", {"kind": "bot", "plan": "pro"}, True),
        (BOTH, "gold", {"kind": "bot"}, False),
        (BOTH, "silver", {"kind": "bot", "plan": "pro"}, False),
        (ALL, None, {}, True),
        (ALL, "gold", {"kind": "bot"}, True),
    ],
)
def test_an_override_is_for_who_has_all_that_it_names(
    override: Override, tenant: str | None, claims: dict[str, Any], fits: bool
) -> None:
    assert override.matches(tenant, claims) is fits


def test_the_first_that_fits_counts() -> None:
    assert Overrides((BOTH, GOLD, ALL)).find("gold", {"kind": "bot"}) is GOLD
    assert Overrides((BOTH, GOLD, ALL)).find("silver", {}) is ALL


def test_most_callers_have_none() -> None:
    assert Overrides((GOLD,)).find("silver", {}) is None
    assert Overrides().find(None, {}) is None


@pytest.mark.parametrize("tenant", [None, "gold", "silver", "tin"])
@pytest.mark.parametrize("kind", [None, "bot", "human", ["bot"], ["x", "cron"], 7])
def test_one_is_found_as_if_all_were_looked_at(tenant: str | None, kind: object) -> None:
    all_ = Overrides((BOTH, Override(tenant="silver"), BOTS, GOLD, Override(tenant="tin", ttl_max=None)))
    for several in (all_, Overrides(reversed(all_)), Overrides((*all_, ALL))):
        claims = {"kind": kind}
        assert several.find(tenant, claims) is next((each for each in several if each.matches(tenant, claims)), None)


def test_callers_are_told_apart_by_values_that_an_override_names_and_by_nothing_else() -> None:
    overrides = Overrides((BOTS, BOTH, GOLD))

    def apart(**claims: object) -> object:
        return overrides.relevant_claims(claims)

    assert apart(kind="bot", sub="ann") == apart(kind=["bot", "human", 7], sub="bob")
    assert apart(kind="bot") != apart(kind="cron")
    assert apart(kind="bot") != apart(kind=["bot", "cron"])
    assert apart(kind="bot") != apart(kind="bot", plan="pro")
    assert apart(kind="human") == apart() == apart(kind=None, plan=["free"])
    assert Overrides((GOLD,)).relevant_claims({"kind": "bot"}) == ()


def test_overrides_are_a_tuple_of_them() -> None:
    assert tuple(Overrides([GOLD, BOTS])) == (GOLD, BOTS)
    assert len(Overrides()) == 0
