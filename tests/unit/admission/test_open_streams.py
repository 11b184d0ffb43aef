"""Open streams are counted by caller, exactly, however they end."""

import asyncio

import pytest

from requirements import covers
from taskgate.admission.concurrency import OpenStreams
from taskgate.admission.rules import CallerLimit
from taskgate.auth.context import AuthContext
from taskgate.errors import TooManyTasks
from taskgate.telemetry.events import CapRefused
from unit.admission.live_rules import live, rules
from unit.lifecycle.recorded_events import RecordedEvents

ANN, BOB = AuthContext(key="ann"), AuthContext(key="bob")


def test_one_more_than_may_be_open_is_refused_and_counted() -> None:
    emitted = RecordedEvents()
    streams = OpenStreams(live=live(streams=2), event_sink=emitted)
    with streams.acquire_stream(ANN), streams.acquire_stream(ANN):
        with (
            pytest.raises(
                TooManyTasks, match=r"^Too many streams of this caller \(2 of 2\): close one, or wait until one ends$"
            ) as refusal,
            streams.acquire_stream(ANN),
        ):
            pytest.fail("it is let in")
        assert (refusal.value.limit, refusal.value.scope) == (2, "context")
        with streams.acquire_stream(BOB):
            assert (streams.count(ANN), streams.count(BOB)) == (2, 1)
    assert emitted.all == [CapRefused("streams", "context")]


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt])
def test_a_stream_that_ends_in_whatever_way_is_open_no_more(error: type[BaseException]) -> None:
    streams = OpenStreams(live=live(streams=1), event_sink=RecordedEvents())
    for _ in range(3):
        with pytest.raises(error), streams.acquire_stream(ANN):
            raise error
    assert streams.count(ANN) == 0
    assert streams.callers == 0


def test_a_refusal_leaves_the_count_alone() -> None:
    streams = OpenStreams(live=live(streams=0), event_sink=RecordedEvents())
    for _ in range(3):
        with pytest.raises(TooManyTasks), streams.acquire_stream(ANN):
            pytest.fail("it is let in")
    assert streams.callers == 0


def test_a_limit_that_changes_counts_what_is_open_already() -> None:
    at = live(streams=1)
    streams = OpenStreams(live=at, event_sink=RecordedEvents())
    with streams.acquire_stream(ANN):
        at.current = rules(streams=2)
        with streams.acquire_stream(ANN):
            at.current = rules(streams=1)
        with pytest.raises(TooManyTasks), streams.acquire_stream(ANN):
            pytest.fail("it is let in")


# --- streams of extensions --------------------------------------------------------------------------------------------


def test_streams_of_extensions_are_counted_by_caller_and_mount_and_apart_from_all_others() -> None:
    # X-EXT-32.
    emitted = RecordedEvents()
    streams = OpenStreams(live=live(streams=2, waits=1), event_sink=emitted)
    with streams.acquire_stream(ANN), streams.acquire_stream(ANN), streams.acquire_wait(ANN):
        with streams.acquire_extension_stream(ANN, "reports"), streams.acquire_extension_stream(ANN, "reports"):
            with (
                pytest.raises(
                    TooManyTasks,
                    match=r"^Too many streams of this caller \(2 of 2\): close one, or wait until one ends$",
                ) as refusal,
                streams.acquire_extension_stream(ANN, "reports"),
            ):
                pytest.fail("it is let in")
            assert (refusal.value.limit, refusal.value.scope) == (2, "context")
            with streams.acquire_extension_stream(ANN, "orders"), streams.acquire_extension_stream(BOB, "reports"):
                assert streams.count(ANN) == 2
        with streams.acquire_extension_stream(ANN, "reports"):
            pass
    assert emitted.all == [CapRefused("streams", "context")]


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt])
def test_a_stream_of_an_extension_that_ends_in_whatever_way_is_open_no_more(error: type[BaseException]) -> None:
    streams = OpenStreams(live=live(streams=1), event_sink=RecordedEvents())
    for _ in range(3):
        with pytest.raises(error), streams.acquire_extension_stream(ANN, "reports"):
            raise error


# --- persons ---------------------------------------------------------------------------------------------------------


@covers("T46")
@pytest.mark.parametrize("what", ["streams", "waits"])
def test_all_clients_of_a_person_together_have_a_limit(what: str) -> None:
    emitted = RecordedEvents()
    limits = {what: CallerLimit(2, 3)}
    streams = OpenStreams(live=live(**limits), event_sink=emitted)
    acquire = streams.acquire_stream if what == "streams" else streams.acquire_wait
    clients = [AuthContext(key=f"client {number}", subject="ann") for number in range(4)]
    with acquire(clients[0]), acquire(clients[1]):
        with acquire(clients[2]), pytest.raises(TooManyTasks) as refusal, acquire(clients[3]):
            pytest.fail("it is let in")
        assert (refusal.value.limit, refusal.value.scope) == (3, "subject")
        with acquire(clients[3]), acquire(BOB):
            pass
    assert emitted.all == [CapRefused(what, "subject")]
    assert streams.callers == 0


# --- waits ------------------------------------------------------------------------------------------------------------


def test_one_wait_more_than_may_be_is_refused_and_counted_apart_from_streams() -> None:
    emitted = RecordedEvents()
    streams = OpenStreams(live=live(streams=1, waits=2, all_waits=3), event_sink=emitted)
    with streams.acquire_stream(ANN), streams.acquire_wait(ANN), streams.acquire_wait(ANN):
        with (
            pytest.raises(
                TooManyTasks, match=r"^Too many waits for task results of this caller \(2 of 2\): "
            ) as refusal,
            streams.acquire_wait(ANN),
        ):
            pytest.fail("it is let in")
        assert (refusal.value.limit, refusal.value.scope) == (2, "context")
        with streams.acquire_wait(BOB):
            with pytest.raises(TooManyTasks) as refusal, streams.acquire_wait(BOB):
                pytest.fail("it is let in")
            assert (refusal.value.limit, refusal.value.scope) == (3, "global")
        with streams.acquire_wait(BOB):
            assert streams.callers == 2
    assert streams.callers == 0
    assert emitted.all == [CapRefused("waits", "context"), CapRefused("waits", "global")]


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt])
def test_a_wait_that_ends_in_whatever_way_is_none_any_more(error: type[BaseException]) -> None:
    streams = OpenStreams(live=live(waits=1, all_waits=1), event_sink=RecordedEvents())
    for _ in range(3):
        with pytest.raises(error), streams.acquire_wait(ANN):
            raise error
    assert streams.callers == 0


def test_without_a_limit_for_all_only_those_of_one_caller_are_counted() -> None:
    streams = OpenStreams(live=live(waits=1, all_waits=None), event_sink=RecordedEvents())
    with streams.acquire_wait(ANN), streams.acquire_wait(BOB), pytest.raises(TooManyTasks), streams.acquire_wait(BOB):
        pytest.fail("it is let in")
