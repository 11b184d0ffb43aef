"""The operator's rules: the first that matches decides, and what no rule names stays as it was."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgate.domain.policy import USUAL_RESPONSE, Mode, Policy, Rule, TaskSupport
from unit.domain.policies import policy

HOUR = timedelta(hours=1)
modes = st.sampled_from(Mode)
spans = st.timedeltas(min_value=timedelta(days=-400), max_value=timedelta(days=400))


# --- which rule ----------------------------------------------------------------------------------------------------


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
    assert Rule(upstream=None, tool=glob, mode=Mode.AUTO).matches("any", tool) is matches


def test_a_rule_of_one_upstream_says_nothing_of_another() -> None:
    rule = Rule(upstream="reports", tool="*", mode=Mode.AUTO)
    assert rule.matches("reports", "x")
    assert not rule.matches("Reports", "x")
    assert not rule.matches("other", "x")


def test_a_tool_that_no_rule_names_stays_synchronous() -> None:
    assert policy().mode("a", "x") is Mode.SYNC
    assert policy(("b", "*", Mode.ALWAYS), ("a", "y", Mode.ALWAYS)).mode("a", "x") is Mode.SYNC


def test_the_first_matching_rule_wins() -> None:
    rules = policy(
        ("a", "slow_*", Mode.REQUIRED), (None, "slow_*", Mode.ALWAYS), ("a", "*", Mode.SYNC), (None, "*", Mode.AUTO)
    )
    assert [rules.mode(upstream, tool) for upstream in "ab" for tool in ("slow_x", "x")] == [
        Mode.REQUIRED,
        Mode.SYNC,
        Mode.ALWAYS,
        Mode.AUTO,
    ]


# --- what a host is told -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (Mode.SYNC, TaskSupport.FORBIDDEN),
        (Mode.AUTO, TaskSupport.OPTIONAL),
        (Mode.ALWAYS, TaskSupport.OPTIONAL),
        (Mode.REQUIRED, TaskSupport.REQUIRED),
    ],
)
def test_a_host_is_told_what_the_mode_allows(mode: Mode, told: TaskSupport) -> None:
    assert policy((None, "*", mode)).support("a", "x") is told


@pytest.mark.parametrize(
    ("rules", "offers"),
    [
        ([], False),
        ([(None, "*", Mode.SYNC)], False),
        ([("a", "*", Mode.SYNC), ("a", "x", Mode.SYNC)], False),
        ([("b", "*", Mode.ALWAYS)], False),
        ([("a", "x", Mode.AUTO)], True),
        ([(None, "x", Mode.REQUIRED)], True),
        ([(None, "y", Mode.SYNC), ("b", "*", Mode.AUTO), ("a", "x", Mode.ALWAYS)], True),
    ],
)
def test_tasks_are_offered_where_a_rule_may_make_one(rules: list[tuple[str | None, str, Mode]], offers: bool) -> None:
    assert policy(*rules).offers_tasks("a") is offers


@given(st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from(["*", "x", "y?"]), modes), max_size=5))
def test_what_offers_no_tasks_has_no_tool_that_could_be_one(rules: list[tuple[str | None, str, Mode]]) -> None:
    judged = policy(*rules)
    for upstream in ("a", "b", "c"):
        if not judged.offers_tasks(upstream):
            assert {judged.support(upstream, tool) for tool in ("x", "y1", "z")} == {TaskSupport.FORBIDDEN}


# --- what a model is told ------------------------------------------------------------------------------------------


def answering(*rules: tuple[str, str | None]) -> Policy:
    made = (Rule(upstream="a", tool=tool, mode=Mode.AUTO, immediate_response=text) for tool, text in rules)
    return replace(policy(), rules=tuple(made))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Wait.", "Wait."),
        ("{tool} runs; {tool} ends; {x} {} %s", "build runs; build ends; {x} {} %s"),
        (USUAL_RESPONSE, USUAL_RESPONSE.replace("{tool}", "build")),
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
    assert "{tool}" in USUAL_RESPONSE
    assert "task" in USUAL_RESPONSE
    assert "result" in USUAL_RESPONSE


@given(st.text(max_size=40))
def test_a_tools_name_is_told_as_it_is(tool: str) -> None:
    assert answering(("*", "<{tool}>")).immediate_response("a", tool) == f"<{tool}>"


# --- how long ------------------------------------------------------------------------------------------------------


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
