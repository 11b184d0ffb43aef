"""Every answer about a task advises how soon to ask again, and only who never heeds it is refused."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock
from helpers.records import after, new_record
from taskgate.admission.polls import BURST, POLICY, PollLimiter
from taskgate.domain.events import CallSucceeded, Progressed
from taskgate.domain.listing import listed_task
from taskgate.domain.record import OwnerKey, TaskRecord
from taskgate.errors import RateLimited
from taskgate.telemetry.events import PollsCounted, TaskPolled
from unit.admission.live_rules import live
from unit.lifecycle.guarding import Guard, new_polls
from unit.lifecycle.recorded_events import RecordedEvents

SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
DONE = CallSucceeded(result='{"content":[]}', tool_error=False, message=None)


class Desk:
    """Polls of two seconds for idle servers, of new tasks too, and what they report."""

    def __init__(self, *, size: int = 9, **polling: Any) -> None:
        self.clock, self.emitted = ManualClock(), RecordedEvents()
        self.busy: dict[str, float] = {}
        self.live = live(polling=Guard.polling(**{"adaptive": True, "jitter": 0.0, "least": 2 * SECOND, **polling}))
        self.polls: PollLimiter = new_polls(self.live, self.clock, self.emitted, self.busy, size=size)

    def advised(self, record: TaskRecord) -> float:
        interval = self.polls.advise(record)
        assert interval is not None
        return interval / 1000

    def listed(self, *records: TaskRecord) -> list[float]:
        tasks = self.polls.advise_page("reports", [listed_task(record) for record in records])
        return [task.poll_interval.total_seconds() for task in tasks]

    def poll(self, record: TaskRecord, after: float = 0.0) -> str:
        """What a poll is counted as that comes so many seconds from now; its host is advised again."""
        self.clock.advance(timedelta(seconds=after))
        before = len(self.emitted.all)
        interval = self.polls.on_poll(record)
        (event,) = [event for event in self.emitted.all[before:] if not isinstance(event, PollsCounted)]
        assert isinstance(event, TaskPolled)
        assert event.mount == "reports"
        if record.status.is_terminal:
            assert interval * MILLISECOND == record.poll_interval
        else:
            assert self.polls.newest() == {("reports",): interval / 1000}
        return event.result

    @property
    def counted(self) -> list[int]:
        """How many polls it took to see the end of each task."""
        return [event.polls for event in self.emitted.all if isinstance(event, PollsCounted)]


# --- the advice -------------------------------------------------------------------------------------------------------


def test_an_answer_advises_what_the_operator_wants_of_an_idle_server() -> None:
    desk = Desk()
    assert desk.polls.newest() == {}
    assert desk.advised(new_record()) == 2.0
    assert desk.polls.newest() == {("reports",): 2.0}


def test_under_load_the_advice_grows_for_the_tasks_of_that_server_and_shrinks_again_step_by_step() -> None:
    desk, record = Desk(), new_record()
    other = new_record(owner=OwnerKey(record.owner.context, "books"))
    desk.busy["reports"] = 2.1
    assert (desk.advised(record), desk.advised(other)) == (18.0, 2.0)
    desk.busy["reports"] = 0.0
    assert [desk.advised(record) for _ in range(5)] == [9.0, 4.5, 2.25, 2.0, 2.0]


def test_it_grows_with_the_age_of_a_task() -> None:
    desk, record = Desk(), new_record()
    desk.clock.advance(timedelta(minutes=10))
    assert desk.advised(record) == 8.0
    desk.clock.advance(timedelta(minutes=5))
    assert desk.advised(record) == 11.0


def test_it_is_short_for_a_new_task_and_grows_to_the_usual_one() -> None:
    desk, record = Desk(least=100 * MILLISECOND), new_record()
    told = []
    for pause in (0, 0.5, 0.5, 1.5, 1.5):
        desk.clock.advance(timedelta(seconds=pause))
        told.append(desk.advised(record))
    assert told == [0.1, 0.255, 0.51, 1.275, 2.04]


def test_with_jitter_no_two_tasks_are_told_the_same() -> None:
    desk = Desk(jitter=0.1, least=SECOND)
    desk.clock.advance(timedelta(seconds=5))
    told = {desk.advised(new_record()) for _ in range(9)}
    assert len(told) > 5
    assert all(1.84 <= interval <= 2.26 for interval in told)


def test_what_is_advised_by_rote_needs_no_chance() -> None:
    desk = Desk(adaptive=False, jitter=0.1)
    assert {desk.advised(new_record()) for _ in range(9)} == {2.0}


def test_a_task_that_has_ended_is_told_as_it_is() -> None:
    desk, record = Desk(), after(new_record(), DONE)
    assert desk.polls.advise(record) is None
    assert desk.listed(record) == [1.0]
    assert (desk.emitted.all, desk.polls.newest()) == ([], {})


def test_new_rules_of_the_operator_are_told_at_once() -> None:
    desk, record = Desk(), new_record()
    assert desk.advised(record) == 2.0
    desk.live.current = live(polling=Guard.polling(base=9 * SECOND)).current
    assert desk.advised(record) == 9.0


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_list_advises_what_each_task_was_told_until_that_time_is_over() -> None:
    desk, old, new = Desk(), new_record(), new_record()
    desk.busy["reports"] = 1.4
    assert desk.advised(old) == 8.0
    desk.busy["reports"] = 0.0
    assert desk.listed(old, new) == [8.0, 2.0]
    desk.clock.advance(timedelta(seconds=7.9))
    assert desk.listed(old) == [8.0]
    desk.clock.advance(timedelta(seconds=0.1))
    assert desk.listed(old, new) == [4.0, 2.08]


# --- polls ------------------------------------------------------------------------------------------------------------


def test_a_poll_finds_something_new_or_not_or_the_end() -> None:
    desk, record = Desk(), new_record()
    later = after(record, Progressed(message="1/3"))
    ended = after(later, DONE)
    found = [desk.poll(each, after=2) for each in (record, record, later, later, ended, ended)]
    assert found == ["changed", "unchanged", "changed", "unchanged", "terminal", "terminal"]


def test_a_poll_is_early_before_half_of_the_interval_is_over() -> None:
    desk, record = Desk(adaptive=False), new_record()
    assert desk.advised(record) == 2.0
    # The first is never early, however soon after its handle it comes.
    assert [desk.poll(record, after=pause) for pause in (0, 1.0, 0.99, 1.0)] == [
        "changed",
        "unchanged",
        "early",
        "unchanged",
    ]


def test_what_is_early_goes_by_what_was_advised_last() -> None:
    desk, record = Desk(), new_record()
    desk.busy["reports"] = 2.1
    assert desk.advised(record) == 18.0
    assert [desk.poll(record), desk.poll(record, after=8.9), desk.poll(record, after=9.1)] == [
        "changed",
        "early",
        "unchanged",
    ]


def test_a_notification_that_tells_a_longer_interval_makes_no_host_early_that_waits_by_its_last_answer() -> None:
    desk, record = Desk(least=100 * MILLISECOND), new_record()
    desk.clock.advance(timedelta(seconds=2.5))
    assert desk.poll(record) == "changed"
    desk.clock.advance(timedelta(seconds=0.5))
    assert desk.advised(record) == 1.53
    # It was told 1.275 seconds, and half of that is over.
    assert desk.poll(record, after=0.15) == "unchanged"
    # From then on the new answer counts: 1.606 seconds.
    assert desk.poll(record, after=0.7) == "early"


def test_a_few_polls_in_a_row_are_answered_and_only_more_are_refused() -> None:
    desk, record = Desk(), new_record(poll_interval=2 * SECOND)
    assert [desk.poll(record) for _ in range(BURST)][1:] == ["early"] * (BURST - 1)
    with pytest.raises(RateLimited) as refusal:
        desk.polls.on_poll(record)
    assert (refusal.value.policy, refusal.value.retry_after) == (POLICY, 2 * SECOND)
    assert desk.emitted.all[-1] == TaskPolled("reports", "limited")
    # What was refused was not counted against its host.
    assert desk.poll(record, after=0.2) == "early"


def test_who_is_refused_is_told_to_wait_for_as_long_as_the_task_advises() -> None:
    desk, record = Desk(), new_record()
    desk.busy["reports"] = 2.1
    assert desk.advised(record) == 18.0
    for _ in range(BURST):
        desk.poll(record)
    for busy, wait in ((2.1, 18), (0.0, 9), (0.0, 4.5)):
        desk.busy["reports"] = busy
        desk.advised(record)
        with pytest.raises(RateLimited) as refused:
            desk.polls.on_poll(record)
        assert refused.value.retry_after == timedelta(seconds=wait)


def test_ten_times_as_often_as_advised_is_never_refused_and_more_is_in_the_end() -> None:
    desk, record = Desk(adaptive=False), new_record()
    for _ in range(500):
        desk.poll(record, after=0.2)
    refused = 0
    for _ in range(1000):
        try:
            desk.poll(record, after=0.18)
        except RateLimited:
            refused += 1
    # A tenth too many, less what passes however fast it comes.
    assert 100 - BURST - 2 <= refused <= 100 - BURST + 2


@pytest.mark.parametrize(("busy", "age"), [(9.0, 0), (0.0, 60)])
def test_advice_that_grew_makes_nobody_refused_who_polls_as_if_it_had_not(busy: float, age: int) -> None:
    """Released hosts poll every half second whatever they are told, and give their task up when they are refused."""
    desk, record = Desk(), new_record()
    desk.busy["reports"] = busy
    desk.clock.advance(timedelta(minutes=age))
    assert desk.advised(record) > 10.0
    results = {desk.poll(record, after=0.5) for _ in range(200)}
    assert results == {"changed", "early"}
    for _ in range(BURST - 3):
        desk.poll(record)
    with pytest.raises(RateLimited):
        [desk.poll(record) for _ in range(4)]


def test_who_polls_one_task_too_often_is_not_kept_from_others() -> None:
    desk, record = Desk(), new_record()
    for _ in range(BURST):
        desk.poll(record)
    with pytest.raises(RateLimited):
        desk.poll(record)
    assert desk.poll(new_record()) == "changed"


def test_the_first_poll_after_a_restart_is_not_early_and_the_next_goes_by_what_it_was_told() -> None:
    desk, record = Desk(), new_record(poll_interval=10 * SECOND)
    assert [desk.poll(record, after=pause) for pause in (0, 0.9, 1.1)] == ["changed", "early", "unchanged"]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_the_task_that_was_used_longest_ago_is_forgotten_first() -> None:
    desk = Desk(size=2)
    one, two, three = new_record(), new_record(), new_record()
    for record in (one, two):
        desk.poll(record)
    assert desk.poll(one) == "early"
    desk.poll(three)
    assert [desk.poll(one), desk.poll(two)] == ["early", "changed"]


def test_what_was_owed_under_load_is_forgiven_when_hosts_are_told_to_ask_sooner() -> None:
    desk, record = Desk(), new_record()
    desk.busy["reports"] = 2.1
    assert desk.advised(record) == 18.0
    for _ in range(BURST):
        desk.poll(record)
    desk.busy["reports"] = 0.0
    assert [desk.advised(record) for _ in range(4)][-1] == 2.0
    with pytest.raises(RateLimited) as refused:
        desk.polls.on_poll(record)
    assert refused.value.retry_after == 2 * SECOND
    desk.clock.advance(timedelta(seconds=0.2))
    desk.polls.on_poll(record)


# --- how many it took -------------------------------------------------------------------------------------------------


def test_the_poll_that_sees_a_task_ended_tells_how_many_it_took_once() -> None:
    desk, record = Desk(), new_record()
    for _ in range(3):
        desk.poll(record, after=2)
    assert desk.counted == []
    done = after(record, DONE)
    for _ in range(2):
        desk.poll(done, after=2)
    assert desk.emitted.all.count(PollsCounted("reports", 4)) == 1
    assert desk.counted == [4]


def test_a_task_that_was_advised_and_listed_alone_was_not_polled() -> None:
    desk, record = Desk(), new_record()
    desk.advised(record)
    desk.listed(record)
    desk.poll(after(record, DONE))
    assert desk.counted == [1]


def test_a_poll_that_was_refused_is_none_that_it_took() -> None:
    desk, record = Desk(), new_record()
    for _ in range(BURST):
        desk.poll(record)
    with pytest.raises(RateLimited):
        desk.poll(record)
    desk.poll(after(record, DONE), after=60)
    assert desk.counted == [BURST + 1]
