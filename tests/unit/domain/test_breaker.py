"""When a server is left alone, and when it is tried again."""

import tracemalloc
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requirements import covers
from taskgate.domain.breaker import BRIEF, CircuitBreaker, CircuitState

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
ALICE, BOB, MALLORY = "alice", "bob", "mallory"


def circuit(failures: int = 3, window: float = 10, open_for: float = 20, half_open: int = 1) -> CircuitBreaker:
    return CircuitBreaker(failures=failures, window=window, open_for=open_for, half_open=half_open)


def acquire(one: CircuitBreaker, now: float) -> int | None:
    """The number of a request that passes; None if none does."""
    return one.number if one.state is CLOSED else one.trial(now, ALICE)


def let(one: CircuitBreaker, now: float) -> int:
    number = acquire(one, now)
    assert number is not None
    return number


def fail(one: CircuitBreaker, *times: float) -> None:
    for now in times:
        one.failed(let(one, now), now, ALICE)


def tried(half_open: int = 1) -> CircuitBreaker:
    """A circuit that opened at 0 for 20 seconds."""
    one = circuit(half_open=half_open)
    fail(one, 0, 0, 0)
    assert one.state is OPEN
    return one


def test_so_many_failures_within_the_window_open_it_whatever_succeeds_between() -> None:
    one = circuit()
    fail(one, 0, 4)
    one.succeeded(let(one, 5), 5, ALICE)
    assert (one.state, one.retry_after(5, ALICE)) == (CLOSED, 0)
    fail(one, 10)
    assert (one.state, acquire(one, 10), one.retry_after(10, ALICE)) == (OPEN, None, 20)


def test_failures_that_lie_further_apart_than_the_window_leave_it_closed() -> None:
    one = circuit()
    fail(one, 0, 4, 11, 15)
    assert one.state is CLOSED
    fail(one, 21)
    assert one.state is OPEN


def test_after_the_window_of_the_last_failure_successes_count_no_more_until_the_next() -> None:
    one = circuit(window=10)
    fail(one, 0)
    one.succeeded(let(one, 10), 10, ALICE)
    assert one.counts_successes
    one.succeeded(let(one, 11), 11, ALICE)
    assert (one.state, one.counts_successes) == (CLOSED, False)
    fail(one, 12, 12)
    assert (one.state, one.counts_successes) == (CLOSED, True)


def test_one_failure_is_enough_where_the_operator_says_so() -> None:
    one = circuit(failures=1)
    fail(one, 0)
    assert one.state is OPEN


def test_it_is_tried_as_soon_as_its_time_is_up_and_not_before() -> None:
    one = tried()
    assert (acquire(one, 19.5), one.retry_after(19.5, ALICE), one.retry_after(25, ALICE)) == (None, 0.5, 0)
    assert acquire(one, 20) is not None
    assert one.state is HALF_OPEN


@pytest.mark.parametrize("probes", [1, 3])
def test_half_open_only_so_many_try_at_once(probes: int) -> None:
    one = tried(probes)
    numbers = [let(one, 20) for _ in range(probes)]
    assert (acquire(one, 21), one.retry_after(21, ALICE)) == (None, BRIEF), "a trial nearly always ends soon"
    assert one.retry_after(39.5, ALICE) == 0.5
    one.abandoned(numbers[0])
    assert (one.retry_after(21, ALICE), one.state) == (0, HALF_OPEN)
    assert acquire(one, 21) is not None
    assert acquire(one, 21) is None


def test_one_success_closes_it_and_earlier_failures_are_forgotten() -> None:
    one = tried(2)
    first, other = let(one, 20), let(one, 20)
    one.succeeded(first, 21, ALICE)
    assert one.state is CLOSED
    one.failed(other, 21, ALICE)
    fail(one, 21, 21)
    assert one.state is CLOSED, "what was let through before it closed tells nothing"
    fail(one, 21)
    assert one.state is OPEN


def test_failures_from_before_it_opened_are_forgotten_however_long_the_window_is() -> None:
    one = circuit(window=100)
    fail(one, 0, 0, 0)
    one.succeeded(let(one, 20), 20, ALICE)
    fail(one, 20, 20)
    assert one.state is CLOSED


def test_one_failure_opens_it_again_for_as_long() -> None:
    one = tried(2)
    first, other = let(one, 20), let(one, 20)
    one.failed(first, 25, ALICE)
    assert (one.state, one.retry_after(25, ALICE)) == (OPEN, 20)
    one.succeeded(other, 25, ALICE)
    assert one.state is OPEN
    assert acquire(one, 45) is not None


@pytest.mark.parametrize("ok", [True, False])
def test_what_was_let_through_before_it_opened_tells_nothing_afterwards(ok: bool) -> None:
    one = circuit()
    early = let(one, 0)
    fail(one, 0, 0, 0)
    acquire(one, 20)
    if ok:
        one.succeeded(early, 20, ALICE)
    else:
        one.failed(early, 20, ALICE)
    assert one.state is HALF_OPEN


def test_a_try_that_nobody_tells_of_makes_room_for_another_in_its_time_and_still_counts() -> None:
    one = tried()
    lost = let(one, 20)
    assert (acquire(one, 39), one.retry_after(39, ALICE)) == (None, 1)
    assert one.retry_after(41, ALICE) == 0
    assert acquire(one, 40) is not None
    one.succeeded(lost, 41, ALICE)
    assert one.state is CLOSED


def test_it_can_be_opened_and_closed_from_outside() -> None:
    one = circuit()
    one.open(5)
    assert (one.state, one.retry_after(5, ALICE)) == (OPEN, 20)
    one.open(10)
    assert one.retry_after(10, ALICE) == 20
    one.close()
    assert acquire(one, 10) is not None


# --- several callers --------------------------------------------------------------------------------------------------


def ask(one: CircuitBreaker, now: float, caller: str) -> int | None:
    """The number of a caller's request that passes; None if it does not."""
    return one.number if one.state is CLOSED else one.trial(now, caller)


def end(one: CircuitBreaker, now: float, caller: str, *, ok: bool) -> bool:
    """Make a request of a caller, if it passes; whether it did."""
    number = ask(one, now, caller)
    if number is None:
        return False
    if not ok:
        one.failed(number, now, caller)
    elif one.counts_successes:
        one.succeeded(number, now, caller)
    return True


@covers("T46")
@pytest.mark.parametrize("failures", [5, 50])
def test_the_failures_of_one_caller_refuse_no_other_one(failures: int) -> None:
    one = circuit(failures=5)
    for number in range(failures):
        end(one, number / 10, MALLORY, ok=False)
        assert end(one, number / 10, ALICE, ok=True)
        assert one.state is CLOSED


def test_failures_that_come_at_once_open_it_for_their_caller_alone_and_others_pass_at_any_number() -> None:
    one = circuit(failures=5)
    for _ in range(50):
        end(one, 1, MALLORY, ok=False)
    assert (one.state, one.only) == (OPEN, MALLORY)
    assert (ask(one, 2, MALLORY), one.retry_after(2, MALLORY), one.retry_after(2, ALICE)) == (None, 19, 0)
    numbers = [ask(one, 2, caller) for caller in (ALICE, ALICE, BOB)]
    assert None not in numbers
    one.succeeded(numbers[0] or 0, 3, ALICE)
    assert one.state is CLOSED
    for _ in range(50):
        end(one, 4, MALLORY, ok=False)
    assert one.state is CLOSED, "another caller was served within the window"


def test_the_failure_of_a_second_caller_opens_it_for_all() -> None:
    one = circuit(failures=5)
    for _ in range(5):
        end(one, 1, MALLORY, ok=False)
    assert end(one, 2, ALICE, ok=False)
    assert (one.state, one.only) == (OPEN, None)
    assert ask(one, 3, BOB) is None


@pytest.mark.parametrize(("failing", "served", "opens"), [(2, 0, True), (2, 1, True), (2, 2, False), (3, 2, True)])
def test_it_opens_for_all_if_more_callers_fail_than_are_served(failing: int, served: int, opens: bool) -> None:
    one = circuit(failures=6)
    end(one, 0, "f0", ok=False)
    for number in range(served):
        end(one, 1, f"s{number}", ok=True)
    for number in range(6):
        end(one, 2, f"f{number % failing}", ok=False)
    assert ((one.state, one.only) == (OPEN, None)) is opens


def test_a_caller_that_was_served_after_it_failed_counts_as_served() -> None:
    one = circuit(failures=3)
    end(one, 0, ALICE, ok=False)
    end(one, 1, ALICE, ok=True)
    end(one, 2, MALLORY, ok=False)
    end(one, 2, MALLORY, ok=False)
    assert one.state is CLOSED


def test_whoever_was_served_before_the_window_does_not_count() -> None:
    one = circuit(failures=3, window=10)
    end(one, 0, MALLORY, ok=False)
    end(one, 0, ALICE, ok=True)
    for _ in range(3):
        end(one, 11, MALLORY, ok=False)
    assert (one.state, one.only) == (OPEN, MALLORY)


def test_connections_that_do_not_come_about_open_it_for_all_whoever_is_served() -> None:
    one = circuit(failures=3)
    for now in range(3):
        one.failed(one.number, now, None)
        if now < 2:
            end(one, now, ALICE, ok=True)
    assert (one.state, one.only) == (OPEN, None)


def test_a_connection_that_does_not_come_about_now_and_then_makes_no_caller_fail() -> None:
    one = circuit(failures=5)
    for number in range(4):
        end(one, number, MALLORY, ok=False)
        end(one, number, ALICE, ok=True)
    one.failed(one.number, 5, None)
    assert one.state is CLOSED


def test_the_requests_that_ran_when_their_process_ended_are_one_failure() -> None:
    one = circuit(failures=3)
    running = [let(one, 0) for _ in range(10)]
    assert [one.counts_end(number) for number in running] == [True] + [False] * 9
    one.failed(running[0], 1, "c")
    after = let(one, 2)
    assert one.counts_end(after)
    one.succeeded(running[1], 2, "c")
    assert one.state is CircuitState.CLOSED


def test_each_end_of_a_process_is_a_failure_if_a_request_began_after_the_one_before() -> None:
    one = circuit(failures=3)
    for now in (1, 2, 3):
        running = [let(one, now), let(one, now)]
        for number in filter(one.counts_end, running):
            one.failed(number, now, "c")
    assert one.state is CircuitState.OPEN


def opened_for_all() -> CircuitBreaker:
    """A circuit that failures of two callers opened at 0 for 20 seconds."""
    one = circuit(failures=4)
    for caller in (MALLORY, BOB, MALLORY, BOB):
        end(one, 0, caller, ok=False)
    assert (one.state, one.only) == (OPEN, None)
    return one


def test_the_trial_goes_to_a_caller_that_did_not_fail_if_one_asked() -> None:
    one = opened_for_all()
    assert ask(one, 5, ALICE) is None
    assert (ask(one, 20, MALLORY), one.retry_after(20, MALLORY)) == (None, 20)
    assert end(one, 21, ALICE, ok=True)
    assert one.state is CLOSED


def test_a_caller_that_failed_has_the_trial_if_no_other_asked_or_comes_for_long() -> None:
    one = opened_for_all()
    assert ask(one, 20, MALLORY) is not None
    waited_for = opened_for_all()
    assert ask(waited_for, 5, ALICE) is None
    assert ask(waited_for, 39, MALLORY) is None
    assert ask(waited_for, 40, MALLORY) is not None


def test_a_caller_that_was_refused_before_it_failed_makes_no_caller_wait() -> None:
    one = opened_for_all()
    number = ask(one, 20, ALICE)
    assert number is not None
    assert ask(one, 20, ALICE) is None
    one.failed(number, 20, ALICE)
    assert ask(one, 40, ALICE) is not None


def test_the_trial_of_a_caller_that_failed_takes_no_place_of_others() -> None:
    one = opened_for_all()
    assert ask(one, 20, MALLORY) is not None
    assert ask(one, 21, BOB) is None
    assert end(one, 21, ALICE, ok=True)
    assert one.state is CLOSED


@pytest.mark.thorough
@covers("T45")
def test_a_hundred_thousand_callers_take_no_more_memory_than_a_few() -> None:
    one = circuit(failures=5, window=1e9)
    # Served ones outnumber the others, so that it stays closed and goes on counting.
    for number in range(200):
        end(one, 1, f"early {number}", ok=number % 3 > 0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(100_000):
            end(one, 2, f"later {number}", ok=number % 3 > 0)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert one.counts_successes
    assert after - before < 64 * 1024


# --- against an oracle that remembers everything ----------------------------------------------------------------------


@dataclass
class Oracle:
    """All that ever happened; every question is answered by counting it again."""

    failures: int
    window: int
    open_for: int
    half_open: int
    is_brief: bool
    """Whether every failure is that no connection came about."""
    span: float = 0
    """How long it is open now."""
    briefs: int = 0
    """How often it opened by a failure since it was closed."""
    moves: list[tuple[int, CircuitState]] = field(default_factory=lambda: [(0, CLOSED)])
    let: list[tuple[int, int]] = field(default_factory=list)
    """Of each request: when, and after how many moves."""
    over: set[int] = field(default_factory=set)
    failed_at: list[tuple[int, int]] = field(default_factory=list)

    @property
    def state(self) -> CircuitState:
        return self.moves[-1][1]

    def trying(self, now: int) -> list[int]:
        return [
            when
            for number, (when, epoch) in enumerate(self.let)
            if epoch == len(self.moves) and number not in self.over and now - when < self.open_for
        ]

    def acquire(self, now: int) -> int | None:
        since, state = self.moves[-1]
        if state is OPEN and now >= since + self.span:
            self.moves.append((now, HALF_OPEN))
        if self.state is OPEN or (self.state is HALF_OPEN and len(self.trying(now)) >= self.half_open):
            return None
        self.let.append((now, len(self.moves)))
        return len(self.let) - 1

    def retry_after(self, now: int) -> float:
        if self.state is OPEN:
            return max(self.moves[-1][0] + self.span - now, 0)
        if self.state is HALF_OPEN and len(trying := self.trying(now)) >= self.half_open:
            return min(BRIEF, min(trying) + self.open_for - now)
        return 0

    def told(self, number: int, ok: bool | None, now: int) -> None:
        self.over.add(number)
        if ok is None or self.let[number][1] != len(self.moves):
            return
        if self.state is HALF_OPEN and ok:
            self.close(now)
        elif self.state is HALF_OPEN:
            self.opened(now)
        elif not ok:
            self.failed_at.append((now, len(self.moves)))
            recent = [when for when, epoch in self.failed_at if epoch == len(self.moves) and now - when <= self.window]
            if len(recent) >= self.failures:
                self.opened(now)

    def opened(self, now: int) -> None:
        """It opened by a failure."""
        self.briefs += 1
        self.open(now)
        self.span = min(2 ** (self.briefs - 1), self.open_for) if self.is_brief else self.open_for

    def open(self, now: int) -> None:
        self.moves.append((now, OPEN))
        self.span = self.open_for

    def close(self, now: int) -> None:
        self.moves.append((now, CLOSED))
        self.briefs = 0


_tells = st.tuples(st.integers(0, 3), st.sampled_from([True, False, False, False, None]))
_steps = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 2, 3]),
        st.one_of(st.just("ask"), st.just("ask"), _tells, _tells, st.sampled_from(["ask", "ask", "open", "close"])),
    ),
    min_size=10,
    max_size=80,
)


@pytest.mark.parametrize("whose", [ALICE, None])
@given(st.integers(1, 3), st.integers(0, 4), st.integers(1, 4), st.integers(1, 2), _steps)
def test_it_does_as_the_oracle_does_for_one_caller_whatever_happens(
    whose: str | None, failures: int, window: int, open_for: int, half_open: int, steps: list[tuple[int, object]]
) -> None:
    one, now = circuit(failures, window, open_for, half_open), 0
    oracle = Oracle(failures, window, open_for, half_open, whose is None)
    numbers: list[int] = []
    for later, step in steps:
        now += later
        if step == "ask":
            number = acquire(one, now)
            assert (number is None) == (oracle.acquire(now) is None)
            if number is not None:
                numbers.append(number)
        elif step == "open":
            one.open(now)
            oracle.open(now)
        elif step == "close":
            one.close()
            oracle.close(now)
        elif isinstance(step, tuple):
            back, ok = step
            which = len(oracle.let) - 1 - back
            if which < 0 or which in oracle.over:
                continue
            oracle.told(which, ok, now)
            if ok is None:
                one.abandoned(numbers[which])
            elif ok:
                one.succeeded(numbers[which], now, ALICE)
            else:
                one.failed(numbers[which], now, whose)
        assert (one.state, one.retry_after(now, ALICE)) == (oracle.state, oracle.retry_after(now))
