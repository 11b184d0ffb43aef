"""Where calls wait for their hosts: how many, how long, and who finds them again."""

from datetime import timedelta
from typing import Any

import pytest

from helpers.manual_clock import ManualClock, SeededEntropy
from taskgate.admission.rules import QuestionBounds
from taskgate.domain.record import OwnerKey
from taskgate.errors import InvalidParams
from taskgate.gateway.modern.retries import MAX_HELD, HeldCall, HeldCalls
from unit.admission.live_rules import live

ALICE, BOB = OwnerKey("alice", "reports"), OwnerKey("bob", "reports")
WAIT = timedelta(seconds=20)


class Call:
    """A flight as far as it is held."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def set_listener(self, listener: object) -> None:
        assert listener is None, "nobody is there while a call waits"
        self.told.append("away")

    def refuse(self) -> None:
        self.told.append("refused")

    def close(self) -> None:
        self.told.append("closed")


class Line:
    """Over which a call goes."""

    def __init__(self, owner: OwnerKey) -> None:
        self.owner = owner
        self.mount: Any = self
        self.name = "reports"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def holds(clock: ManualClock) -> HeldCalls:
    return HeldCalls(live=live(questions=QuestionBounds(WAIT, 2)), clock=clock, entropy=SeededEntropy())


def place(holds: HeldCalls, owner: OwnerKey = ALICE) -> HeldCall | None:
    return holds.new(Line(owner), Call())  # type: ignore[arg-type]


def waiting(holds: HeldCalls, owner: OwnerKey = ALICE) -> HeldCall:
    """A call whose host is away."""
    held = place(holds, owner)
    assert held is not None
    holds.start_wait(held)
    return held


def told(held: HeldCall) -> list[str]:
    call: Any = held.inflight
    assert isinstance(call, Call)
    return call.told


def test_ids_are_not_to_be_guessed(holds: HeldCalls) -> None:
    held = waiting(holds)
    assert (len(held.id), held.id.isascii()) == (32, True)
    assert held.id != waiting(holds).id


def test_a_call_is_found_by_its_owner_under_any_of_their_keys(holds: HeldCalls) -> None:
    held = waiting(holds)
    assert holds.find((BOB, ALICE), held.id, 0) is held


def test_a_call_is_found_by_nobody_else_and_for_no_other_round(holds: HeldCalls) -> None:
    held = waiting(holds)
    for owners, id_, round_ in (((BOB,), held.id, 0), ((ALICE,), held.id, 1), ((ALICE,), "other", 0)):
        with pytest.raises(InvalidParams, match=r"^Invalid requestState$"):
            holds.find(owners, id_, round_)
    assert told(held) == ["away"]


def test_a_round_that_was_taken_is_over_and_the_next_one_counts_on(holds: HeldCalls) -> None:
    held = waiting(holds)
    holds.stop_wait(held)
    with pytest.raises(InvalidParams):
        holds.find((ALICE,), held.id, 0)
    holds.start_wait(held)
    assert holds.find((ALICE,), held.id, 1) is held
    with pytest.raises(InvalidParams):
        holds.find((ALICE,), held.id, 0)


def test_a_context_has_so_many_places_and_another_one_its_own(holds: HeldCalls) -> None:
    first = waiting(holds)
    waiting(holds)
    assert place(holds) is None
    assert place(holds, BOB) is not None
    holds.end(first)
    holds.end(first)
    assert place(holds) is not None
    assert place(holds) is None


def test_that_there_is_no_place_is_told_once_until_there_is(holds: HeldCalls, caplog: pytest.LogCaptureFixture) -> None:
    held = [waiting(holds), waiting(holds)]
    assert [place(holds), place(holds)] == [None, None]
    assert len(caplog.records) == 1
    holds.end(held[0])
    assert place(holds) is not None
    assert place(holds) is None
    assert len(caplog.records) == 2


def test_there_are_only_so_many_places(holds: HeldCalls) -> None:
    for number in range(MAX_HELD):
        waiting(holds, OwnerKey(f"caller {number}", "reports"))
    assert place(holds, OwnerKey("carol", "reports")) is None


def test_a_call_whose_host_does_not_come_back_is_given_up_after_its_server_was_refused(
    holds: HeldCalls, clock: ManualClock
) -> None:
    held, back = waiting(holds), waiting(holds)
    holds.stop_wait(back)
    clock.advance(WAIT - timedelta(seconds=1))
    holds.sweep()
    assert told(held) == ["away"]
    clock.advance(timedelta(seconds=1))
    holds.sweep()
    assert (told(held), told(back)) == (["away", "refused", "closed"], ["away"])
    assert place(holds) is not None


def test_a_host_that_comes_back_too_late_finds_nothing(holds: HeldCalls, clock: ManualClock) -> None:
    held = waiting(holds)
    clock.advance(WAIT)
    with pytest.raises(InvalidParams):
        holds.find((ALICE,), held.id, 0)
    assert told(held) == ["away", "refused", "closed"]


def test_at_the_end_all_that_wait_are_given_up_and_no_other_begins_to(holds: HeldCalls) -> None:
    held, back = waiting(holds), waiting(holds, BOB)
    holds.stop_wait(back)
    holds.stop()
    assert (told(held), told(back)) == (["away", "refused", "closed"], ["away"])
    assert place(holds, OwnerKey("carol", "reports")) is None


# --- where other processes hold calls, too -------------------------------------------------------------------------


def test_the_id_of_a_held_call_leads_to_the_process_that_holds_it(holds: HeldCalls) -> None:
    holds.mark = "here"
    mine = waiting(holds).id
    assert holds.holder_elsewhere(mine) is None
    holds.mark = "elsewhere"
    assert holds.holder_elsewhere(mine) == "here"


def test_alone_it_leads_nowhere_else(holds: HeldCalls) -> None:
    mine = waiting(holds).id
    assert "." not in mine
    for id_ in (mine, f"elsewhere.{mine}"):
        assert holds.holder_elsewhere(id_) is None
