"""The state of an upstream: what makes it refusing or down, and what makes it up again."""

import pytest

from taskgate.telemetry.upstream_condition import (
    IN_A_ROW,
    REMEMBERED,
    Trouble,
    UpstreamCondition,
    UpstreamState,
    in_words,
)

UP, REFUSING, DOWN = UpstreamState.UP, UpstreamState.REFUSING, UpstreamState.DOWN
CALL, LIST = True, False
"""Whether a request calls a tool."""


@pytest.fixture
def known() -> UpstreamCondition:
    """An upstream that has served a call."""
    known = UpstreamCondition()
    known.succeeded(is_call=CALL)
    return known


def refuse(known: UpstreamCondition, cause: str, *seconds: float, is_call: bool = CALL) -> None:
    for second in seconds:
        known.failed("refused", cause, second, is_call=is_call)


def test_nothing_is_known_of_an_upstream_without_calls_and_checks() -> None:
    assert (UpstreamCondition().state, UpstreamCondition().trouble) == (None, None)


def test_three_refusals_in_a_row_make_it_refusing_since_the_first(known: UpstreamCondition) -> None:
    refuse(known, "HTTP 401", 10, 20)
    assert (known.state, known.trouble) == (UP, None)
    refuse(known, "HTTP 401", 30)
    assert (known.state, known.trouble) == (REFUSING, Trouble("HTTP 401", 10))


@pytest.mark.parametrize("reason", ["refused", "redirect", "malformed"])
def test_answers_that_are_no_mcp_are_refusals(known: UpstreamCondition, reason: str) -> None:
    for second in range(IN_A_ROW):
        known.failed(reason, "the cause", second, is_call=CALL)
    assert known.state is REFUSING


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("closed", "closed"),
        ("too_large", "too_large"),
        ("session_lost", "HTTP 404"),
        ("internal", "internal"),
        ("unreachable", "unreachable"),
        ("refused", "refused"),
        ("refused", "HTTP 404"),
    ],
)
def test_a_failure_that_shows_nothing_of_the_server_changes_nothing(
    known: UpstreamCondition, reason: str, cause: str
) -> None:
    """Among them: the circuit is open, a caller has no token, one tool answers so."""
    for second in range(5):
        known.failed(reason, cause, second, is_call=CALL)
    assert known.state is UP


def test_three_calls_in_a_row_without_an_answer_in_time_make_it_refusing(known: UpstreamCondition) -> None:
    for second in (10, 20):
        known.failed("timeout", "timeout", second, is_call=CALL)
    assert known.state is UP
    known.failed("timeout", "timeout", 30, is_call=CALL)
    assert (known.state, known.trouble) == (REFUSING, Trouble("calls time out", 10))
    known.checked(True, True, None, 31)
    known.failed("timeout", "timeout", 40, is_call=CALL)
    assert (known.state, known.trouble) == (REFUSING, Trouble("calls time out, checks are answered", 10))
    known.succeeded(is_call=CALL)
    assert known.state is UP


def test_lists_without_an_answer_in_time_and_calls_of_a_server_whose_checks_fail_say_nothing_new(
    known: UpstreamCondition,
) -> None:
    for second in range(5):
        known.failed("timeout", "timeout", second, is_call=LIST)
    assert known.state is UP
    known.checked(False, False, "timeout", 10)
    for second in range(11, 14):
        known.failed("timeout", "timeout", second, is_call=CALL)
    assert (known.state, known.trouble) == (DOWN, Trouble("timeout", 10))


def test_a_list_that_is_not_found_is_a_refusal(known: UpstreamCondition) -> None:
    refuse(known, "HTTP 404", 1, 2, 3, is_call=LIST)
    assert known.state is REFUSING


def test_requests_that_are_refused_at_once_count_once(known: UpstreamCondition) -> None:
    """Many may wait for one handshake."""
    refuse(known, "HTTP 503", 1, 1.1, 1.2, 1.3)
    assert known.state is UP


def test_a_success_between_refusals_begins_them_anew_and_ends_the_state(known: UpstreamCondition) -> None:
    refuse(known, "HTTP 401", 1, 2)
    known.succeeded(is_call=CALL)
    refuse(known, "HTTP 401", 4, 5)
    assert known.state is UP
    refuse(known, "HTTP 401", 6)
    assert known.trouble == Trouble("HTTP 401", 4)
    known.succeeded(is_call=CALL)
    assert (known.state, known.trouble) == (UP, None)


def test_lists_that_succeed_hide_no_calls_that_are_refused(known: UpstreamCondition) -> None:
    for second in (1, 2, 3):
        refuse(known, "HTTP 401", second)
        known.succeeded(is_call=LIST)
    assert known.state is REFUSING


def test_a_list_that_succeeds_ends_refused_lists(known: UpstreamCondition) -> None:
    refuse(known, "HTTP 403", 1, 2, 3, is_call=LIST)
    assert known.state is REFUSING
    known.succeeded(is_call=LIST)
    assert known.state is UP


def test_refusals_with_causes_in_turn_have_the_latest_one(known: UpstreamCondition) -> None:
    for second, cause in enumerate(("HTTP 401", "HTTP 429", "HTTP 401", "HTTP 429")):
        refuse(known, cause, second)
    assert known.trouble == Trouble("HTTP 429", 0)


@pytest.mark.parametrize("cause", ["HTTP 502", "HTTP 503", "HTTP 504"])
def test_a_proxy_that_does_not_reach_its_server_means_that_it_is_down(known: UpstreamCondition, cause: str) -> None:
    refuse(known, cause, 1, 2, 3)
    assert known.state is DOWN


def test_one_call_without_a_connection_means_that_it_is_down_until_an_answer(known: UpstreamCondition) -> None:
    known.failed("unreachable", "ECONNREFUSED", 5, is_call=CALL)
    known.failed("unreachable", "ECONNREFUSED", 9, is_call=LIST)
    assert (known.state, known.trouble) == (DOWN, Trouble("ECONNREFUSED", 5))
    known.checked(True, None, None, 10)
    assert known.state is UP


@pytest.mark.parametrize(("reason", "cause"), [("refused", "HTTP 401"), ("timeout", "timeout"), ("closed", "closed")])
def test_a_failure_with_a_connection_shows_that_there_is_one(known: UpstreamCondition, reason: str, cause: str) -> None:
    known.failed("unreachable", "ECONNREFUSED", 5, is_call=CALL)
    known.failed(reason, cause, 6, is_call=CALL)
    assert known.state is UP


def test_failed_checks_make_it_down_since_the_first_of_them(known: UpstreamCondition) -> None:
    for second, up in ((15, True), (30, True), (45, False)):
        known.checked(False, up, "timeout", second)
    assert (known.state, known.trouble) == (DOWN, Trouble("timeout", 15))
    known.checked(False, False, "ECONNREFUSED", 60)
    assert known.trouble == Trouble("ECONNREFUSED", 15)
    known.checked(True, True, None, 75)
    assert (known.state, known.trouble) == (UP, None)


def test_a_good_check_that_is_not_enough_keeps_the_cause(known: UpstreamCondition) -> None:
    known.checked(False, False, "timeout", 15)
    known.checked(True, False, None, 30)
    assert known.trouble == Trouble("timeout", 15)


def test_refused_checks_make_it_refusing_where_no_call_was_served() -> None:
    known = UpstreamCondition()
    for second in (15, 30, 45):
        known.checked(True, True, "HTTP 401", second)
    assert (known.state, known.trouble) == (REFUSING, Trouble("HTTP 401", 15))
    known.checked(True, True, None, 60)
    assert known.state is UP


def test_checks_that_were_always_refused_mean_nothing_where_calls_are_served(known: UpstreamCondition) -> None:
    for second in range(15, 3600, 15):
        known.checked(True, True, "HTTP 401", second)
    assert known.state is UP


def test_checks_that_were_passed_before_and_are_refused_now_make_it_refusing(known: UpstreamCondition) -> None:
    known.checked(True, True, None, 15)
    for second in (30, 45, 60):
        known.checked(True, True, "HTTP 401", second)
    assert known.state is REFUSING
    known.succeeded(is_call=CALL)
    assert known.state is UP


@pytest.mark.parametrize("is_call", [CALL, LIST], ids=["calls", "lists"])
def test_refusals_of_requests_are_forgotten_after_a_while(known: UpstreamCondition, is_call: bool) -> None:
    refuse(known, "HTTP 401", 1, 2, 3, is_call=is_call)
    known.forget(2 + REMEMBERED)
    assert known.state is REFUSING
    known.forget(3 + REMEMBERED)
    assert known.state is UP


def test_of_a_server_that_was_not_reached_long_ago_nothing_is_known(known: UpstreamCondition) -> None:
    known.failed("unreachable", "ECONNREFUSED", 5, is_call=CALL)
    known.forget(4 + REMEMBERED)
    assert known.state is DOWN
    known.forget(5 + REMEMBERED)
    assert known.state is None


def test_a_circuit_that_is_open_for_all_callers_means_that_it_is_down(known: UpstreamCondition) -> None:
    known.circuit_changed(True, "timeout", 5)
    known.circuit_changed(True, "closed", 35)
    assert (known.state, known.trouble) == (DOWN, Trouble("closed", 5))
    known.circuit_changed(False, None, 40)
    assert known.state is UP


def test_programs_that_do_not_answer_mean_that_it_is_down(known: UpstreamCondition) -> None:
    known.found_programs(False, "exit status 3", 5)
    assert (known.state, known.trouble) == (DOWN, Trouble("exit status 3", 5))
    known.found_programs(True, None, 6)
    assert known.state is UP


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("HTTP 401", "HTTP 401: the server refuses the gateway's credentials"),
        ("HTTP 418", "HTTP 418"),
        ("ECONNREFUSED", "connection refused"),
        ("exit status 3", "exit status 3"),
    ],
)
def test_a_cause_is_shown_in_words_where_there_are_any(cause: str, words: str) -> None:
    assert in_words(cause) == words
