"""Questions that a host keeps a task of its own for: the handle that says so, and the answer that is the last word."""

import pytest

from taskgate.jsontext.edits import dump
from taskgate.protocol.host_requests import AnswerInput
from taskgate.protocol.jsonrpc import parse
from taskgate.protocol.legacy.downstream import LegacyDownstream
from taskgate.protocol.legacy.questions import read_answer, settled_by, wants_task
from taskgate.protocol.messages import Response

INPUT = f"{'t' * 32}.input-1"
HANDLE = '"result":{"task":{"taskId":"theirs","status":"working"}}'


def deferred_to(body: str) -> str | None:
    """What task an answer is the handle of."""
    message = parse(f'{{"jsonrpc":"2.0","id":{dump(INPUT)},{body}}}'.encode(), max_depth=64)
    assert isinstance(message, Response)
    answer = read_answer(message)
    assert isinstance(answer, AnswerInput)
    return answer.host_task


@pytest.mark.parametrize(
    ("body", "task"),
    [
        (HANDLE, "theirs"),
        ('"result":{"task":{"taskId":""}}', ""),
        ('"result":{"task":{"taskId":7}}', None),
        ('"result":{"task":{}}', None),
        ('"result":{"task":"theirs"}', None),
        ('"result":{"taskId":"theirs"}', None),
        ('"result":{}', None),
        ('"error":{"code":-1,"message":"no","data":{"task":{"taskId":"theirs"}}}', None),
    ],
)
def test_a_handle_is_told_by_its_shape(body: str, task: str | None) -> None:
    assert deferred_to(body) == task


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ('{"task":{}}', True),
        ('{"task":{"ttl":1},"x":1}', True),
        ('{"task":null}', False),
        ('{"x":{}}', False),
        ("", False),
    ],
)
def test_a_task_of_the_hosts_is_asked_for_by_an_object(params: str, wanted: bool) -> None:
    assert wants_task(params) is wanted
    assert LegacyDownstream("1").wants_task(params) is wanted


ID, RESULT, ERROR = '{"taskId":"theirs"}', '{"result":{}}', '{"error":{"code":1,"message":"m"}}'
LAST = [
    ("tasks/result", ID, RESULT),
    ("tasks/result", ID, ERROR),
    ("tasks/cancel", ID, '{"result":{"status":"cancelled"}}'),
    ("tasks/get", ID, '{"result":{"status":"cancelled"}}'),
    ("tasks/get", ID, '{"result":{"status":"failed"}}'),
]
NOT_LAST = [
    ("tasks/result", '{"taskId":7}', RESULT),
    ("tasks/result", "{}", RESULT),
    ("tasks/cancel", ID, ERROR),
    ("tasks/cancel", ID, '{"result":{"status":"working"}}'),
    ("tasks/get", ID, '{"result":{"status":"completed"}}'),
    ("tasks/get", ID, '{"result":[]}'),
    ("tasks/list", ID, RESULT),
    ("elicitation/create", ID, RESULT),
]


@pytest.mark.parametrize(("method", "params", "answer"), LAST)
def test_a_server_needs_no_more_once_it_has_the_last_word(method: str, params: str, answer: str) -> None:
    assert settled_by(method, params, answer) == "theirs"
    assert LegacyDownstream("1").settled_task(method, params, answer) == "theirs"


@pytest.mark.parametrize(("method", "params", "answer"), NOT_LAST)
def test_any_other_answer_leaves_it_waiting(method: str, params: str, answer: str) -> None:
    assert settled_by(method, params, answer) is None
