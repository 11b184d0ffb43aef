"""Caps that a new task is checked against, and other limits for some callers."""

import pytest

from taskgate.domain.limits import Caps, Override, Overrides

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


def test_caps_of_the_same_kind_of_caller_are_made_once() -> None:
    assert EVERY_CAP.applicable({"tasks_per_tool": 50}, 2, True) is EVERY_CAP.applicable(
        {"tasks_per_tool": 50}, 2, True
    )


# --- overrides --------------------------------------------------------------------------------------------------------

GOLD = Override(tenant="gold", caps={"tasks_per_context": 50})
BOTS = Override(claims={"kind": frozenset({"bot", "cron"})})
BOTH = Override(tenant="gold", claims={"kind": frozenset({"bot"}), "plan": frozenset({"pro"})})
ALL = Override()


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
