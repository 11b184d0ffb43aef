"""Other limits are for who they are written for, and the first that fits counts."""

from typing import Any

import pytest

from taskgate.domain.overrides import Override, Overrides

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
    assert Overrides((BOTH, GOLD, ALL)).of("gold", {"kind": "bot"}) is GOLD
    assert Overrides((BOTH, GOLD, ALL)).of("silver", {}) is ALL


def test_most_callers_have_none() -> None:
    assert Overrides((GOLD,)).of("silver", {}) is None
    assert Overrides().of(None, {}) is None


@pytest.mark.parametrize("tenant", [None, "gold", "silver", "tin"])
@pytest.mark.parametrize("kind", [None, "bot", "human", ["bot"], ["x", "cron"], 7])
def test_one_is_found_as_if_all_were_looked_at(tenant: str | None, kind: object) -> None:
    all_ = Overrides((BOTH, Override(tenant="silver"), BOTS, GOLD, Override(tenant="tin", ttl_max=None)))
    for several in (all_, Overrides(reversed(all_)), Overrides((*all_, ALL))):
        claims = {"kind": kind}
        assert several.of(tenant, claims) is next((each for each in several if each.matches(tenant, claims)), None)


def test_callers_are_told_apart_by_values_that_an_override_names_and_by_nothing_else() -> None:
    overrides = Overrides((BOTS, BOTH, GOLD))

    def apart(**claims: object) -> object:
        return overrides.told_apart_by(claims)

    assert apart(kind="bot", sub="ann") == apart(kind=["bot", "human", 7], sub="bob")
    assert apart(kind="bot") != apart(kind="cron")
    assert apart(kind="bot") != apart(kind=["bot", "cron"])
    assert apart(kind="bot") != apart(kind="bot", plan="pro")
    assert apart(kind="human") == apart() == apart(kind=None, plan=["free"])
    assert Overrides((GOLD,)).told_apart_by({"kind": "bot"}) == ()


def test_overrides_are_a_tuple_of_them() -> None:
    assert tuple(Overrides([GOLD, BOTS])) == (GOLD, BOTS)
    assert len(Overrides()) == 0
