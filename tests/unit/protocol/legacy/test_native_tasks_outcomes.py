"""What came of a task of a server of 2025-11-25, as the answer of the call that it was made of."""

import json

import pytest

from requirements import covers
from taskgate.domain.record import TaskStatus
from taskgate.errors import UpstreamFailed
from taskgate.protocol.legacy.native_tasks import NativeTasks
from taskgate.protocol.messages import Response
from unit.protocol.legacy.natively import ID, RELATED, answer, reason_of, refusal, seen

NATIVE = NativeTasks()
WORKING, COMPLETED, FAILED = TaskStatus.WORKING, TaskStatus.COMPLETED, TaskStatus.FAILED


ODD = r'"content": [ {"type":"text","text":"\u00e9\/ud800"} ], "structuredContent":{"a":1e999,"a":1}'


@covers("L-RES-3")
@pytest.mark.parametrize(
    ("result", "own"),
    [
        (f'{{ {ODD} ,"_meta": {{{RELATED}}} }}', f"{{ {ODD} }}"),
        (f'{{"_meta":{{{RELATED}}},{ODD}}}', f"{{{ODD}}}"),
        (f'{{"_meta":{{ "a" :1,{RELATED},"b":[ ]}},{ODD}}}', f'{{"_meta":{{ "a" :1,"b":[ ]}},{ODD}}}'),
        (
            f'{{{ODD},"_meta":{{"io.modelcontextprotocol/x":1}}}}',
            f'{{{ODD},"_meta":{{"io.modelcontextprotocol/x":1}}}}',
        ),
        (f"{{{ODD}}}", f"{{{ODD}}}"),
    ],
)
@pytest.mark.parametrize("status", TaskStatus)
def test_a_result_is_the_calls_own_but_for_the_key_of_the_task(status: TaskStatus, result: str, own: str) -> None:
    came = NATIVE.read_outcome(seen(status), answer(result))
    assert came is not None
    assert came.text == f'{{ "jsonrpc":"2.0","result" : {own} ,"id": 5 }}'
    assert came.result is not None
    assert came.text[came.result.start : came.result.end] == own
    assert came.text[slice(*came.id_span)] == "5"


@pytest.mark.parametrize("result", ['{"isError":true}', '{"structuredContent":{}}', '{"content":null}'])
def test_a_result_need_not_be_whole(result: str) -> None:
    came = NATIVE.read_outcome(seen(WORKING), answer(result))
    assert came is not None
    assert came.text.count(result) == 1


@covers("L-RES-2")
def test_the_error_of_a_task_that_failed_is_the_calls_own() -> None:
    for code in (-32602, -32603, 7):
        response = refusal(code, "Bad arguments")
        assert NATIVE.read_outcome(seen(FAILED), response) is response


def test_a_task_that_failed_and_kept_no_result_is_an_error_of_its_tool() -> None:
    # mcp 1.30 keeps none, and the TypeScript SDK says which task has none.
    for response in (answer(f'{{"_meta":{{{RELATED}}}}}'), refusal(-32603, f"Task {ID} has no result stored")):
        came = NATIVE.read_outcome(seen(FAILED, "boom"), response)
        assert came is not None
        assert json.loads(came.text)["result"] == {"content": [{"type": "text", "text": "boom"}], "isError": True}
        assert ID not in came.text
    silent = NATIVE.read_outcome(seen(FAILED), answer("{}"))
    assert silent is not None
    assert json.loads(silent.text)["result"]["content"][0]["text"] == "The server's task failed"


def test_a_short_id_may_stand_in_an_error_by_chance() -> None:
    response = refusal(-32001, "Bad")
    assert NATIVE.read_outcome(seen(FAILED, id_="1"), response) is response


@pytest.mark.parametrize("response", [answer("{}"), refusal(-32602)])
def test_a_task_that_its_server_cancelled_has_failed(response: Response) -> None:
    with pytest.raises(UpstreamFailed, match="cancelled") as failure:
        NATIVE.read_outcome(seen(TaskStatus.CANCELLED), response)
    assert reason_of(failure) == ("closed", True)


@pytest.mark.parametrize(("code", "reason"), [(-32602, "call_lost"), (-32601, "call_lost"), (-32603, "refused")])
def test_a_result_that_was_there_may_be_lost_or_not_be_told_for_now(code: int, reason: str) -> None:
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_outcome(seen(COMPLETED), refusal(code, f"Task {ID}"))
    assert reason_of(failure) == (reason, True)
    assert ID not in str(failure.value)


@pytest.mark.parametrize("result", ["{}", f'{{"_meta":{{{RELATED}}}}}'])
def test_a_task_that_is_complete_and_kept_no_result_breaks_the_protocol(result: str) -> None:
    with pytest.raises(UpstreamFailed, match="shows no result") as failure:
        NATIVE.read_outcome(seen(COMPLETED), answer(result))
    assert reason_of(failure) == ("malformed", True)


def test_a_result_that_is_none_of_a_tool_is_passed_on_as_what_it_is() -> None:
    came = NATIVE.read_outcome(seen(COMPLETED), answer(f'{{"x":1,"_meta":{{{RELATED}}}}}'))
    assert came is not None
    assert came.result is not None
    assert came.text[came.result.start : came.result.end] == '{"x":1}'
    with pytest.raises(UpstreamFailed) as failure:
        NATIVE.read_outcome(seen(COMPLETED), answer("[]"))
    assert reason_of(failure) == ("malformed", True)


@pytest.mark.parametrize("status", [WORKING, TaskStatus.INPUT_REQUIRED])
@pytest.mark.parametrize("response", [answer("{}"), answer("[]"), refusal(-32602), refusal(-32603)])
def test_before_a_task_is_seen_to_be_over_only_a_result_says_that_it_is(status: TaskStatus, response: Response) -> None:
    assert NATIVE.read_outcome(seen(status), response) is None
