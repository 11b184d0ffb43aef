"""What a new task is held against: the operator's caps, a caller's own, and what a rule says of a tool."""

from dataclasses import replace

import pytest

from taskgate.domain.caps import Cap, Caps, CapScope

ALL = Caps(
    tasks_per_context=1,
    tasks_per_tenant=2,
    tasks_per_tool=3,
    tasks_per_upstream=4,
    tasks_global=5,
    kept_per_context=6,
    kept_global=7,
)


def said(caps: tuple[Cap, ...]) -> list[tuple[str, int, bool]]:
    return [(cap.scope.value, cap.limit, cap.bytes) for cap in caps]


def test_every_cap_is_asked_from_what_concerns_fewest_to_what_concerns_everybody() -> None:
    assert said(ALL.of({}, None, True)) == [
        ("context", 1, False),
        ("tenant", 2, False),
        ("tool", 3, False),
        ("upstream", 4, False),
        ("global", 5, False),
        ("context", 6, True),
        ("global", 7, True),
    ]


def test_what_the_operator_leaves_open_is_no_cap() -> None:
    assert said(Caps(tasks_per_context=9).of({}, None, True)) == [("context", 9, False)]


def test_a_caller_without_a_tenant_is_not_counted_with_any() -> None:
    assert "tenant" not in [scope for scope, _, _ in said(ALL.of({}, None, False))]


@pytest.mark.parametrize("name", list(Caps.__dataclass_fields__))
def test_a_callers_own_limit_stands_for_the_usual_one_and_for_no_other(name: str) -> None:
    assert ALL.of({name: 99}, None, True) == replace(ALL, **{name: 99}).of({}, None, True)
    assert 99 in [limit for _, limit, _ in said(ALL.of({name: 99}, None, True))]


def test_what_a_rule_says_of_a_tool_wins() -> None:
    by_rule = [cap for cap in ALL.of({"tasks_per_tool": 50}, 0, True) if cap.scope is CapScope.TOOL]
    assert said(tuple(by_rule)) == [("tool", 0, False)]
    assert ("tool", 8, False) in said(Caps(tasks_per_context=1).of({}, 8, False))


def test_caps_of_the_same_kind_of_caller_are_made_once() -> None:
    assert ALL.of({"tasks_per_tool": 50}, 2, True) is ALL.of({"tasks_per_tool": 50}, 2, True)
