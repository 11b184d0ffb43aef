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
    PromotionMode,
    PromotionPolicy,
    PromotionRule,
    TaskSupport,
)
from taskgate.jsontext.display import one_line
from unit.domain.policies import HOUR, policy, rule, ruled

modes = st.sampled_from(PromotionMode)
spans = st.timedeltas(min_value=timedelta(days=-400), max_value=timedelta(days=400))


# --- what a host is told ----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from(["*", "x", "y?"]), modes), max_size=5))
def test_what_offers_no_tasks_has_no_tool_that_could_be_one(rules: list[tuple[str | None, str, PromotionMode]]) -> None:
    judged = policy(*rules)
    for upstream in ("a", "b", "c"):
        if not judged.offers_tasks(upstream):
            assert {judged.support(upstream, tool) for tool in ("x", "y1", "z")} == {TaskSupport.FORBIDDEN}


def test_what_is_announced_for_the_tools_of_one_upstream_is_one_object_for_each_policy() -> None:
    judged = policy(("a", "x", PromotionMode.AUTO), ("b", "x", PromotionMode.REQUIRED))
    of_a, of_b = judged.support_of("a"), judged.support_of("b")
    assert [of_a("x", {}), of_b("x", {}), of_a("y", {})] == [
        TaskSupport.OPTIONAL,
        TaskSupport.REQUIRED,
        TaskSupport.FORBIDDEN,
    ]
    assert judged.support_of("a") is of_a
    assert replace(judged).support_of("a") is not of_a


# --- what a model is told ---------------------------------------------------------------------------------------------


def answering(*rules: tuple[str, str | None]) -> PromotionPolicy:
    made = (
        PromotionRule(upstream="a", tool=tool, mode=PromotionMode.AUTO, immediate_response=text) for tool, text in rules
    )
    return replace(policy(), rules=tuple(made))


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


OF_VIEWS = {APP_ONLY: True}


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


# --- handoff ----------------------------------------------------------------------------------------------------------


LATE = Handoff(timedelta(seconds=45))


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
