"""Tasks of legacy servers: what they are asked, and what their answers show."""

import json
from typing import Any

import pytest

from requirements import covers
from taskgate.domain.record import TaskStatus
from taskgate.errors import UpstreamFailed
from taskgate.protocol.legacy.upstream import LegacyServerTasks
from taskgate.protocol.server_messages import MAX_SERVER_TASK_ID, MAX_SUMMARY
from unit.protocol.legacy.task_messages import ID, answer, reason_of, refusal, seen, task

# --- states -----------------------------------------------------------------------------------------------------------


NATIVE = LegacyServerTasks()
WORKING, FAILED = TaskStatus.WORKING, TaskStatus.FAILED


# --- what is shown -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"taskId": None},
        {"taskId": ""},
        {"taskId": 7},
        {"taskId": "x" * (MAX_SERVER_TASK_ID + 1)},
        {"taskId": "é" * (MAX_SERVER_TASK_ID // 2 + 1)},
        {"taskId": "\ud800"},
    ],
)
def test_a_task_that_cannot_be_followed_breaks_the_protocol(said: dict[str, Any]) -> None:
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_created(answer(json.dumps({"task": task(**said)})))
    assert reason_of(failure) == ("malformed", True)
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_state(ID, answer(json.dumps(task(**said))))
    assert reason_of(failure) == ("malformed", True)


@pytest.mark.parametrize(
    ("said", "message"),
    [("on", "on"), ("", None), (7, None), ("a\ud800", "a?"), ("x" * 9_999, "x" * (MAX_SUMMARY - 1) + "…")],
)
def test_what_a_task_says_of_itself_is_bounded_and_can_be_written(said: Any, message: str | None) -> None:
    found = NATIVE.read_state(ID, answer(json.dumps(task(statusMessage=said, lastUpdatedAt=7))))
    assert found is not None
    assert (found.message, found.updated) == (message, None)


# --- outcomes ---------------------------------------------------------------------------------------------------------


WORKING, COMPLETED, FAILED = TaskStatus.WORKING, TaskStatus.COMPLETED, TaskStatus.FAILED


@covers("L-RES-2")
def test_the_error_of_a_task_that_failed_is_the_calls_own() -> None:
    for code in (-32602, -32603, 7):
        response = refusal(code, "Bad arguments")
        assert NATIVE.read_outcome(seen(FAILED), response) is response


def test_a_short_id_may_stand_in_an_error_by_chance() -> None:
    response = refusal(-32001, "Bad")
    assert NATIVE.read_outcome(seen(FAILED, id_="1"), response) is response
