"""Of a flood of progress the newest is passed on, of a usual stream everything; and notifications have a size."""

import json
import logging
from typing import Any

import pytest

from requirements import covers
from taskgate.upstream.notification_limits import (
    LARGEST,
    MESSAGES,
    PROGRESS,
    SAID_A_SECOND,
    TOKENS,
    LeftOut,
    NotificationBudget,
    Said,
)

OTHER = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hello"}}'


def progress(number: int, token: Any = 7, **more: Any) -> bytes:
    """How far the call with that token is."""
    params = {"progress": number, "progressToken": token, **more}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode()


def new() -> NotificationBudget:
    return NotificationBudget(LeftOut("reports"))


def flooded(beside: NotificationBudget, token: Any = 7) -> NotificationBudget:
    """It has heard as much progress of that token as is heard at once."""
    messages = [progress(number, token) for number in range(PROGRESS.burst)]
    assert beside.heard(messages, 0.0) == messages
    return beside


@pytest.mark.parametrize("together", [1, 10, 100])
@covers("T43")
def test_a_tool_that_tells_its_progress_a_hundred_times_a_second_loses_nothing(together: int) -> None:
    beside, said, heard = new(), [progress(number) for number in range(6000)], list[bytes]()
    for at in range(0, len(said), together):
        heard += beside.heard(said[at : at + together], at / 100)
    assert heard == said


@covers("T43")
def test_of_a_flood_of_progress_the_newest_is_passed_on() -> None:
    beside = flooded(new())
    assert beside.heard([progress(number) for number in range(500)], 0.0) == [progress(499)]


def test_what_is_between_stays_in_its_place() -> None:
    beside, question = flooded(new()), b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    said = [progress(1), OTHER, progress(2), question, progress(3), OTHER]
    assert beside.heard(said, 0.0) == [OTHER, question, progress(3), OTHER]


def test_the_progress_of_another_call_is_not_merged_with_that_of_a_flood() -> None:
    beside, quiet = flooded(new()), [progress(number, 8) for number in range(100)]
    noisy = [progress(number) for number in range(100)]
    said = [each for pair in zip(noisy, quiet, strict=True) for each in pair]
    assert beside.heard(said, 0.0) == [*quiet[:-1], noisy[-1], quiet[-1]]


def test_after_a_flood_progress_is_heard_whole_again() -> None:
    beside, said = flooded(new()), [progress(number) for number in range(PROGRESS.burst)]
    assert beside.heard(said, PROGRESS.burst * PROGRESS.every) == said


NO_PROGRESS = {
    "a log line about it": {"method": "notifications/message", "params": {"data": "notifications/progress"}},
    "without a token": {"method": "notifications/progress", "params": {"progress": 1}},
    "with a token that is none": {"method": "notifications/progress", "params": {"progressToken": [7]}},
    "without parameters": {"method": "notifications/progress"},
    "parameters that are a list": {"method": "notifications/progress", "params": ["progressToken", 7]},
    "a request": {"method": "notifications/progress", "id": 1, "params": {"progressToken": 7}},
    "an answer": {"id": 1, "result": {"text": "notifications/progress", "progressToken": 7}},
    "a list": ["notifications/progress"],
}


@pytest.mark.parametrize("message", NO_PROGRESS.values(), ids=NO_PROGRESS)
def test_what_is_no_progress_is_never_merged(message: Any) -> None:
    said = [json.dumps(message).encode()] * 10
    assert flooded(new()).heard(said, 0.0) == said


def test_what_cannot_be_read_is_left_to_its_reader() -> None:
    said = [b'{"method":"notifications/progress"', b'\xff"notifications/progress"', b""] * 2
    assert flooded(new()).heard(said, 0.0) == said


SHAPES = {
    "the token first": b'{"method":"notifications/progress","params":{"progressToken":7,"progress":1}}',
    "metadata first": b'{"params":{"_meta":{"a":"\\""},"progressToken":7},"method":"notifications/progress"}',
    "blanks": b' { "jsonrpc" : "2.0" , "method" : "notifications/progress" , "params" : { "progressToken" : 7 } } ',
}


@pytest.mark.parametrize("message", SHAPES.values(), ids=SHAPES)
def test_progress_is_known_however_it_is_written(message: bytes) -> None:
    assert flooded(new()).heard([message] * 10, 0.0) == [message]


@pytest.mark.thorough
def test_a_flood_under_many_tokens_is_merged_too() -> None:
    beside = new()
    wave = [progress(number, token) for token in range(2 * TOKENS) for number in range(2)]
    for _ in range(PROGRESS.burst):
        beside.heard(wave, 0.0)
    assert len(beside.heard(wave, 0.0)) == len(wave) // 2


@pytest.mark.parametrize("times", [2, 4])
def test_however_long_a_flood_is_no_more_of_it_is_passed_on(times: int) -> None:
    beside = flooded(new())
    assert len(beside.heard([progress(number) for number in range(1000 * times)], 0.0)) == 1


def large(method: str, size: int = LARGEST + 1) -> bytes:
    """A message of that method with more than a notification may have."""
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": {"data": "x" * size}}).encode()


@covers("T43")
@pytest.mark.parametrize("method", ["notifications/message", "notifications/progress", "notifications/none"])
def test_a_notification_that_is_too_large_is_passed_over_and_told_of_once(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    beside, last = (
        NotificationBudget(LeftOut("reports")),
        {"jsonrpc": "2.0", "params": {"data": "x" * LARGEST}, "method": method},
    )
    said = [large(method), OTHER, large(method), json.dumps(last).encode()]
    assert beside.heard(said, 0.0) == [OTHER]
    told = [record for record in caplog.records if "is dropped: it is too large" in record.message]
    assert [(each.levelno, each.upstream, each.bytes) for each in told] == [  # type: ignore[attr-defined]
        (logging.WARNING, "reports", len(said[0]))
    ]


def test_answers_questions_and_notifications_of_usual_size_are_passed_on() -> None:
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": "x" * LARGEST}}).encode()
    question = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": "x" * LARGEST})
    note = large("notifications/message", LARGEST - 100)
    said = [answer, question.encode(), note]
    assert len(note) <= LARGEST
    assert new().heard(said, 0.0) == said


def test_a_task_is_told_of_whatever_the_size_of_its_result() -> None:
    said = [large("notifications/tasks")]
    assert new().heard(said, 0.0) == said
    assert new().heard([large("notifications/tasks/status")], 0.0) == []


def test_that_progress_is_merged_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "taskgate.upstream"):
        flooded(new()).heard([progress(1), progress(2), progress(3)], 0.0)
    assert [(each.upstream, each.count) for each in caplog.records] == [("reports", 2)]  # type: ignore[attr-defined]


def test_messages_beyond_those_of_a_second_are_waited_for() -> None:
    beside = new()
    waits = [beside.wait(MESSAGES.burst // 2, 100.0) for _ in range(4)]
    assert waits == pytest.approx([0.0, 0.0, 0.5, 1.0])
    assert beside.wait(0, 102.0) == 0.0


def test_bytes_beyond_those_at_once_are_waited_for_and_those_of_answers_are_not() -> None:
    said = Said(1000)
    said.heard(1000)
    assert said.wait(0.0) == 0.0
    said.heard(SAID_A_SECOND)
    assert said.wait(0.0) == 1.0
    assert said.wait(0.5) == 0.5
    said.heard(10**9)
    said.answered(10**9)
    assert said.wait(1.0) == 0.0
