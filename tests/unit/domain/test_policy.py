"""The promotion policy: the first rule that matches decides, and a tool without a rule stays synchronous."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain.policy import (
    APP_ONLY,
    CACHE_SIZE,
    DEFAULT_RESPONSE,
    Handoff,
    OnLost,
    PromotionDecision,
    PromotionMode,
    PromotionPolicy,
    PromotionRule,
    TaskSupport,
)
from taskgate.jsontext.display import one_line
from unit.domain.policies import HOUR, policy, rule, ruled

modes = st.sampled_from(PromotionMode)
spans = st.timedeltas(min_value=timedelta(days=-400), max_value=timedelta(days=400))


# --- which rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "tool", "matches"),
    [
        ("build", "build", True),
        ("build", "build_all", False),
        ("build", "Build", False),
        ("BUILD*", "build", False),
        ("build*", "build_all", True),
        ("*", "anything/at.all", True),
        ("*", "", True),
        ("report_?", "report_7", True),
        ("report_?", "report_10", False),
        ("report_[0-9]", "report_7", True),
        ("report_[!0-9]", "report_7", False),
        ("a.b", "axb", False),
        ("a/*", "a/b/c", True),
    ],
)
def test_a_rule_matches_the_names_of_its_glob_with_regard_to_case(glob: str, tool: str, matches: bool) -> None:
    assert PromotionRule(upstream=None, tool=glob, mode=PromotionMode.AUTO).matches("any", tool) is matches


def test_a_rule_of_one_upstream_says_nothing_of_another() -> None:
    rule = PromotionRule(upstream="reports", tool="*", mode=PromotionMode.AUTO)
    assert rule.matches("reports", "x")
    assert not rule.matches("Reports", "x")
    assert not rule.matches("other", "x")


def test_a_tool_that_no_rule_names_stays_synchronous() -> None:
    assert policy().mode("a", "x") is PromotionMode.SYNC
    assert (
        policy(("b", "*", PromotionMode.ALWAYS), ("a", "y", PromotionMode.ALWAYS)).mode("a", "x") is PromotionMode.SYNC
    )


def test_the_first_matching_rule_wins() -> None:
    rules = policy(
        ("a", "slow_*", PromotionMode.REQUIRED),
        (None, "slow_*", PromotionMode.ALWAYS),
        ("a", "*", PromotionMode.SYNC),
        (None, "*", PromotionMode.AUTO),
    )
    assert [rules.mode(upstream, tool) for upstream in "ab" for tool in ("slow_x", "x")] == [
        PromotionMode.REQUIRED,
        PromotionMode.SYNC,
        PromotionMode.ALWAYS,
        PromotionMode.AUTO,
    ]


# --- what a host is told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (PromotionMode.SYNC, TaskSupport.FORBIDDEN),
        (PromotionMode.AUTO, TaskSupport.OPTIONAL),
        (PromotionMode.ALWAYS, TaskSupport.OPTIONAL),
        (PromotionMode.REQUIRED, TaskSupport.REQUIRED),
    ],
)
def test_a_host_is_told_what_the_mode_allows(mode: PromotionMode, told: TaskSupport) -> None:
    assert policy((None, "*", mode)).support("a", "x") is told


@pytest.mark.parametrize(
    ("rules", "offers"),
    [
        ([], False),
        ([(None, "*", PromotionMode.SYNC)], False),
        ([("a", "*", PromotionMode.SYNC), ("a", "x", PromotionMode.SYNC)], False),
        ([("b", "*", PromotionMode.ALWAYS)], False),
        ([("a", "x", PromotionMode.AUTO)], True),
        ([(None, "x", PromotionMode.REQUIRED)], True),
        ([(None, "y", PromotionMode.SYNC), ("b", "*", PromotionMode.AUTO), ("a", "x", PromotionMode.ALWAYS)], True),
    ],
)
def test_tasks_are_offered_where_a_rule_may_make_one(
    rules: list[tuple[str | None, str, PromotionMode]], offers: bool
) -> None:
    assert policy(*rules).offers_tasks("a") is offers


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from(["*", "x", "y?"]), modes), max_size=5))
def test_what_offers_no_tasks_has_no_tool_that_could_be_one(rules: list[tuple[str | None, str, PromotionMode]]) -> None:
    judged = policy(*rules)
    for upstream in ("a", "b", "c"):
        if not judged.offers_tasks(upstream):
            assert {judged.support(upstream, tool) for tool in ("x", "y1", "z")} == {TaskSupport.FORBIDDEN}


# --- what a model is told ---------------------------------------------------------------------------------------------


def answering(*rules: tuple[str, str | None]) -> PromotionPolicy:
    made = (
        PromotionRule(upstream="a", tool=tool, mode=PromotionMode.AUTO, immediate_response=text) for tool, text in rules
    )
    return replace(policy(), rules=tuple(made))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Wait.", "Wait."),
        ("{tool} runs; {tool} ends; {x} {} %s", "build runs; build ends; {x} {} %s"),
        (DEFAULT_RESPONSE, DEFAULT_RESPONSE.replace("{tool}", "build")),
        ("", None),
        (None, None),
    ],
)
def test_a_model_is_told_what_the_rule_of_the_tool_says(text: str | None, told: str | None) -> None:
    # L-CREATE-4.
    assert answering(("build", text)).immediate_response("a", "build") == told


def test_the_first_rule_that_matches_speaks_for_the_tool_even_where_it_says_nothing() -> None:
    rules = answering(("x*", None), ("*", "else"))
    assert (rules.immediate_response("a", "xy"), rules.immediate_response("a", "y")) == (None, "else")
    assert rules.immediate_response("b", "y") is None


def test_the_usual_words_name_the_tool_and_say_that_its_result_follows() -> None:
    assert "{tool}" in DEFAULT_RESPONSE
    assert "task" in DEFAULT_RESPONSE
    assert "result" in DEFAULT_RESPONSE


@given(st.text(max_size=40))
def test_a_tools_name_is_told_in_one_line_that_hides_nothing(tool: str) -> None:
    assert answering(("*", "<{tool}>")).immediate_response("a", tool) == f"<{one_line(tool)}>"


# --- how long ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        (None, HOUR),
        (timedelta(0), timedelta(minutes=1)),
        (timedelta(seconds=-1), timedelta(minutes=1)),
        (timedelta(minutes=1), timedelta(minutes=1)),
        (timedelta(minutes=1, microseconds=1), timedelta(minutes=1, microseconds=1)),
        (24 * HOUR, 24 * HOUR),
        (24 * HOUR + timedelta(microseconds=1), 24 * HOUR),
        (timedelta.max, 24 * HOUR),
    ],
)
def test_a_time_to_live_is_brought_to_the_nearest_allowed(asked: timedelta | None, granted: timedelta) -> None:
    assert policy().decide("a", "x").clamp_ttl(asked) == granted


@given(spans | st.none())
def test_what_is_granted_is_within_the_bounds_and_would_be_granted_again(
    asked: timedelta | None,
) -> None:
    terms = policy().decide("a", "x")
    granted = terms.clamp_ttl(asked)
    assert terms.ttl_min <= granted <= terms.ttl_max
    assert terms.clamp_ttl(granted) == granted


# --- what a decision is made of ---------------------------------------------------------------------------------------


def test_a_tool_that_no_rule_names_has_the_usual_terms() -> None:
    assert policy(("a", "y", PromotionMode.AUTO)).decide("a", "x") == PromotionDecision(
        rule=None,
        mode=PromotionMode.SYNC,
        ttl_default=HOUR,
        ttl_min=timedelta(minutes=1),
        ttl_max=24 * HOUR,
        inline_grace=timedelta(seconds=5),
    )


def test_a_decision_has_all_that_its_rule_says() -> None:
    second = rule(
        PromotionMode.ALWAYS,
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
        mode=PromotionMode.ALWAYS,
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
    for number in range(CACHE_SIZE + 1):
        rules.decide("a", f"x{number}" + "y" * length)
    assert len(looks) == CACHE_SIZE + 1
    rules.decide("a", f"x{CACHE_SIZE}" + "y" * length)
    assert len(looks) == CACHE_SIZE + 1 + (length > 1)
    rules.decide("a", "x0" + "y" * length)
    assert len(looks) == CACHE_SIZE + 2 + (length > 1)


def test_threads_may_ask_for_the_terms_of_many_tools_at_once() -> None:
    rules = ruled(rule(tool="x*"))

    def ask(thread: int) -> set[PromotionMode]:
        return {rules.mode("a", f"x{thread}-{number}") for number in range(8 * CACHE_SIZE)}

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert set().union(*threads.map(ask, range(4))) == {PromotionMode.AUTO}
    finally:
        sys.setswitchinterval(usual)


# --- what a server hints at -------------------------------------------------------------------------------------------

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
    assert (ruled(rule(hints=asked)).mode("a", "x", hints) is PromotionMode.AUTO) is matches


def test_decisions_of_other_hints_are_other_decisions() -> None:
    rules = ruled(rule(PromotionMode.REQUIRED, hints={"destructiveHint": True}), rule(PromotionMode.AUTO, hints=READS))
    for _ in range(2):
        assert [rules.mode("a", "x", hints) for hints in ({"destructiveHint": True}, READS, {}, None)] == [
            PromotionMode.REQUIRED,
            PromotionMode.AUTO,
            PromotionMode.SYNC,
            PromotionMode.SYNC,
        ]
    assert rules.support("a", "x", READS) is TaskSupport.OPTIONAL
    assert rules.support("a", "x") is TaskSupport.FORBIDDEN
    assert answering_to(READS).immediate_response("a", "x", READS) == "told"
    assert answering_to(READS).immediate_response("a", "x") is None


def answering_to(hints: dict[str, bool]) -> PromotionPolicy:
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
def test_hints_are_needed_where_a_rule_of_the_upstream_asks_for_any(rules: list[PromotionRule], needs: bool) -> None:
    assert ruled(*rules).needs_hints("a") is needs


OF_VIEWS = {APP_ONLY: True}


@pytest.mark.parametrize(
    ("rules", "decides", "mode"),
    [
        ([rule(PromotionMode.ALWAYS)], None, PromotionMode.SYNC),
        ([rule(PromotionMode.REQUIRED, upstream="a")], None, PromotionMode.SYNC),
        ([rule(PromotionMode.ALWAYS, hints=READS)], None, PromotionMode.SYNC),
        ([rule(PromotionMode.ALWAYS, "x")], 0, PromotionMode.ALWAYS),
        ([rule(PromotionMode.ALWAYS, "?*")], 0, PromotionMode.ALWAYS),
        ([rule(PromotionMode.AUTO), rule(PromotionMode.ALWAYS, "x")], 1, PromotionMode.ALWAYS),
        ([rule(PromotionMode.ALWAYS, "y"), rule(PromotionMode.AUTO)], None, PromotionMode.SYNC),
    ],
)
def test_a_tool_for_views_alone_stays_synchronous_unless_a_glob_names_it(
    rules: list[PromotionRule], decides: int | None, mode: PromotionMode
) -> None:
    decision = ruled(*rules).decide("a", "x", {**READS, **OF_VIEWS})
    assert (decision.rule, decision.mode) == (decides, mode)


def test_a_tool_for_views_alone_has_a_decision_of_its_own_where_no_rule_asks_for_hints() -> None:
    rules = ruled(rule(PromotionMode.ALWAYS))
    assert not rules.needs_hints("a")
    assert (
        rules.mode("a", "x")
        is rules.mode("a", "x", READS)
        is rules.mode("a", "x", {APP_ONLY: False})
        is PromotionMode.ALWAYS
    )
    assert rules.mode("a", "x", OF_VIEWS) is rules.mode("a", "x", {**OF_VIEWS, **READS}) is PromotionMode.SYNC


def test_no_rule_in_shadow_for_every_tool_would_make_tasks_for_views() -> None:
    rules = ruled(rule(PromotionMode.ALWAYS, shadow=True), rule(PromotionMode.ALWAYS, "y", shadow=True))
    assert not rules.decide("a", "x", OF_VIEWS).would_promote
    assert rules.decide("a", "y", OF_VIEWS).would_promote


# --- rules in shadow --------------------------------------------------------------------------------------------------

SHADOW = rule(PromotionMode.ALWAYS, shadow=True, cap=1)


@pytest.mark.parametrize(
    ("rules", "decides", "would"),
    [
        ([SHADOW], None, True),
        ([SHADOW, rule(PromotionMode.SYNC)], 1, True),
        ([SHADOW, rule(PromotionMode.AUTO)], 1, False),
        ([rule(PromotionMode.SYNC), SHADOW], 0, False),
        ([rule(PromotionMode.SYNC, shadow=True), rule(PromotionMode.SYNC)], 1, False),
        ([rule(PromotionMode.SYNC, shadow=True), SHADOW, rule(PromotionMode.SYNC)], 2, False),
        ([SHADOW, rule(PromotionMode.SYNC, shadow=True)], None, True),
        ([replace(SHADOW, tool="y")], None, False),
        ([replace(SHADOW, hints=READS)], None, False),
    ],
)
def test_a_rule_in_shadow_decides_nothing_and_tells_of_tasks_that_it_would_make(
    rules: list[PromotionRule], decides: int | None, would: bool
) -> None:
    decision = ruled(*rules).decide("a", "x")
    assert (decision.rule, decision.would_promote, decision.cap) == (decides, would, None)


def test_a_rule_in_shadow_offers_no_tasks() -> None:
    assert not ruled(SHADOW).offers_tasks("a")
    assert ruled(SHADOW).support("a", "x") is TaskSupport.FORBIDDEN


# --- how long ---------------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("longest", [None, 168 * HOUR, MINUTE])
def test_no_more_is_granted_than_the_longest_time_to_live_of_the_mode_of_authentication(
    longest: timedelta | None,
) -> None:
    terms = replace(policy().decide("a", "x"), ttl_longest=HOUR / 2)
    assert terms.clamp_ttl(99 * HOUR, longest) == (MINUTE if longest == MINUTE else HOUR / 2)


# --- handoff ----------------------------------------------------------------------------------------------------------


LATE = Handoff(timedelta(seconds=45))


def test_a_rule_hands_off_the_calls_of_its_tools_alone() -> None:
    late = PromotionRule(upstream="a", tool="slow_*", mode=PromotionMode.AUTO, handoff=LATE)
    rules = ruled(late, PromotionRule(upstream=None, tool="*", mode=PromotionMode.AUTO))
    assert rules.decide("a", "slow_one").handoff == LATE
    assert [rules.may_hand_off(*place) for place in (("a", "slow_one"), ("a", "x"), ("b", "slow_one"))] == [
        True,
        False,
        False,
    ]
    assert (rules.hands_off("a"), rules.hands_off("b")) == (True, False)


def test_a_rule_in_shadow_hands_off_nothing_and_tells_what_it_would() -> None:
    shadow = PromotionRule(upstream=None, tool="*", mode=PromotionMode.AUTO, handoff=LATE, shadow=True)
    rules = ruled(shadow, PromotionRule(upstream=None, tool="*", mode=PromotionMode.SYNC))
    decision = rules.decide("a", "x")
    assert (decision.handoff, decision.would_hand_off, rules.hands_off("a")) == (None, LATE, False)
    both = ruled(shadow, PromotionRule(upstream=None, tool="*", mode=PromotionMode.AUTO, handoff=LATE))
    assert both.decide("a", "x").would_hand_off is None


def test_the_shortest_handoff_of_a_tool_ignores_its_hints() -> None:
    hinted = [
        PromotionRule(
            upstream="a",
            tool=tool,
            mode=PromotionMode.AUTO,
            hints={"readOnlyHint": True},
            handoff=Handoff(LATE.after, ceiling),
        )
        for tool, ceiling in (("x", None), ("*", timedelta(seconds=9)), ("y", timedelta(seconds=8)))
    ]
    rules = ruled(*hinted)
    found = [rules.shortest_handoff(*place) for place in (("a", "x"), ("a", "y"), ("b", "x"))]
    assert [terms and terms.ceiling for terms in found] == [timedelta(seconds=9), timedelta(seconds=8), None]
