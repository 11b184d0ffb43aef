"""The judge that the other tests trust lets good values pass and fails bad ones."""

from typing import Any

import pytest

from unit.protocol.modern.judge import RELATED, check, check_task, read

TASK = {"taskId": "t", "status": "working", "createdAt": "a", "lastUpdatedAt": "b", "ttlMs": 1}


def test_a_good_value_passes_as_text_and_as_a_value() -> None:
    check('{"resultType":"complete","content":[]}', "CallToolResult")
    check_task({**TASK, "resultType": "complete"}, "GetTaskResult", "WorkingTask")


@pytest.mark.parametrize("value", [{}, {"resultType": "complete"}, {"resultType": 1, "content": []}])
def test_a_value_of_another_shape_fails(value: dict[str, Any]) -> None:
    with pytest.raises(pytest.fail.Exception):
        check(value, "CallToolResult")


@pytest.mark.parametrize("more", [{"ttl": 1}, {"pollInterval": 1}, {"_meta": {RELATED: {}}}, {"requestState": ""}])
def test_a_task_with_a_word_of_another_era_fails(more: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check_task({**TASK, **more}, "Task")


def test_a_repeated_key_fails() -> None:
    with pytest.raises(AssertionError):
        read('{"a":{"b":1,"b":1}}')


def test_a_definition_that_is_not_there_is_no_judge() -> None:
    with pytest.raises(AssertionError):
        check({}, "NoSuchResult")
