"""A call that may outlive its request: who hears it, what it asks, and how it ends."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.recording_listener import RecordingListener
from helpers.waiting import bounded, eventually
from taskgate.admission.rules import MAX_QUESTION
from taskgate.errors import QueueFull
from taskgate.gateway.listeners import InflightCall
from taskgate.system.background import Background
from taskgate.upstream.calls import CallListener, Principal, ResumePoint
from unit.gateway.modern.calling import Wonder, noted

SPEAKER = Principal(context="c")


class Spot:
    """A place that counts what keeps it open."""

    def __init__(self) -> None:
        self.held = 0

    def acquire(self) -> None:
        self.held += 1

    def release(self) -> None:
        self.held -= 1


class Errand:
    """What a call does: it waits until the test answers; `was_cancelled` tells that it was given up."""

    def __init__(self) -> None:
        self.spot = Spot()
        self.flying = Background()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.was_cancelled = False

    async def __call__(self, listener: CallListener) -> Any:
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    def begin(self, most: int = 2) -> InflightCall:
        """The call, on its way."""
        flight = InflightCall(most=most)
        flight.start(self.spot, self.flying, self)  # type: ignore[arg-type]
        return flight


@pytest.fixture
async def outbound() -> Errand:
    return Errand()


async def test_a_call_keeps_its_place_open_until_it_is_over(outbound: Errand) -> None:
    flight = outbound.begin()
    assert (outbound.spot.held, flight.is_over) == (1, False)
    outbound.answer.set_result("r")
    async with bounded():
        await flight.wait_for_change(None)
    assert flight.is_over
    assert await flight.response() == "r"  # type: ignore[comparison-overlap]
    await eventually(lambda: outbound.spot.held == 0)


async def test_what_the_server_says_is_for_the_host_that_waits_and_for_nobody_else(outbound: Errand) -> None:
    flight, ear = outbound.begin(), RecordingListener(clogs=["a wait"])
    flight.more_follows()
    flight.on_notification(noted("notifications/message"))
    assert flight.clog() is None
    flight.set_listener(ear)
    flight.more_follows()
    flight.on_notification(noted("notifications/progress"))
    assert flight.clog() == "a wait"
    flight.set_listener(None)
    flight.on_notification(noted("notifications/message"))
    assert ear.announced == 1
    assert [each.method for each in ear.notifications] == ["notifications/progress"]
    flight.close()


async def test_a_question_wakes_whoever_waits_and_has_a_key_of_its_own(outbound: Errand) -> None:
    flight = outbound.begin()
    waiting = asyncio.create_task(flight.wait_for_change(None))
    first, second = Wonder(), Wonder()
    flight.asked(first)
    async with bounded():
        await waiting
    flight.answer("input-1", "a", SPEAKER)
    flight.answer("input-1", "b", SPEAKER)
    flight.asked(second)
    assert (first.replies, dict(flight.questions)) == (["a"], {"input-2": second})
    flight.close()


async def test_a_wait_ends_when_its_time_is_over(outbound: Errand) -> None:
    flight = outbound.begin()
    async with bounded():
        await flight.wait_for_change(0)
    assert not flight.is_over
    flight.close()


async def test_a_question_that_was_withdrawn_is_not_waited_with(outbound: Errand) -> None:
    flight, question = outbound.begin(), Wonder()
    flight.asked(question)
    question.withdraw()
    flight.asked(Wonder(is_withdrawn=True))
    assert not flight.questions
    waiting = asyncio.create_task(flight.wait_for_change(None))
    await asyncio.sleep(0)
    assert not waiting.done()
    outbound.answer.set_result("r")
    async with bounded():
        await waiting
    flight.close()


@pytest.mark.parametrize("sizes", [[1, 1, 1], [MAX_QUESTION, 1]], ids=["many", "large"])
async def test_one_question_too_many_or_too_large_is_refused(outbound: Errand, sizes: list[int]) -> None:
    flight = outbound.begin()
    questions = [Wonder(size) for size in sizes]
    for question in questions:
        flight.asked(question)
    assert [question.replies for question in questions] == [[]] * (len(sizes) - 1) + [["refused"]]
    flight.refuse()
    assert [question.replies for question in questions] == [["refused"]] * len(sizes)
    assert not flight.questions
    flight.close()


async def test_how_many_questions_are_refused_is_told_once(outbound: Errand, caplog: pytest.LogCaptureFixture) -> None:
    flight = outbound.begin(most=0)
    for _ in range(3):
        flight.asked(Wonder())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    flight.close()


async def test_a_task_that_takes_the_call_over_hears_it_and_first_what_is_still_open(outbound: Errand) -> None:
    flight, ear = outbound.begin(), RecordingListener()
    open_one, later = Wonder(), Wonder()
    flight.asked(open_one)
    assert flight.passes_rounds
    flight.attach_listener(ear)
    flight.asked(later)
    flight.on_notification(noted("notifications/progress"))
    assert ear.questions == [open_one, later]
    assert len(ear.notifications) == 1
    assert not flight.passes_rounds
    assert not flight.questions
    flight.close()


async def test_to_close_a_call_gives_it_up_once_and_nothing_more_is_heard(outbound: Errand) -> None:
    flight, ear = outbound.begin(), RecordingListener()
    flight.set_listener(ear)
    await asyncio.sleep(0)
    flight.close()
    flight.close()
    flight.on_notification(noted("notifications/message"))
    assert ear.notifications == []
    await eventually(lambda: outbound.was_cancelled)
    assert flight.is_over
    await eventually(lambda: outbound.spot.held == 0)


async def test_whoever_stops_waiting_for_the_response_has_given_the_call_up(outbound: Errand) -> None:
    flight = outbound.begin()
    waiting = asyncio.create_task(flight.response())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert outbound.was_cancelled


async def test_a_failure_that_nobody_waits_for_is_no_error_of_ours(outbound: Errand) -> None:
    flight = outbound.begin()
    outbound.answer.set_exception(RuntimeError("late"))
    await eventually(lambda: outbound.spot.held == 0)
    flight.close()


async def test_a_server_rests_when_it_has_asked_nothing_more_for_a_while(outbound: Errand) -> None:
    flight, loop = outbound.begin(), asyncio.get_running_loop()
    flight.asked(Wonder())
    began = loop.time()
    loop.call_later(0.1, flight.asked, Wonder())
    async with bounded():
        await flight.wait_quiet(0.4)
    assert loop.time() - began > 0.48
    assert len(flight.questions) == 2
    flight.close()


async def test_a_server_that_has_answered_rests_at_once(outbound: Errand) -> None:
    flight = outbound.begin()
    resting = asyncio.create_task(flight.wait_quiet(3600))
    outbound.answer.set_result("r")
    async with bounded():
        await resting
        await flight.wait_quiet(3600)


async def test_what_its_server_was_refused_for_want_of_is_known_of_a_call_as_long_as_it_is_no_task(
    outbound: Errand,
) -> None:
    flight, heir = outbound.begin(), RecordingListener()
    flight.refused({"roots": {}})
    flight.refused({"sampling": {}})
    flight.attach_listener(heir)
    flight.refused({"elicitation": {}})
    assert flight.missing == {"roots": {}, "sampling": {}}
    assert heir.refusals == [{"elicitation": {}}]
    flight.close()


async def test_its_slot_is_given_back_when_it_is_over(outbound: Errand) -> None:
    given_back: list[bool] = []
    flight = InflightCall(most=1)
    ticket: Any = SimpleNamespace(release=lambda: given_back.append(True))
    flight.start(outbound.spot, outbound.flying, outbound, ticket)  # type: ignore[arg-type]
    outbound.answer.set_result("r")
    await eventually(lambda: given_back == [True])


async def test_one_that_did_not_come_to_its_turn_was_refused_and_no_other(outbound: Errand) -> None:
    flight = outbound.begin()
    assert (flight.was_refused, flight.is_adopted) == (False, False)
    outbound.answer.set_exception(QueueFull("full", retry_after=timedelta(seconds=1)))
    async with bounded():
        await flight.wait_for_change(None)
    assert flight.was_refused
    flight.close()
    assert not flight.was_refused


async def test_what_a_server_asks_of_one_that_goes_on_for_others_alone_is_refused(outbound: Errand) -> None:
    flight, question = outbound.begin(), Wonder()
    flight.close()
    flight.asked(question)
    assert question.replies == ["refused"]


async def test_where_a_call_was_before_it_became_a_task_is_the_first_that_its_task_knows(outbound: Errand) -> None:
    flight, heir = outbound.begin(), RecordingListener()
    flight.on_checkpoint(ResumePoint(event="1"))
    flight.on_checkpoint(ResumePoint(event="2"))
    flight.attach_listener(heir)
    flight.on_checkpoint(ResumePoint(event="3"))
    assert [each.event for each in heir.resume_points] == ["2", "3"]
    flight.close()
    await outbound.flying.close()


async def test_a_call_whose_task_goes_on_elsewhere_is_left_also_when_its_end_comes_late(outbound: Errand) -> None:
    flight, heir = outbound.begin(), RecordingListener()
    assert not flight.leaves
    flight.attach_listener(heir)
    assert not flight.leaves
    heir.leaves = True
    flight.close()
    assert flight.leaves
    await outbound.flying.close()


async def test_a_call_that_is_no_task_is_never_left(outbound: Errand) -> None:
    flight = outbound.begin()
    flight.on_checkpoint(ResumePoint(event="1"))
    flight.close()
    assert not flight.leaves
    await outbound.flying.close()
