"""How long a host without tasks waits for an answer, and when its late call is handed off."""

from datetime import timedelta

import pytest

from taskgate.domain.handoff import CEILINGS, CEILINGS_WITH_PROGRESS, USUAL, Ceiling, HandoffRules
from taskgate.domain.policy import Handoff

SECOND = timedelta(seconds=1)
RULES = HandoffRules(
    ceilings=(Ceiling("desk*", 20 * SECOND), Ceiling("code", 60 * SECOND), Ceiling("*", 30 * SECOND)),
    with_progress=(Ceiling("code", 600 * SECOND), Ceiling("co*", 300 * SECOND)),
)
LATE = Handoff(45 * SECOND)
EVERY = 15 * SECOND
"""The longest time without progress."""


@pytest.mark.parametrize(
    ("client", "has_progress", "longest"),
    [("desktop", True, 18), ("code", False, 55), ("code", True, 595), ("other", False, 27), (None, False, 45)],
)
def test_an_answer_leaves_a_tenth_of_the_ceiling_early_and_at_most_five_seconds(
    client: str | None, has_progress: bool, longest: int
) -> None:
    assert RULES.patience(None, client, EVERY if has_progress else None) == longest * SECOND


def test_the_ceiling_of_a_rule_comes_before_that_of_the_host() -> None:
    assert RULES.patience(Handoff(SECOND, 10 * SECOND), "code", EVERY) == 9 * SECOND


@pytest.mark.parametrize(
    ("client", "has_progress", "grace"),
    [("desktop", False, 18), ("code", False, 45), ("code", True, 595), ("unknown", True, 27), (None, True, 45)],
)
def test_a_call_is_handed_off_in_time_and_not_before_progress_stops_to_help(
    client: str | None, has_progress: bool, grace: int
) -> None:
    assert RULES.grace(LATE, client, EVERY if has_progress else None) == grace * SECOND


def test_progress_does_not_extend_the_ceiling_of_a_rule() -> None:
    assert RULES.grace(Handoff(5 * SECOND, 10 * SECOND), "code", EVERY) == 5 * SECOND


def test_without_known_hosts_every_host_waits_as_long() -> None:
    assert USUAL.patience(None, "code", EVERY) == 45 * SECOND


def test_progress_extends_the_wait_of_known_hosts_alone() -> None:
    assert CEILINGS_WITH_PROGRESS.keys() <= CEILINGS.keys()
    assert all(CEILINGS_WITH_PROGRESS[name] > CEILINGS[name] for name in CEILINGS_WITH_PROGRESS)


def test_progress_that_comes_too_seldom_extends_nothing() -> None:
    assert RULES.patience(None, "code", 60 * SECOND) == 55 * SECOND
    assert RULES.grace(LATE, "code", 60 * SECOND) == 45 * SECOND
