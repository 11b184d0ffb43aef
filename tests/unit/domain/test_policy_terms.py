"""The terms of a tool: all that its rule says, what its server hints at, and what rules in shadow would change."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase

import pytest

from taskgate.domain.policy import APP_ONLY, REMEMBERED, Mode, OnLost, Policy, PromotionDecision, Rule, TaskSupport
from unit.domain.policies import HOUR, policy, rule, ruled

# --- what a decision is made of ------------------------------------------------------------------------------------


def test_a_tool_that_no_rule_names_has_the_usual_terms() -> None:
    assert policy(("a", "y", Mode.AUTO)).decide("a", "x") == PromotionDecision(
        rule=None,
        mode=Mode.SYNC,
        ttl_default=HOUR,
        ttl_min=timedelta(minutes=1),
        ttl_max=24 * HOUR,
        inline_grace=timedelta(seconds=5),
    )


def test_a_decision_has_all_that_its_rule_says() -> None:
    second = rule(
        Mode.ALWAYS,
        "x",
        immediate_response="{tool}",
        ttl=2 * HOUR,
        ttl_min=HOUR,
        ttl_max=3 * HOUR,
        inline_grace=timedelta(0),
        deadline=timedelta(minutes=5),
        cap=3,
        on_lost=OnLost.RERUN,
        join_retries=timedelta(seconds=30),
    )
    assert ruled(rule(tool="y"), second, rule()).decide("a", "x") == PromotionDecision(
        rule=1,
        mode=Mode.ALWAYS,
        ttl_default=2 * HOUR,
        ttl_min=HOUR,
        ttl_max=3 * HOUR,
        inline_grace=timedelta(0),
        deadline=timedelta(minutes=5),
        immediate_response="x",
        cap=3,
        on_lost=OnLost.RERUN,
        join_retries=timedelta(seconds=30),
    )


def test_a_decision_is_made_once_for_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = ruled(*(rule(tool=f"tool-{number}-*") for number in range(50)))
    first = rules.decide("a", "tool-49-x")
    monkeypatch.setattr("taskgate.domain.policy.fnmatchcase", lambda *_: pytest.fail("looked again"))
    assert rules.decide("a", "tool-49-x") is first
    assert first.rule == 49


@pytest.mark.parametrize("length", [1, 1000], ids=["short", "long"])
def test_of_decisions_so_many_are_remembered_and_none_of_long_names(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def looked(name: str, glob: str) -> bool:
        looks.append(name)
        return fnmatchcase(name, glob)

    monkeypatch.setattr("taskgate.domain.policy.fnmatchcase", looked)
    rules = ruled(rule(tool="x*"))
    for number in range(REMEMBERED + 1):
        rules.decide("a", f"x{number}" + "y" * length)
    assert len(looks) == REMEMBERED + 1
    rules.decide("a", f"x{REMEMBERED}" + "y" * length)
    assert len(looks) == REMEMBERED + 1 + (length > 1)
    rules.decide("a", "x0" + "y" * length)
    assert len(looks) == REMEMBERED + 2 + (length > 1)


def test_threads_may_ask_for_the_terms_of_many_tools_at_once() -> None:
    rules = ruled(rule(tool="x*"))

    def ask(thread: int) -> set[Mode]:
        return {rules.mode("a", f"x{thread}-{number}") for number in range(8 * REMEMBERED)}

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert set().union(*threads.map(ask, range(4))) == {Mode.AUTO}
    finally:
        sys.setswitchinterval(usual)


# --- what a server hints at ----------------------------------------------------------------------------------------

READS = {"readOnlyHint": True}


@pytest.mark.parametrize(
    ("asked", "hints", "matches"),
    [
        ({}, None, True),
        ({}, {}, True),
        (READS, READS, True),
        (READS, {"readOnlyHint": True, "openWorldHint": False}, True),
        (READS, {"readOnlyHint": False}, False),
        (READS, {"openWorldHint": True}, False),
        (READS, {}, False),
        (READS, None, False),
        ({"readOnlyHint": True, "idempotentHint": False}, READS, False),
        ({"destructiveHint": False}, {"destructiveHint": False}, True),
    ],
)
def test_a_rule_matches_where_the_server_lists_all_the_hints_that_it_asks_for(
    asked: dict[str, bool], hints: dict[str, bool] | None, matches: bool
) -> None:
    assert rule(hints=asked).matches("a", "x", hints) is matches
    assert (ruled(rule(hints=asked)).mode("a", "x", hints) is Mode.AUTO) is matches


def test_decisions_of_other_hints_are_other_decisions() -> None:
    rules = ruled(rule(Mode.REQUIRED, hints={"destructiveHint": True}), rule(Mode.AUTO, hints=READS))
    for _ in range(2):
        assert [rules.mode("a", "x", hints) for hints in ({"destructiveHint": True}, READS, {}, None)] == [
            Mode.REQUIRED,
            Mode.AUTO,
            Mode.SYNC,
            Mode.SYNC,
        ]
    assert rules.support("a", "x", READS) is TaskSupport.OPTIONAL
    assert rules.support("a", "x") is TaskSupport.FORBIDDEN
    assert answering_to(READS).immediate_response("a", "x", READS) == "told"
    assert answering_to(READS).immediate_response("a", "x") is None


def answering_to(hints: dict[str, bool]) -> Policy:
    return ruled(rule(hints=hints, immediate_response="told"))


def test_hints_that_no_rule_asks_for_make_no_other_decision() -> None:
    rules = ruled(rule(upstream="b", hints=READS), rule())
    assert rules.decide("a", "x", READS) is rules.decide("a", "x")
    assert rules.decide("b", "x", READS) is not rules.decide("b", "x")


@pytest.mark.parametrize(
    ("rules", "needs"),
    [
        ([rule()], False),
        ([rule(upstream="b", hints=READS)], False),
        ([rule(upstream="a", hints=READS)], True),
        ([rule(), rule(hints=READS)], True),
        ([rule(hints=READS, shadow=True)], True),
    ],
)
def test_hints_are_needed_where_a_rule_of_the_upstream_asks_for_any(rules: list[Rule], needs: bool) -> None:
    assert ruled(*rules).needs_hints("a") is needs


OF_VIEWS = {APP_ONLY: True}


@pytest.mark.parametrize(
    ("rules", "decides", "mode"),
    [
        ([rule(Mode.ALWAYS)], None, Mode.SYNC),
        ([rule(Mode.REQUIRED, upstream="a")], None, Mode.SYNC),
        ([rule(Mode.ALWAYS, hints=READS)], None, Mode.SYNC),
        ([rule(Mode.ALWAYS, "x")], 0, Mode.ALWAYS),
        ([rule(Mode.ALWAYS, "?*")], 0, Mode.ALWAYS),
        ([rule(Mode.AUTO), rule(Mode.ALWAYS, "x")], 1, Mode.ALWAYS),
        ([rule(Mode.ALWAYS, "y"), rule(Mode.AUTO)], None, Mode.SYNC),
    ],
)
def test_a_tool_for_views_alone_stays_synchronous_unless_a_glob_names_it(
    rules: list[Rule], decides: int | None, mode: Mode
) -> None:
    decision = ruled(*rules).decide("a", "x", {**READS, **OF_VIEWS})
    assert (decision.rule, decision.mode) == (decides, mode)


def test_a_tool_for_views_alone_has_a_decision_of_its_own_where_no_rule_asks_for_hints() -> None:
    rules = ruled(rule(Mode.ALWAYS))
    assert not rules.needs_hints("a")
    assert rules.mode("a", "x") is rules.mode("a", "x", READS) is rules.mode("a", "x", {APP_ONLY: False}) is Mode.ALWAYS
    assert rules.mode("a", "x", OF_VIEWS) is rules.mode("a", "x", {**OF_VIEWS, **READS}) is Mode.SYNC


def test_no_rule_in_shadow_for_every_tool_would_make_tasks_for_views() -> None:
    rules = ruled(rule(Mode.ALWAYS, shadow=True), rule(Mode.ALWAYS, "y", shadow=True))
    assert not rules.decide("a", "x", OF_VIEWS).would_promote
    assert rules.decide("a", "y", OF_VIEWS).would_promote


# --- rules in shadow -----------------------------------------------------------------------------------------------

SHADOW = rule(Mode.ALWAYS, shadow=True, cap=1)


@pytest.mark.parametrize(
    ("rules", "decides", "would"),
    [
        ([SHADOW], None, True),
        ([SHADOW, rule(Mode.SYNC)], 1, True),
        ([SHADOW, rule(Mode.AUTO)], 1, False),
        ([rule(Mode.SYNC), SHADOW], 0, False),
        ([rule(Mode.SYNC, shadow=True), rule(Mode.SYNC)], 1, False),
        ([rule(Mode.SYNC, shadow=True), SHADOW, rule(Mode.SYNC)], 2, False),
        ([SHADOW, rule(Mode.SYNC, shadow=True)], None, True),
        ([replace(SHADOW, tool="y")], None, False),
        ([replace(SHADOW, hints=READS)], None, False),
    ],
)
def test_a_rule_in_shadow_decides_nothing_and_tells_of_tasks_that_it_would_make(
    rules: list[Rule], decides: int | None, would: bool
) -> None:
    decision = ruled(*rules).decide("a", "x")
    assert (decision.rule, decision.would_promote, decision.cap) == (decides, would, None)


def test_a_rule_in_shadow_offers_no_tasks() -> None:
    assert not ruled(SHADOW).offers_tasks("a")
    assert ruled(SHADOW).support("a", "x") is TaskSupport.FORBIDDEN


# --- how long ------------------------------------------------------------------------------------------------------

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("changes", "asked", "granted"),
    [
        ({"ttl": 2 * HOUR}, None, 2 * HOUR),
        ({"ttl": 2 * HOUR}, 3 * HOUR, 3 * HOUR),
        ({"ttl_max": HOUR / 2}, None, HOUR / 2),
        ({"ttl_max": HOUR / 2}, 3 * HOUR, HOUR / 2),
        ({"ttl_max": 48 * HOUR}, 99 * HOUR, 48 * HOUR),
        ({"ttl_max": MINUTE / 2}, timedelta(0), MINUTE / 2),
        ({"ttl_min": 2 * HOUR}, None, 2 * HOUR),
        ({"ttl_min": 2 * HOUR}, MINUTE, 2 * HOUR),
        ({"ttl_min": MINUTE / 2}, timedelta(0), MINUTE / 2),
    ],
)
def test_a_rule_has_times_to_live_of_its_own(
    changes: dict[str, timedelta], asked: timedelta | None, granted: timedelta
) -> None:
    assert ruled(rule(**changes)).decide("a", "x").clamp_ttl(asked) == granted


@pytest.mark.parametrize(
    ("longest", "asked", "granted"),
    [
        (None, 99 * HOUR, 24 * HOUR),
        (168 * HOUR, 99 * HOUR, 99 * HOUR),
        (168 * HOUR, None, HOUR),
        (HOUR / 2, None, HOUR / 2),
        (HOUR / 2, 99 * HOUR, HOUR / 2),
        (MINUTE / 2, timedelta(0), MINUTE / 2),
    ],
)
def test_a_callers_longest_time_to_live_stands_for_the_usual_one(
    longest: timedelta | None, asked: timedelta | None, granted: timedelta
) -> None:
    assert policy().decide("a", "x").clamp_ttl(asked, longest) == granted
