"""How often a task of a server is looked at."""

import pytest

from taskgate.upstream.pauses import DEAF_FOR, FIRST, LATER, LEAST, MOST, POLL_PAUSE_MOST, USUAL, PollSchedule


def later(interval: float | None, seed: str = "t") -> list[float]:
    """The pauses after the first look."""
    looks = PollSchedule(seed)
    looks.after(interval)
    return [looks.after(interval) for _ in range(50)]


@pytest.mark.parametrize("interval", [None, 1.0, 60.0])
def test_a_task_is_looked_at_soon_after_it_was_made(interval: float | None) -> None:
    assert PollSchedule("t").after(interval) == FIRST


@pytest.mark.parametrize(
    ("interval", "pause"), [(None, USUAL), (2.5, 2.5), (60.0, 60.0), (0.001, LEAST), (1e9, MOST), (LEAST, LEAST)]
)
def test_it_is_looked_at_no_sooner_than_its_server_wants_and_little_later(interval: float | None, pause: float) -> None:
    assert all(pause <= each <= pause * (1 + LATER) for each in later(interval))


def test_tasks_that_were_made_together_are_not_looked_at_together() -> None:
    assert len(set(later(1.0))) > 40
    assert later(1.0, "a") != later(1.0, "b")
    assert later(1.0, "a") == later(1.0, "a")


def test_a_look_that_fails_is_made_again_after_ever_longer_pauses() -> None:
    looks = PollSchedule("t")
    looks.after(1.0)
    pauses = [looks.after_failure(1.0, float(turn)) for turn in range(8)]
    assert all(pause is not None for pause in pauses)
    wanted = [2.0, 4.0, 8.0, 16.0, POLL_PAUSE_MOST, POLL_PAUSE_MOST, POLL_PAUSE_MOST, POLL_PAUSE_MOST]
    assert all(most <= (pause or 0) <= most * (1 + LATER) for most, pause in zip(wanted, pauses, strict=True))


def test_a_server_that_wants_long_pauses_has_them_while_looks_fail() -> None:
    looks = PollSchedule("t")
    assert (looks.after_failure(120.0, 0.0) or 0) >= 120.0


def test_looks_that_fail_for_too_long_end() -> None:
    looks = PollSchedule("t")
    assert looks.after_failure(1.0, 100.0) is not None
    assert looks.after_failure(1.0, 100.0 + DEAF_FOR - 0.1) is not None
    assert looks.after_failure(1.0, 100.0 + DEAF_FOR) is None


def test_looks_that_could_not_be_made_do_not_end_however_long_that_goes_on() -> None:
    looks = PollSchedule("t")
    looks.after_failure(1.0, 0.0)
    assert all(looks.after_failure(1.0, turn * DEAF_FOR, was_made=False) is not None for turn in range(1, 9))
    assert looks.after_failure(1.0, 8.9 * DEAF_FOR) is not None
    assert looks.after_failure(1.0, 9 * DEAF_FOR) is None


def test_a_look_that_is_answered_ends_the_impatience() -> None:
    looks = PollSchedule("t")
    looks.after_failure(1.0, 0.0)
    looks.after(1.0)
    assert looks.after_failure(1.0, DEAF_FOR) is not None
    assert (looks.after_failure(1.0, DEAF_FOR + 1) or 0) >= 4.0


def test_looks_that_could_not_be_made_for_hours_go_on() -> None:
    looks = PollSchedule("t")
    pauses = [looks.after_failure(1.0, POLL_PAUSE_MOST * turn, was_made=False) for turn in range(3000)]
    assert all(POLL_PAUSE_MOST <= (pause or 0) <= POLL_PAUSE_MOST * (1 + LATER) for pause in pauses[8:])
